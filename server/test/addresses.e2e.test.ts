// Runs alone: it measures, or takes what the machine has.
/**
 * Instances have their own addresses and keep them over every kind of restart; a route leads to its own service or to
 * nothing; and a healthy service is not affected by a crashing one.
 */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { pack } from 'tar-stream'
import { Agent, request } from 'undici'
import { createEngine, type Engine } from '../src/lib/docker/docker-engine.ts'
import { defaultConnection } from '../src/lib/docker/engine-connection.ts'
import { newId } from '../src/lib/ids.ts'
import { createLog } from '../src/lib/log.ts'
import type { ProcessRouter } from '../src/router/control/client.ts'
import type { PlacedInstance } from '../src/runtimes/blue-green/instances.ts'
import { containerName, networkName } from '../src/runtimes/docker/describe.ts'
import { createDockerRuntime, type DockerRuntime } from '../src/runtimes/docker/docker.ts'
import type { Workload } from '../src/runtimes/runtime.ts'
import { busyboxImage, ensureBusybox } from './support/docker/busybox-image.ts'
import { ownEngineIsMissing, startOwnEngine } from './support/docker/own-engine.ts'
import { startProcess } from './support/router/parts.ts'
import { clean, createTask, createWorkload, ignore, signal, start } from './support/runtimes/conformance.ts'
import { until } from './support/until.ts'

const image = busyboxImage

/** Answers with the service's own id, so that an answer of another service is noticed. */
const page = (id: string): string => `mkdir -p /w; echo ${id} > /w/index.html`
const server = (over: Partial<Workload> = {}, then = 'exec httpd -f -p 8080 -h /w'): Workload => {
  const serviceId = newId()
  const script = `${page(serviceId)}; ${then}`
  return createWorkload({ image, entrypoint: ['sh', '-c'], arguments: [script] }, { serviceId, ...over })
}

interface Load {
  answered: number
  /** Anything but a 200. */
  failed: string[]
  /** Answers of other services. */
  wrong: string[]
}

interface Scene {
  t: TestContext
  engine: Engine
  runtime: DockerRuntime
  router: ProcessRouter
  port: number
}

const open = async (t: TestContext, dockerHost?: string): Promise<Scene> => {
  const connection = defaultConnection(dockerHost)
  const engine = createEngine(connection)
  const runtime = createDockerRuntime({ connection, ownerId: `addresses-test-${newId()}`, log: createLog('silent') })
  t.after(async () => {
    await clean(runtime)
    await runtime.close()
    await engine.close()
  })
  return { t, engine, runtime, ...(await startProcess(t)) }
}

const hostOf = ({ serviceId }: Workload): string => `${serviceId}.localhost`

const lead = ({ router }: Scene, workload: Workload, instances: PlacedInstance[]): Promise<void> => {
  const targets = instances.map(({ endpoints }) => endpoints[8080]!)
  const { serviceId } = workload
  return router.setService(serviceId, [{ host: hostOf(workload), serviceId, protocol: 'HTTP', state: 'up', targets }])
}

const ask = async ({ port }: Scene, workload: Workload, dispatcher?: Agent): Promise<string> => {
  const headers = { host: hostOf(workload) }
  const answer = await request(`http://127.0.0.1:${port}/`, {
    headers,
    ...(dispatcher === undefined ? {} : { dispatcher }),
  })
  const text = (await answer.body.text()).trim()
  return answer.statusCode === 200 ? text : `${answer.statusCode}`
}

/** Clients that keep sending requests, until the test ends or `stop`. */
const clients = 4

const startLoad = (scene: Scene, workload: Workload, connections = clients) => {
  const load: Load = { answered: 0, failed: [], wrong: [] }
  const dispatcher = new Agent({ connections })
  let running = true
  const client = async (): Promise<void> => {
    while (running) {
      const text = await ask(scene, workload, dispatcher).catch((error: Error) => error.message)
      if (text === workload.serviceId) load.answered += 1
      else if (/^[0-9a-f-]{36}$/.test(text)) load.wrong.push(text)
      else load.failed.push(text)
    }
  }
  const ended = Promise.all(Array.from({ length: connections }, client)).then(() => dispatcher.close())
  const stop = async (): Promise<Load> => {
    running = false
    await ended
    return load
  }
  scene.t.after(stop)
  return { load, stop }
}

const addressOf = async ({ engine }: Scene, id: string): Promise<string> => {
  const { NetworkSettings } = await engine.call<{
    NetworkSettings: { Networks: Record<string, { IPAddress: string }> }
  }>('GET', `/containers/${id}/json`)
  return Object.values(NetworkSettings.Networks)[0]!.IPAddress
}

