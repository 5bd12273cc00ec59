import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, ask, createTestEngine, createWorld, type World } from '../../../test/support/engine.ts'
import { settled } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'
import type { Cluster, Clusters } from '../../clusters/clusters.ts'
import { noBuilder } from '../../clusters/no-runtime.ts'
import type { Runtime } from '../../runtimes/runtime.ts'

const database = await testDatabase()

/** Answers nothing, ever. */
const silent = (runtime: Runtime): Runtime =>
  new Proxy(runtime, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' && name !== 'close' ? () => new Promise(() => {}) : value
    },
  })

test('deployments of a cluster that does not answer take its own places only', async () => {
  const worlds = [await createWorld(database), await createWorld(database)] as const
  const [near, far] = worlds
  after(() => Promise.all(worlds.map(({ runtime }) => runtime.close())))
  const clusterOf = (key: string, runtime: Runtime): Cluster => {
    const { ingress, images } = runtime
    return {
      key,
      isConnected: true,
      nodes: null,
      runtime,
      builder: noBuilder,
      ingress,
      images,
      capacity: async () => null,
    }
  }
  const clusters: Clusters = {
    of: async (id) => (id === far.clusterId ? clusterOf(id, silent(far.runtime)) : clusterOf('local', near.runtime)),
    all: () => [],
    own: clusterOf('local', near.runtime),
    engines: null,
    openKubernetes: null,
    start: async () => {},
    close: async () => {},
  }
  const engine = createTestEngine(near, {}, { clusters, concurrency: 1 })
  after(() => engine.engine.stop())
  const deploy = async (world: World): Promise<string> => {
    const id = await addService(world, {}, 'container')
    await ask(engine, world, 'DEPLOY', [{ id }])
    return id
  }
  const states = async (world: World): Promise<string[]> => {
    const rows = await database.query<{ state: string }>(
      'select state from deployment where environment_id = $1 order by seq',
      [world.ids.environmentId],
    )
    return rows.map(({ state }) => state)
  }
  const neighbour = await createWorld(database)
  after(() => neighbour.runtime.close())
  await database.query(`update node set spec = jsonb_build_object('cluster_id', $2::text) where id = $1`, [
    neighbour.ids.environmentId,
    far.clusterId,
  ])
  await deploy(far)
  await deploy(neighbour)
  await database.query('update deployment set organization_id = $2 where environment_id = $1', [
    neighbour.ids.environmentId,
    far.ids.organizationId,
  ])
  await database.query(`update node set spec = '{}' where id = $1`, [far.clusterId])
  await engine.engine.start()
  await until(async () => (await states(far))[0] === 'RUNNING', { what: 'a deployment that gets no answer' })
  // Another environment of the same cluster waits; none of another cluster does.
  const served = await deploy(near)
  assert.equal(await settled(engine, near, served, 20_000), 'DEPLOYED')
  assert.deepEqual(await states(neighbour), ['QUEUED'])
  assert.deepEqual(await states(far), ['RUNNING'])
})

test('an organization whose deployments take for ever keeps no first one of another from beginning', async () => {
  const apart = await testDatabase()
  const worlds = [await createWorld(apart), await createWorld(apart), await createWorld(apart)] as const
  const [slow, waiting, other] = worlds
  const engine = createTestEngine(slow, {}, { concurrency: 1 })
  after(async () => {
    await engine.engine.stop()
    await Promise.all(worlds.map(({ runtime }) => runtime.close()))
  })
  slow.images.set('c1', 'hang')
  const deploy = async (world: World, { organizationId } = world.ids): Promise<void> => {
    const id = await addService(world)
    await ask(engine, { ...world, ids: { ...world.ids, organizationId } }, 'DEPLOY', [{ id, commitId: 'c1' }])
  }
  const stateIn = async ({ ids }: World): Promise<string | undefined> => {
    const [row] = await apart.query<{ state: string }>('select state from deployment where environment_id = $1', [
      ids.environmentId,
    ])
    return row?.state
  }
  await deploy(slow)
  await deploy(waiting, slow.ids)
  await engine.engine.start()
  await until(async () => (await stateIn(slow)) === 'RUNNING', { what: 'the slow deployment' })
  await deploy(other)
  await until(async () => (await stateIn(other)) === 'RUNNING', { what: 'the first one of another organization' })
  assert.equal(await stateIn(waiting), 'QUEUED')
})
