/**
 * Two clusters, one of them silent: an instance that dies on the other is restored in time, and nothing on the silent
 * one is changed.
 */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, ask, createTestEngine, createWorld, partsOf, type World } from '../../../test/support/engine.ts'
import { settled } from '../../../test/support/engine-story.ts'
import { createFakeClock, type FakeClock } from '../../../test/support/fake-clock.ts'
import { until } from '../../../test/support/until.ts'
import type { Cluster, Clusters } from '../../clusters/clusters.ts'
import { noBuilder } from '../../clusters/no-runtime.ts'
import { newId } from '../../lib/ids.ts'
import type { Runtime } from '../../runtimes/runtime.ts'
import type { Database } from '../../store/database.ts'
import { createPolicies } from './policies.ts'
import { startReconcilers } from './reconcile.ts'
import { reconcileService } from './service.ts'
import { sweepTasks } from './sweeps.ts'

const power = { off: false, callsLeft: null, lateCut: false }
const database = await testDatabase()

const clusterOf = (key: string, runtime: Runtime): Cluster => ({
  key,
  isConnected: true,
  nodes: null,
  runtime,
  builder: noBuilder,
  ingress: runtime.ingress,
  images: runtime.images,
  capacity: async () => null,
})

/** Two worlds on one database and one router, each a cluster of its own. */
const createScene = async () => {
  const [near, far] = [await createWorld(database), await createWorld(database)]
  far.routes = near.routes
  const clusters = (runtimes: [Runtime, Runtime], all = true): Clusters => {
    const both = [clusterOf(near.clusterId, runtimes[0]), clusterOf(far.clusterId, runtimes[1])]
    return {
      of: async (id) => both.find(({ key }) => key === id)!,
      all: () => (all ? both : []),
      own: both[0]!,
      engines: null,
      openKubernetes: null,
      start: async () => {},
      close: async () => {},
    }
  }
  after(() => Promise.all([near.runtime.close(), far.runtime.close()]))
  return { near, far, clusters }
}

type Scene = Awaited<ReturnType<typeof createScene>>

const deploy = async ({ near, far, clusters }: Scene, counts: [number, number]): Promise<[string[], string[]]> => {
  const engine = createTestEngine(near, {}, { clusters: clusters([near.runtime, far.runtime], false) })
  await engine.engine.start()
  const addAll = async (world: World, count: number): Promise<string[]> => {
    const ids = await Promise.all(Array.from({ length: count }, () => addService(world, {}, 'container')))
    await ask(
      engine,
      world,
      'DEPLOY',
      ids.map((id) => ({ id })),
    )
    return ids
  }
  const ids: [string[], string[]] = [await addAll(near, counts[0]), await addAll(far, counts[1])]
  for (const id of ids.flat()) assert.equal(await settled(engine, near, id, 60_000), 'DEPLOYED')
  await until(async () => (await database.query(`select from deployment where state = 'RUNNING'`)).length === 0, {
    what: 'the end of the deployments',
  })
  await engine.engine.stop()
  // From now on each is managed under its own key.
  await database.query(`update node set spec = '{}' where kind = 'cluster'`)
  return ids
}

/** Counts calls in progress to a world with its own times, which the clock does not move. */
const createTraffic = () => {
  let underWay = 0
  const counted = async <T>(work: () => Promise<T>): Promise<T> => {
    underWay += 1
    try {
      return await work()
    } finally {
      underWay -= 1
    }
  }
  const over: Database = {
    ...database,
    query: (text, values) => counted(() => database.query(text, values)),
    transaction: (work) => counted(() => database.transaction(work)),
  }
  return { counted, database: over, isCalm: () => underWay === 0 }
}

/** In steps, each when nothing is in progress: no lease runs out while its renewal is on its way to a real database. */
const advanceCalmly = async (clock: FakeClock, { isCalm }: { isCalm(): boolean }, ms: number): Promise<void> => {
  const calm = () => until(() => clock.rest().then(isCalm), { timeoutMs: 30_000, what: 'what the clock waits for' })
  for (let left = ms; left > 0; left -= 100) {
    await calm()
    await clock.advance(100)
  }
  await calm()
}

const kill = (world: World, ids: readonly string[]): Promise<unknown> =>
  Promise.all(
    ids.map((serviceId) =>
      world.runtime.instances.retire({ ...world.ids, serviceId }, null, 0, AbortSignal.timeout(10_000)),
    ),
  )

const startMs = 1000
/** For calls to an engine that is silent. */
const deadlineMs = 30_000
const statesOf = async (ids: readonly string[]): Promise<string[]> => {
  const rows = await database.query<{ state: string }>(
    'select distinct running_state as state from service_state where service_id = any($1)',
    [ids],
  )
  return rows.map(({ state }) => state)
}