const run = async ({ engine }: Scene, id: string, ...command: string[]): Promise<void> => {
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${id}/exec`, { body: { Cmd: command } })
  await engine.call('POST', `/exec/${Id}/start`, { body: { Detach: true } })
}

const answersItself = (scene: Scene, workload: Workload) =>
  until(async () => (await ask(scene, workload).catch(() => '')) === workload.serviceId, {
    timeoutMs: 30_000,
    what: 'an answer of the service',
  })

test('beside a crashing service, a healthy one loses no request; the crashing one keeps its address and is reached when it runs', async (t) => {
  await ensureBusybox()
  const scene = await open(t)
  const [well] = [server()]
  // Ends soon after each start, until a file exists that makes it stay.
  const ill = server(
    { environmentId: well.environmentId },
    'httpd -p 8080 -h /w; sleep 0.4; [ -e /stay ] && exec sleep 1000; exit 1',
  )
  for (const workload of [well, ill])
    await lead(scene, workload, await scene.runtime.instances.apply(workload, ignore, signal()))
  await scene.runtime.instances.ready(well, ignore, signal())
  const [instance] = await scene.runtime.instances.see([ill])
  const { host } = instance!.endpoints[8080]!
  const loads = [startLoad(scene, well), startLoad(scene, ill)]
  const restarts = async () =>
    (await scene.engine.call<{ RestartCount: number }>('GET', `/containers/${instance!.id}/json`)).RestartCount
  await until(async () => (await restarts()) >= 4, { timeoutMs: 30_000, what: 'four restarts' })
  // Tasks start and end beside it, and never get its address while it is down.
  for (let index = 0; index < 3; index += 1)
    await scene.runtime.run(
      createTask({ image, entrypoint: null, arguments: ['true'] }, { environmentId: well.environmentId }),
      ignore,
      signal(),
    )
  const stay = pack()
  stay.entry({ name: 'stay' }, 'x')
  stay.finalize()
  await scene.engine.call('PUT', `/containers/${instance!.id}/archive`, { query: { path: '/' }, body: stay })
  await until(async () => (await addressOf(scene, instance!.id)) === host, { timeoutMs: 60_000, what: 'its address' })
  await answersItself(scene, ill)
  const [healthy, ending] = await Promise.all(loads.map(({ stop }) => stop()))
  assert.deepEqual([healthy!.failed, healthy!.wrong, ending!.wrong], [[], [], []])
  assert.ok(healthy!.answered > 100, `${healthy!.answered} answers`)
})

test('killing one of two instances, three times, costs only the responses in progress', async (t) => {
  await ensureBusybox()
  const scene = await open(t)
  const workload = server({ instances: 2 })
  const instances = await start(scene.runtime, workload)
  await lead(scene, workload, instances)
  const before = instances.map(({ endpoints }) => endpoints[8080]!.host)
  const { load, stop } = startLoad(scene, workload)
  const [first, second] = instances as [PlacedInstance, PlacedInstance]
  await run(scene, first.id, 'sh', '-c', 'kill -9 $(pidof httpd)')
  await until(
    async () =>
      (await scene.engine.call<{ RestartCount: number }>('GET', `/containers/${first.id}/json`)).RestartCount === 1,
    {
      timeoutMs: 20_000,
      what: 'its restart',
    },
  )
  await until(async () => (await addressOf(scene, first.id)) === before[0], { timeoutMs: 20_000, what: 'its address' })
  await until(async () => (await fetch(`http://${before[0]}:8080/`).catch(() => null))?.ok, {
    timeoutMs: 20_000,
    what: 'its answer',
  })
  await scene.engine.call('POST', `/containers/${second.id}/restart`, { query: { t: 0 } })
  assert.equal(await addressOf(scene, second.id), before[1])
  const seen = load.answered
  await until(() => load.answered > seen + 200, { timeoutMs: 20_000, what: 'more answers' })
  await scene.engine.call('DELETE', `/containers/${second.id}`, { query: { force: true } })
  const later = load.answered
  await until(() => load.answered > later + 200, { timeoutMs: 20_000, what: 'answers of the one that is left' })
  const { failed, wrong } = await stop()
  assert.deepEqual(wrong, [])
  // A kill cuts the responses in progress; the other instance answers all later requests.
  assert.ok(failed.length <= 3 * clients, failed.join(', '))
  // The address is silent now; no client has to wait for that.
  await scene.engine.call('DELETE', `/containers/${first.id}`, { query: { force: true } })
  await until(
    async () => {
      const begun = performance.now()
      return (await ask(scene, workload)) === '502' && performance.now() - begun < 1000
    },
    { timeoutMs: 20_000, what: 'a refusal at once' },
  )
})

