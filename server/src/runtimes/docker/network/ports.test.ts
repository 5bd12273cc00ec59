import assert from 'node:assert/strict'
import { createSocket } from 'node:dgram'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { busyboxImage, ensureBusybox } from '../../../../test/support/docker/busybox-image.ts'
import { createWorkload, ignore, signal } from '../../../../test/support/runtimes/conformance.ts'
import { createEngine } from '../../../lib/docker/docker-engine.ts'
import { newId } from '../../../lib/ids.ts'
import { systemClock } from '../../../lib/time/clock.ts'
import type { WorkloadPort } from '../../runtime.ts'
import { createContainers } from '../containers.ts'
import { createCreator } from '../create.ts'
import { createEvents } from '../events.ts'
import { createHooks } from '../hooks.ts'
import { createImages } from '../images.ts'
import { createInstances } from '../instances.ts'
import { createVolumes } from '../volumes.ts'
import { createAddresses } from './addresses.ts'
import { createNetworks } from './network.ts'
import { createPlaces } from './places.ts'
import { createPorts } from './ports.ts'

const port = (internalPort: number, protocol: WorkloadPort['protocol'] = 'HTTP'): WorkloadPort => ({
  internalPort,
  protocol,
  publiclyAccessible: false,
})

test('ports are below the ephemeral range, one each, and never given twice', async () => {
  const ports = createPorts()
  const taken = await Promise.all(Array.from({ length: 50 }, (_, i) => ports.take(`c${i}`, [port(80), port(81)])))
  const numbers = taken.flatMap((each) => Object.values(each))
  assert.equal(new Set(numbers).size, 100)
  assert.ok(numbers.every((number) => number >= 15_000 && number < 30_000))
})

test('a port that a program holds is passed over, for TCP and for UDP', async () => {
  const ports = createPorts()
  const start = (await ports.take('first', [port(80)]))[80]!
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(start + 1, '127.0.0.1', resolve))
  const socket = createSocket('udp4')
  await new Promise<void>((resolve) => socket.bind(start + 2, '127.0.0.1', resolve))
  assert.notEqual((await ports.take('second', [port(80, 'UDP')]))[80], start + 1)
  assert.ok((await ports.take('third', [port(80, 'UDP')]))[80]! > start + 2)
  server.close()
  socket.close()
})

test('a port of a container that is down is kept until released', async () => {
  const ports = createPorts()
  const start = (await ports.take('first', [port(80)]))[80]!
  ports.keep('down', { 80: start + 1 })
  assert.equal((await ports.take('second', [port(80)]))[80], start + 2)
})

test('when the engine finds the port taken, another is tried and nothing is left of the first try', async () => {
  await ensureBusybox()
  const ownerId = `ports-test-${newId()}`
  const engine = createEngine()
  const events = createEvents(engine, ownerId, systemClock)
  const containers = createContainers({
    engine,
    ownerId,
    events,
    readiness: { isUnready: () => false },
    troubles: { of: () => undefined },
  })
  const networks = createNetworks(engine, ownerId)
  const creator = createCreator({
    ...{ engine, networks, inspect: containers.inspect },
    images: createImages(engine, undefined),
    volumes: createVolumes(engine, ownerId),
  })
  const ports = createPorts()
  const holder = createServer()
  await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve))
  const held = (holder.address() as { port: number }).port
  let tries = 0
  // Checked as free, taken before the start.
  const racing = {
    ...ports,
    take: async (...args: Parameters<typeof ports.take>) => (++tries === 1 ? { 8080: held } : ports.take(...args)),
  }
  // As if this machine could not reach the network.
  const far = { ...networks, ensure: async (id: string) => networks.ensure(id).then(() => null) }
  const places = createPlaces({ containers, networks: far, addresses: createAddresses(systemClock), ports: racing })
  const hooks = createHooks(engine, systemClock)
  const instances = createInstances({ engine, containers, creator, places, hooks, ownerId, clock: systemClock })
  const program = { image: busyboxImage, entrypoint: null, arguments: ['httpd', '-f', '-p', '8080'] }
  const workload = createWorkload(program)
  try {
    const [instance] = await instances.apply(workload, ignore, signal())
    assert.equal(tries, 2)
    assert.notEqual(instance!.endpoints[8080]!.port, held)
    assert.equal((await containers.list()).length, 1)
  } finally {
    await instances.endAll(workload.serviceId, 0, signal())
    await networks.remove(workload.environmentId, signal())
    holder.close()
    events.close()
    await engine.close()
  }
})