test('a hundred services that die at once are back within 10 s, while another cluster does not answer', async (t) => {
  const scene = await createScene()
  const { near, far, clusters } = scene
  const [ids, farIds] = await deploy(scene, [100, 3])
  const clock = createFakeClock()
  const traffic = createTraffic()
  const back = new Map<string, number>()
  let startedAtMs = 0
  const converge: Runtime['converge'] = async (service, desired, rollout, signal) => {
    await clock.sleep(startMs, signal)
    const converged = await traffic.counted(() => near.runtime.converge(service, desired, rollout, signal))
    assert.ok(!back.has(service.serviceId), 'each is started once')
    back.set(service.serviceId, clock.monotonicMs() - startedAtMs)
    return converged
  }
  let silent = false
  let touched = 0
  const late = (ms: number) => clock.sleep(ms).then(() => Promise.reject(new Error('no answer')))
  const silence = new Proxy(far.runtime, {
    get(target, name, receiver) {
      if (!silent || name === 'watch') return Reflect.get(target, name, receiver)
      if (name === 'ping') return () => late(3000)
      return () => {
        if (['converge', 'removeEnvironment'].includes(String(name))) touched += 1
        return late(deadlineMs)
      }
    },
  })
  const runtimes: [Runtime, Runtime] = [{ ...near.runtime, converge }, silence]
  const parts = { ...partsOf(near, power), clock, database: traffic.database, clusters: clusters(runtimes) }
  const advance = (ms: number): Promise<void> => advanceCalmly(clock, traffic, ms)
  const reconcilers = await startReconcilers(parts, 'a server')
  t.after(async () => {
    const stopped = reconcilers.stop()
    await clock.advance(5000)
    await stopped
  })
  await advance(1000)
  assert.deepEqual([back.size, await statesOf([...ids, ...farIds])], [0, ['RUNNING']])
  silent = true
  startedAtMs = clock.monotonicMs()
  await Promise.all([kill(near, ids), kill(far, farIds)])
  await advance(10_000)
  assert.equal(back.size, 100)
  assert.ok(Math.max(...back.values()) <= 10_000)
  for (const id of ids) assert.equal((await near.runtime.instancesOf(id)).length, 1)
  // Detecting the engine that does not answer takes twelve seconds.
  await advance(2000)
  assert.deepEqual([await statesOf(ids), await statesOf(farIds)], [['RUNNING'], ['UNAVAILABLE']])
  await advance(60_000)
  assert.equal(touched, 0)
  for (const id of farIds) assert.notEqual(near.routes.get(id)?.length ?? 0, 0)
  assert.deepEqual(await statesOf(ids), ['RUNNING'])
  silent = false
  await advance(61_000)
  assert.deepEqual(await statesOf(farIds), ['RUNNING'])
  for (const id of farIds) assert.equal((await far.runtime.instancesOf(id)).length, 1)
})

test('half an answer of an engine sweeps nothing, a whole one only what a deletion was recorded of', async (t) => {
  const scene = await createScene()
  const { near, far, clusters } = scene
  const [[id], [farId]] = await deploy(scene, [1, 1])
  const clock = createFakeClock()
  const traffic = createTraffic()
  let half = true
  const deleted = { ...near.ids, serviceId: newId() }
  const stranger = { ...near.ids, serviceId: newId() }
  await near.database.query(
    `insert into deletion (id, kind, environment_id, cluster) values ($1, 'application', $2, $3)`,
    [deleted.serviceId, near.ids.environmentId, near.clusterId],
  )
  const [seen] = await near.runtime.instancesOf(id!)
  const ended: string[] = []
  const runtime: Runtime = {
    ...near.runtime,
    async owned() {
      if (half) throw new Error('the engine told of the instances only')
      const owned = await near.runtime.owned()
      // As on an engine that two clusters share: the second one belongs to the other, the third has no row, the last
      // is deleted.
      const others = [
        { ...seen!, serviceId: farId! },
        { ...seen!, ...stranger },
        { ...seen!, ...deleted },
      ]
      return { ...owned, instances: [...owned.instances, ...others] }
    },
    async converge({ serviceId }) {
      ended.push(serviceId)
      return { instances: [], refused: [] }
    },
  }
  const parts = {
    ...partsOf(near, power),
    clock,
    database: traffic.database,
    clusters: clusters([runtime, far.runtime]),
  }
  const reconcilers = await startReconcilers(parts, 'a server')
  t.after(() => reconcilers.stop())
  const minute = (): Promise<void> => advanceCalmly(clock, traffic, 61_000)
  await minute()
  assert.deepEqual(ended, [])
  half = false
  await minute()
  await until(() => ended.length > 0, { what: 'the sweep' })
  assert.deepEqual(ended, [deleted.serviceId])
  assert.equal((await far.runtime.instancesOf(farId!)).length, 1)
})

test('what the engine of a cluster says of the services of another one is not believed', async (t) => {
  const scene = await createScene()
  const { near, far, clusters } = scene
  const [[id]] = await deploy(scene, [1, 0])
  const routes = near.routes.get(id!)
  assert.equal(routes?.[0]?.state, 'up')
  const parts = { ...partsOf(near, power), clusters: clusters([near.runtime, far.runtime]) }
  const [instance] = await near.runtime.observe([{ ...near.ids, serviceId: id! }])
  const said = { ...instance!, endpoints: { 8080: { host: '203.0.113.9', port: 80 } } }
  t.mock.method(far.runtime, 'observe', async () => [said])
  const signal = AbortSignal.timeout(10_000)
  const cluster = await parts.clusters.of(far.clusterId)
  await reconcileService(parts, cluster, createPolicies(parts), id!, signal)
  assert.deepEqual(near.routes.get(id!), routes)
  const ended = t.mock.method(far.runtime, 'endTask', async () => {})
  const owned = { instances: [{ ...said, taskId: newId() }], environments: [], volumes: [] }
  await sweepTasks(parts, cluster, owned, signal)
  assert.equal(ended.mock.callCount(), 0)
})