test('after a restart of the engine under load, every service answers at its old address, and none gets a request of another', {
  skip: ownEngineIsMissing,
}, async (t) => {
  await ensureBusybox()
  const own = await startOwnEngine()
  await own.load(image)
  const scene = await open(t, own.host)
  t.after(() => own.close())
  const environments = [newId(), newId()]
  const services = environments.flatMap((environmentId) => [1, 2, 3].map(() => server({ environmentId })))
  const before = new Map<string, PlacedInstance>()
  for (const workload of services) {
    const [instance] = await start(scene.runtime, workload)
    before.set(workload.serviceId, instance!)
    await lead(scene, workload, [instance!])
  }
  for (const workload of services) assert.equal(await ask(scene, workload), workload.serviceId)
  const loads = services.map((workload) => startLoad(scene, workload, 1))
  await own.restart()
  for (const workload of services) await answersItself(scene, workload)
  const ended = await Promise.all(loads.map(({ stop }) => stop()))
  assert.deepEqual(
    ended.flatMap(({ wrong }) => wrong),
    [],
  )
  const subnets = new Set<string>()
  for (const service of services) {
    const { id, endpoints } = before.get(service.serviceId)!
    const { host } = endpoints[8080]!
    assert.equal(await addressOf(scene, id), host)
    assert.deepEqual((await scene.runtime.instances.see([service]))[0]!.endpoints, endpoints)
    subnets.add(host.split('.').slice(0, 2).join('.') + (Number(host.split('.')[2]) >> 2))
  }
  assert.equal(subnets.size, environments.length)
})

/** A service from the time when the engine chose the addresses: with its network, and published. */
const makeOld = async ({ engine }: Scene, ownerId: string, workload: Workload, hostPort: number): Promise<void> => {
  const { organizationId, environmentId, serviceId, revision } = workload
  const Labels = { 'slipway.owner': ownerId, 'slipway.environment': environmentId }
  const network = { Name: networkName(environmentId), CheckDuplicate: true, Driver: 'bridge', Labels }
  await engine.call('POST', '/networks/create', { body: network })
  const rest = {
    organization: organizationId,
    service: serviceId,
    revision,
    index: '0',
    ports: `8080=${hostPort}`,
    config: 'x',
  }
  const body = {
    Image: image,
    Entrypoint: workload.entrypoint,
    Cmd: workload.arguments,
    Labels: { ...Labels, ...Object.fromEntries(Object.entries(rest).map(([name, text]) => [`slipway.${name}`, text])) },
    ExposedPorts: { '8080/tcp': {} },
    HostConfig: {
      NetworkMode: networkName(environmentId),
      PortBindings: { '8080/tcp': [{ HostIp: '127.0.0.1', HostPort: String(hostPort) }] },
    },
  }
  const query = { name: containerName(serviceId, revision, 0) }
  const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query, body })
  await engine.call('POST', `/containers/${Id}/start`)
}

test('a service of an older version is reached at its published port until it is redeployed; its network is removed with the last one', async (t) => {
  await ensureBusybox()
  const scene = await open(t)
  const ownerId = `addresses-old-${newId()}`
  const runtime = createDockerRuntime({ ownerId, log: createLog('silent') })
  t.after(async () => {
    await clean(runtime)
    await runtime.close()
  })
  const old = server()
  await makeOld(scene, ownerId, old, 29_871)
  const [instance] = await runtime.instances.see([old])
  assert.deepEqual(instance!.endpoints, { 8080: { host: '127.0.0.1', port: 29_871 } })
  await lead(scene, old, [instance!])
  await answersItself(scene, old)
  // Later instances on that network are published too, like the old one.
  const next = { ...old, revision: newId() }
  const [published] = await start(runtime, next)
  assert.equal(published!.endpoints[8080]!.host, '127.0.0.1')
  assert.notEqual(published!.endpoints[8080]!.port, 29_871)
  await lead(scene, next, [published!])
  await runtime.instances.retire(old, next.revision, 0, signal())
  assert.equal(await ask(scene, next), old.serviceId)
  await runtime.instances.retire(old, null, 0, signal())
  const later = createDockerRuntime({ ownerId, log: createLog('silent') })
  const [direct] = await start(later, { ...old, revision: newId() })
  assert.match(direct!.endpoints[8080]!.host, /^10\./)
  await lead(scene, old, [direct!])
  assert.equal(await ask(scene, old), old.serviceId)
  await later.close()
})
