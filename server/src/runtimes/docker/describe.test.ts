import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createTask, createWorkload } from '../../../test/support/runtimes/conformance.ts'
import { newId } from '../../lib/ids.ts'
import { Secret } from '../../lib/secret.ts'
import {
  configHash,
  containerName,
  describeInstance,
  describeTask,
  formatPlace,
  type InstancePlace,
  labels,
  parsePlace,
  taskIdIn,
  taskName,
} from './describe.ts'

const program = { image: 'sha256:abc', entrypoint: ['/run'], arguments: ['--fast'] }
const ids = {
  organizationId: '01900000-0000-7000-8000-00000000000a',
  environmentId: '01900000-0000-7000-8000-00000000000e',
  serviceId: '01900000-0000-7000-8000-aaaaaaaaaaaa',
  revision: '01900000-0000-7000-8000-bbbbbbbbbbbb',
}
const workload = createWorkload(program, {
  ...ids,
  aliases: ['web', 'service-1'],
  env: new Secret({ WORD: 'hunter2=x' }),
  cpuMillicores: 250,
  memoryMb: 128,
  ports: [
    { internalPort: 80, protocol: 'HTTP', publiclyAccessible: true },
    { internalPort: 53, protocol: 'UDP', publiclyAccessible: false },
  ],
  volumes: [{ id: 'vol', mountPath: '/data', sizeGb: 1 }],
})

const published: InstancePlace = { hostPorts: { 80: 15000, 53: 15001 } }

test('a workload becomes exactly this body', () => {
  const body = describeInstance(workload, 1, published, 'me')
  const network = 'slipway-01900000-0000-7000-8000-00000000000e'
  const ofUs = {
    'slipway.owner': 'me',
    'slipway.organization': ids.organizationId,
    'slipway.environment': ids.environmentId,
    'slipway.service': ids.serviceId,
  }
  assert.deepEqual(body, {
    Image: 'sha256:abc',
    Entrypoint: ['/run'],
    Cmd: ['--fast'],
    Env: ['WORD=hunter2=x'],
    Labels: {
      ...ofUs,
      'slipway.revision': ids.revision,
      'slipway.index': '1',
      'slipway.ports': '53=15001,80=15000',
      'slipway.config': configHash(workload, 'me'),
      'slipway.liveness': '',
      'slipway.post-start': '',
      'slipway.pre-stop': '',
      'slipway.record': '',
      'slipway.readiness': '',
      'slipway.task': '',
      'slipway.attempt': '',
      'slipway.volume': '',
    },
    ExposedPorts: { '80/tcp': {}, '53/udp': {} },
    HostConfig: {
      NanoCpus: 250_000_000,
      Memory: 128 * 2 ** 20,
      MemorySwap: 128 * 2 ** 20,
      PidsLimit: 4096,
      Init: true,
      SecurityOpt: ['no-new-privileges'],
      CapDrop: ['NET_RAW', 'MKNOD'],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
      RestartPolicy: { Name: 'unless-stopped' },
      PortBindings: {
        '80/tcp': [{ HostIp: '127.0.0.1', HostPort: '15000' }],
        '53/udp': [{ HostIp: '127.0.0.1', HostPort: '15001' }],
      },
      Mounts: [
        {
          Type: 'volume',
          Source: 'slipway-vol',
          Target: '/data',
          VolumeOptions: {
            Labels: { ...ofUs, 'slipway.volume': 'vol' },
            DriverConfig: { Name: 'local', Options: { size: '1G' } },
          },
        },
      ],
      NetworkMode: network,
    },
    NetworkingConfig: { EndpointsConfig: { [network]: { Aliases: ['web', 'service-1'] } } },
  })
})

test("the image's own entrypoint and arguments stay when none are given", () => {
  const body = describeInstance({ ...workload, entrypoint: null, arguments: null }, 0, published, 'me')
  assert.ok(!('Entrypoint' in body) && !('Cmd' in body))
})

test('a secret value is in the environment of the body and nowhere else', () => {
  const { Env: _, ...rest } = describeInstance(workload, 0, published, 'me')
  assert.ok(!JSON.stringify(rest).includes('hunter2'))
})

test('a task never restarts, publishes no port, and carries its id', () => {
  const task = createTask(program, { taskId: 'task-1' })
  const body = describeTask(task, 'me')
  assert.deepEqual(body.HostConfig.RestartPolicy, { Name: 'no' })
  assert.equal(body.HostConfig.PortBindings, undefined)
  assert.equal(body.Labels[labels.task], 'task-1')
})

test('names of services and revisions made in the same millisecond differ', () => {
  const names = Array.from({ length: 1000 }, () => containerName(newId(), newId(), 0))
  assert.equal(new Set(names).size, 1000)
  assert.equal(containerName(ids.serviceId, ids.revision, 2), 'slipway-aaaaaaaaaaaa-bbbbbbbbbbbb-2')
})

test('the configuration hash changes with what a container is made of, not with how many there are', () => {
  const hash = (over: object) => configHash({ ...workload, ...over }, 'me')
  const same = hash({})
  assert.equal(hash({ instances: 5, readyTimeoutMs: 1 }), same)
  for (const over of [
    { image: 'other' },
    { memoryMb: 1 },
    { arguments: [] },
    { env: new Secret({ WORD: 'x' }) },
    { files: new Secret([{ path: '/a', content: 'b' }]) },
    { volumes: [] },
  ])
    assert.notEqual(hash(over), same)
})

test('an instance with an address of its own has it fixed, and is published nowhere', () => {
  const body = describeInstance(workload, 1, { address: '10.192.4.9', ports: [80, 53] }, 'me')
  assert.deepEqual(body.HostConfig.PortBindings, {})
  assert.deepEqual(Object.values(body.NetworkingConfig.EndpointsConfig), [
    { Aliases: ['web', 'service-1'], IPAMConfig: { IPv4Address: '10.192.4.9' } },
  ])
  assert.equal(body.Labels[labels.ports], '10.192.4.9=80,53')
})

test('every container says every label, so that its image says none for us', () => {
  const task = createTask(program, { taskId: 'task-1' })
  for (const { Labels } of [describeInstance(workload, 0, published, 'me'), describeTask(task, 'me')])
    assert.deepEqual(Object.keys(Labels).sort(), Object.values(labels).sort())
})

test('a place survives its label, and invalid ones in it are left out', () => {
  const cases: InstancePlace[] = [
    { hostPorts: {} },
    { hostPorts: { 80: 15000, 8080: 31999 } },
    { address: '10.192.4.9', ports: [] },
    { address: '10.192.4.9', ports: [80, 8080] },
  ]
  for (const place of cases) assert.deepEqual(parsePlace(formatPlace(place)), place)
  assert.deepEqual(parsePlace(undefined), { hostPorts: {} })
  assert.deepEqual(parsePlace('x=y,80=,=1,0=1,1=70000,80=15000,5=1e999'), { hostPorts: { 80: 15000 } })
  assert.deepEqual(parsePlace('10.192.4.9=80,x,,-1'), { address: '10.192.4.9', ports: [80] })
})

test('a container executes a task when its name says so too, which no image can', () => {
  assert.equal(taskIdIn(taskName('t'), { [labels.task]: 't' }), 't')
  assert.equal(taskIdIn(taskName(''), { [labels.task]: '' }), undefined)
  assert.equal(taskIdIn(containerName(ids.serviceId, ids.revision, 0), { [labels.task]: 't' }), undefined)
})
