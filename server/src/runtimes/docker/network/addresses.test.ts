import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Probe, WorkloadPort } from '../../runtime.ts'
import { toInstance } from '../containers.ts'
import { createAddresses } from './addresses.ts'
import { isBridgeHere } from './bridge.ts'
import { createPlaces } from './places.ts'
import { addressAt, layOut, parseRoutes, type Subnet, subnetOf } from './subnets.ts'

const small: Subnet = { gateway: '10.192.4.1', first: 0x0ac00402, last: 0x0ac00405 }
const createClock = () => {
  let nowMs = 0
  const pass = (ms: number): void => {
    nowMs += ms
  }
  return { monotonicMs: () => nowMs, pass }
}

test('each name has an address of its own, until none is left', () => {
  const addresses = createAddresses(createClock())
  const taken = ['a', 'b', 'c', 'd'].map((name) => addresses.take(small, name))
  assert.deepEqual(taken.toSorted(), ['10.192.4.2', '10.192.4.3', '10.192.4.4', '10.192.4.5'])
  assert.equal(addresses.take(small, 'e'), null)
})

test('an address that was given back rests for a minute', () => {
  const clock = createClock()
  const addresses = createAddresses(clock)
  const [first] = ['a', 'b', 'c', 'd'].map((name) => addresses.take(small, name))
  addresses.release('a')
  clock.pass(59_000)
  assert.equal(addresses.take(small, 'e'), null)
  clock.pass(1_000)
  assert.equal(addresses.take(small, 'e'), first)
})

test('what containers have is learned, also that others removed them; one that is being made is not forgotten', () => {
  const clock = createClock()
  const addresses = createAddresses(clock)
  addresses.learn(new Map(['2', '3', '4'].map((last) => [`c${last}`, `10.192.4.${last}`])))
  assert.equal(addresses.take(small, 'made'), '10.192.4.5')
  assert.equal(addresses.take(small, 'e'), null)
  clock.pass(11 * 60_000)
  addresses.learn(new Map([['c2', '10.192.4.2']]))
  clock.pass(60_000)
  addresses.learn(new Map([['c2', '10.192.4.2']]))
  const again = ['x', 'y', 'z'].map((name) => addresses.take(small, name))
  assert.deepEqual(again.toSorted(), ['10.192.4.3', '10.192.4.4', '10.192.4.5'])
  addresses.learn(new Map([['c2', '10.192.4.2']]))
  assert.equal(addresses.take(small, 'late'), null)
})

test('the addresses that we give away and those that the engine does never meet', () => {
  const layout = layOut('10.192.4.0/22')
  assert.deepEqual(layout, { Subnet: '10.192.4.0/22', Gateway: '10.192.4.1', IPRange: '10.192.7.0/24' })
  const subnet = subnetOf([layout])!
  assert.deepEqual([addressAt(subnet.first), addressAt(subnet.last)], ['10.192.4.2', '10.192.6.255'])
  const foreign = [
    [],
    [{ Subnet: '172.18.0.0/16', Gateway: '172.18.0.1' }],
    [{ Subnet: '10.192.4.0/24' }],
    [{ ...layout, IPRange: '10.192.6.0/24' }],
    [layout, layout],
  ]
  for (const configs of [...foreign, null, undefined]) assert.equal(subnetOf(configs), null, JSON.stringify(configs))
})

test('routes of this machine are read as the kernel writes them, but for those of everything', () => {
  const table = [
    'Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT',
    'eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0',
    'tun0\t00000080\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0',
    'br-1a9758a47cbe\t0004FB0A\t00000000\t0001\t0\t0\t0\t00FCFFFF\t0\t0\t0',
    '',
  ]
  assert.deepEqual(parseRoutes(table.join('\n')), ['10.251.4.0/22'])
})

test('a network whose bridge is not on this machine is not reached at its addresses, also when the gateway is here', async () => {
  assert.equal(await isBridgeHere('0123456789abcdef', '127.0.0.1'), false)
})

const http = { internalPort: 80, protocol: 'HTTP', publiclyAccessible: true } as const
const none = { readiness: null, liveness: null }
const inEnvironment = (environmentId: string) => ({ environmentId, ports: [http], ...none })
const claims = Array.from({ length: 15_000 }, (_, i) => `${i + 1}=${15_000 + i}`).join(',')

test('where a network is not reached, or has no address left, an instance is published; tasks say nothing of ports', async () => {
  const list = async () => [
    {
      Id: '1',
      Names: ['/slipway-task-t'],
      State: 'exited',
      Created: 0,
      Labels: { 'slipway.task': 't', 'slipway.ports': claims },
    },
  ]
  const asked: string[] = []
  const ports = {
    take: async (name: string) => {
      asked.push(name)
      return { 80: 15_000 }
    },
    keep: (name: string) => assert.fail(`${name} was believed`),
    release: () => {},
  }
  const networks = { ensure: async (id: string) => (id === 'near' ? small : null), forget: () => {} }
  const places = createPlaces({ containers: { list }, networks, addresses: createAddresses(createClock()), ports })
  for (let index = 0; index < 5; index += 1) await places.take(inEnvironment('near'), `near-${index}`)
  assert.deepEqual(await places.take(inEnvironment('far'), 'far-0'), { hostPorts: { 80: 15_000 } })
  assert.deepEqual(asked, ['near-4', 'far-0'])
})

test('on another machine only what the router or a probe asks is published, at the address that was named, whatever its engine says', async () => {
  const asked: number[] = []
  const take = async (_: string, wanted: readonly WorkloadPort[]) => {
    asked.push(...wanted.map(({ internalPort }) => internalPort))
    return Object.fromEntries(wanted.map(({ internalPort }) => [internalPort, 15_000 + internalPort]))
  }
  const places = createPlaces({
    containers: { list: async () => [] },
    networks: { ensure: async () => small, forget: () => {} },
    addresses: createAddresses(createClock()),
    ports: { take, keep: () => {}, release: () => {} },
    elsewhere: '198.19.0.2',
  })
  const tcp = (internalPort: number) => ({ internalPort, protocol: 'TCP', publiclyAccessible: false }) as const
  const seconds = {
    initialDelaySeconds: 0,
    periodSeconds: 1,
    timeoutSeconds: 1,
    successThreshold: 1,
    failureThreshold: 1,
  }
  const exec: Probe = { check: { kind: 'exec', command: ['true'] }, ...seconds }
  const liveness: Probe = { check: { kind: 'tcp', port: 5 }, ...seconds }
  const cases = [
    { readiness: exec, liveness: null, ports: [tcp(1), tcp(2), http], published: [80] },
    { readiness: exec, liveness, ports: [tcp(1), tcp(5)], published: [5] },
    { readiness: null, liveness: null, ports: [tcp(1), tcp(2)], published: [1] },
  ]
  for (const { published, ...workload } of cases) {
    const hostPorts = Object.fromEntries(published.map((port) => [port, 15_000 + port]))
    const place = await places.take({ environmentId: 'far', ...workload }, 'far-0')
    assert.deepEqual(place, { hostIp: '198.19.0.2', hostPorts })
    assert.deepEqual(asked.splice(0), published)
  }
  const read = (text: string) =>
    toInstance({ Id: '1', Names: ['x'], State: 'running', Labels: { 'slipway.ports': text } }, '198.19.0.2').endpoints
  assert.deepEqual(read('80=15080'), { 80: { host: '198.19.0.2', port: 15_080 } })
  for (const foreign of ['10.192.4.9=80', '127.0.0.1=5432', '80=5432']) assert.deepEqual(read(foreign), {}, foreign)
})
