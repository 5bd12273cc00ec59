import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, ask, createTestEngine, createWorld, partsOf } from '../../../test/support/engine.ts'
import { until } from '../../../test/support/until.ts'
import type { BuildRequest } from '../../builds/builder.ts'
import { createImageStore } from '../../builds/image-store.ts'
import { type Cluster, createClusters } from '../../clusters/clusters.ts'
import { newId } from '../../lib/ids.ts'
import { usualKeeping } from '../../limits/keeping.ts'
import type { DeploymentRequest } from '../deployments.ts'
import { readUnneeded, removeUnneeded } from './built-images.ts'
import { cleanUp } from './clean-up.ts'
import { keepAll } from './keep.ts'
import { deleteOldReleases } from './releases.ts'

const idOf = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`
const never = new AbortController().signal

/** A world whose builds leave images on its engine, of which some run and cannot be removed. */
const createScene = async (keeping: Partial<typeof usualKeeping> = {}) => {
  const database = await testDatabase()
  const world = await createWorld(database)
  const store = createImageStore(database)
  /** Images on the engine. */
  const images = new Set<string>()
  const running = new Set<string>()
  const runtime = {
    ...world.runtime,
    images: { ...world.runtime.images, isHeld: async (_: string, reference: string) => images.has(reference) },
  }
  const builder: Cluster['builder'] = {
    build: async () => assert.fail('builds do not go through the cluster here'),
    built: async () => null,
    images: async () =>
      [...images].map((Id) => ({ Id, ParentId: '', RepoTags: [`slipway/o/s:${Id.slice(7, 23)}`], Size: 1000 })),
    async forget(_organizationId, ids) {
      for (const id of ids) if (!running.has(id)) images.delete(id)
      return ids.filter((id) => running.has(id))
    },
  }
  const clusters = createClusters({ database, runtime, builder })
  const usual = partsOf(world, { off: false, callsLeft: null, lateCut: false })
  const build = async (request: BuildRequest) => {
    const { contentKey, skipped } = await usual.builder.build(request, () => {}, never)
    const found = await store.find(request, contentKey)
    if (found !== null && images.has(found.imageId)) return { ...found, contentKey, skipped }
    const imageId = idOf(contentKey)
    images.add(imageId)
    await store.save(request, contentKey, { reference: imageId, imageId })
    return { reference: imageId, imageId, contentKey, skipped }
  }
  const kept = { ...usualKeeping, ...keeping }
  const more = { clusters, builder: { ...usual.builder, build }, keeping: kept }
  const main = createTestEngine(world, {}, more)
  const act = async (
    services: DeploymentRequest['services'],
    action: DeploymentRequest['action'] = 'DEPLOY',
  ): Promise<string> => {
    const { deploymentId } = await ask(main, world, action, services)
    return until(
      async () => {
        const [row] = await database.query<{ state: string }>('select state from deployment where id = $1', [
          deploymentId,
        ])
        return row !== undefined && !['QUEUED', 'RUNNING'].includes(row.state) && row.state
      },
      { what: 'the end of the deployment', timeoutMs: 20_000 },
    )
  }
  const deploy = (id: string, commitId: string): Promise<string> => act([{ id, commitId }])
  const releasesOf = (id: string) =>
    database.query<{ id: string; image: string; commit: string }>(
      `select id, image, commit ->> 'git_commit_id' as commit from release where service_id = $1 order by created_at`,
      [id],
    )
  const rows = async (): Promise<Record<string, number>> => {
    const tables = ['release', 'image', 'deployment', 'deployment_service', 'deployment_step', 'deployment_log']
    const counts = await Promise.all(
      tables.map(async (table) => {
        const [row] = await database.query<{ count: number }>(`select count(*)::int as count from ${table}`)
        return [table, row!.count] as const
      }),
    )
    return { ...Object.fromEntries(counts), images: images.size }
  }
  const cluster = await clusters.of(world.clusterId)
  return { database, world, main, clusters, cluster, images, running, act, deploy, releasesOf, rows, kept, store }
}

type Scene = Awaited<ReturnType<typeof createScene>>

const start = async ({ main, world }: Scene): Promise<void> => {
  await main.engine.start()
  after(async () => {
    await main.engine.stop()
    await world.runtime.close()
  })
}

test('200 deployments of a service leave as much as the first ones, and every listed release can run again', async (t) => {
  const scene = await createScene({ deployments: 10 })
  await start(scene)
  const id = await addService(scene.world)
  const began = performance.now()
  /** When the engine has been tidied up too. */
  const settled = async () => {
    await until(() => scene.images.size <= scene.kept.releases, { what: 'the end of old images', timeoutMs: 20_000 })
    return scene.rows()
  }
  for (let count = 1; count <= 20; count += 1) assert.equal(await scene.deploy(id, `commit ${count}`), 'SUCCEEDED')
  const early = await settled()
  for (let count = 21; count <= 200; count += 1) assert.equal(await scene.deploy(id, `commit ${count}`), 'SUCCEEDED')
  const late = await settled()
  t.diagnostic(`200 deployments in ${Math.round(performance.now() - began)} ms leave ${JSON.stringify(late)}`)
  assert.deepEqual(late, early)
  // One more deployment: the last success of the service before those that are kept.
  assert.deepEqual([late.release, late.image, late.images, late.deployment], [10, 10, 10, 11])
  const listed = await scene.releasesOf(id)
  assert.deepEqual(
    listed.map(({ commit }) => commit),
    Array.from({ length: 10 }, (_, index) => `commit ${191 + index}`),
  )
  const builds = scene.world.builds.length
  for (const release of listed.slice(0, -1)) {
    const releaseId = await scene.main.engine.releaseFor(scene.database, id, release.id)
    assert.equal(await scene.act([{ id, releaseId }]), 'SUCCEEDED')
    const [instance] = await scene.world.runtime.observe([{ serviceId: id, environmentId: newId() }])
    const [now] = await scene.database.query<{ image: string }>(
      'select r.image from service_state s join release r on r.id = s.current_release_id where s.service_id = $1',
      [id],
    )
    assert.deepEqual([now!.image, instance!.state], [release.image, 'running'])
  }
  assert.equal(scene.world.builds.length, builds, 'nothing was built again')
  const contents = new Set((await scene.releasesOf(id)).map(({ image }) => image))
  assert.equal(contents.size, 10, 'a rollback repeats a release, which counts once')
})

test('a release that a deployment in the queue wants stays, and a later request finds that the others are gone', async () => {
  const scene = await createScene({ releases: 3 })
  const { database, world, main, deploy, releasesOf, act } = scene
  await start(scene)
  const id = await addService(world)
  for (const commit of ['one', 'two', 'three']) await deploy(id, commit)
  const [first, second] = await releasesOf(id)
  const busy = await addService(world)
  world.images.set('hang', 'hang')
  const hanging = await ask(main, world, 'DEPLOY', [{ id: busy, commitId: 'hang' }])
  const waiting = await ask(main, world, 'DEPLOY', [{ id, releaseId: first!.id }])
  await deleteOldReleases(database, world.ids.environmentId, [id], 1)
  assert.deepEqual(
    (await releasesOf(id)).map(({ commit }) => commit),
    ['one', 'three'],
  )
  await assert.rejects(main.engine.releaseFor(database, id, second!.id), { status: 404 })
  await assert.rejects(ask(main, world, 'DEPLOY', [{ id, releaseId: second!.id }]), { code: 'release_not_usable' })
  await database.transaction((tx) => main.engine.cancel(tx, world.ids.environmentId, {}))
  await until(
    async () =>
      (await database.query(`select from deployment where id = $1 and state = 'CANCELED'`, [hanging.deploymentId]))
        .length > 0,
    { what: 'the cancel', timeoutMs: 20_000 },
  )
  assert.ok(waiting.deploymentId)
  assert.equal(await act([{ id, releaseId: first!.id }]), 'SUCCEEDED')
})

test('a restart does not push an earlier version out, and a rollback of the environment says what is no longer kept', async () => {
  const scene = await createScene({ releases: 2, deployments: 50 })
  const { database, world, main, deploy, releasesOf, act } = scene
  await start(scene)
  const id = await addService(world)
  await deploy(id, 'one')
  await deploy(id, 'two')
  for (let count = 0; count < 4; count += 1) assert.equal(await act([{ id }], 'RESTART'), 'SUCCEEDED')
  const isTidy = async () => (await releasesOf(id)).map(({ commit }) => commit).join() === 'one,two,two'
  await until(isTidy, { what: 'the first and the newest of what was repeated', timeoutMs: 20_000 })
  const { environmentId } = world.ids
  const at = (execution: number) => main.engine.releasesOf(database, environmentId, `${environmentId}-${execution}`)
  assert.equal((await at(1)).length, 1, 'the first deployment')
  await assert.rejects(at(3), { code: 'nothing_to_roll_back' }, 'a restart of the current version')
  await deploy(id, 'three')
  assert.equal((await at(4)).length, 1, 'a restart whose release another one stands for')
  await assert.rejects(at(1), { code: 'release_not_usable', message: /no longer kept/ })
})

test("images of deleted services and of failed deployments go; what runs, is shared or is another engine's stays", async () => {
  const scene = await createScene({ releases: 1 })
  const { database, world, deploy, images, running, act, cluster, store } = scene
  await start(scene)
  const [first, second] = [await addService(world), await addService(world)]
  await deploy(first, 'shared')
  await deploy(second, 'shared')
  await deploy(first, 'alone')
  const gone = async (...commits: string[]): Promise<void> => {
    await until(() => commits.every((commit) => !images.has(idOf(commit))), {
      what: `the end of ${commits.join()}`,
      timeoutMs: 20_000,
    })
  }
  // Its instance is still there, whatever the reason.
  running.add(idOf('alone'))
  await deploy(first, 'next')
  const elsewhere = { organizationId: world.ids.organizationId, clusterId: newId() }
  await store.save(elsewhere, 'theirs', { reference: idOf('theirs'), imageId: idOf('theirs') })
  await removeUnneeded(database, cluster, null, never)
  assert.ok(images.has(idOf('shared')) && images.has(idOf('alone')))
  assert.equal(await store.owns(world.ids.organizationId, idOf('alone')), true, 'it is tried again')
  assert.equal(await store.owns(world.ids.organizationId, idOf('theirs')), true)
  running.clear()
  await removeUnneeded(database, cluster, null, never)
  await gone('alone')
  await act([{ id: second }], 'DELETE')
  await gone('shared')
  // Built, and never part of a release.
  await store.save({ organizationId: world.ids.organizationId, clusterId: world.clusterId }, 'failed', {
    ...{ reference: idOf('failed'), imageId: idOf('failed') },
  })
  images.add(idOf('failed'))
  await removeUnneeded(database, cluster, null, never)
  await gone('failed')
  assert.deepEqual([...images], [idOf('next')])
})

test('an image that a deployment in progress has built or found stays until it has ended', async () => {
  const { database, world, store, cluster } = await createScene()
  const owner = { organizationId: world.ids.organizationId, clusterId: world.clusterId }
  const image = { reference: idOf('built'), imageId: idOf('built') }
  await database.query(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state, fence)
     values ($1, $2, $3, 1, 'DEPLOY', 'API', 'test', 'RUNNING', 1)`,
    [newId(), world.ids.organizationId, world.ids.environmentId],
  )
  await store.save(owner, 'built', image)
  const unneeded = async () => (await readUnneeded(database, cluster.key, null)).length
  assert.equal(await unneeded(), 0)
  // Its process died: it waits for another one, or another one has begun again.
  await database.query(`update deployment set state = 'QUEUED'`)
  assert.equal(await unneeded(), 0)
  await database.query(`update deployment set state = 'RUNNING', started_at = clock_timestamp()`)
  assert.equal(await unneeded(), 0)
  await database.query(`update deployment set state = 'FAILED'`)
  assert.equal(await unneeded(), 1)
  await world.runtime.close()
})

test('images of a deleted organization go, which had its own row for the engine of this machine', async () => {
  const { database, world, store, images, cluster } = await createScene()
  await store.save({ organizationId: world.ids.organizationId, clusterId: world.clusterId }, 'left', {
    ...{ reference: idOf('left'), imageId: idOf('left') },
  })
  images.add(idOf('left'))
  await database.query('delete from node where id = $1', [world.ids.organizationId])
  await removeUnneeded(database, cluster, null, never)
  assert.deepEqual([...images], [])
  assert.equal(await store.owns(world.ids.organizationId, idOf('left')), false)
  await world.runtime.close()
})

test('the hourly turn does what processes that died have left, of deleted services and environments too', async () => {
  const scene = await createScene({ releases: 2, deployments: 3 })
  const { database, world, deploy, releasesOf, act, kept } = scene
  await start(scene)
  const [id, deleted] = [await addService(world), await addService(world)]
  for (const commit of ['one', 'two', 'three', 'four']) await deploy(id, commit)
  await deploy(deleted, 'one')
  await act([{ id: deleted }], 'DELETE')
  await scene.main.engine.stop()
  // What a process that died did not delete.
  await database.query(
    `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash, cluster_id)
     select gen_random_uuid(), organization_id, s, gen_random_uuid(), image, workload, sealed_env, hash || n, cluster_id
     from (select * from release where service_id = $1 limit 1) r, unnest(array[$1, $2]::uuid[]) s, generate_series(1, 5) n`,
    [id, deleted],
  )
  await database.query(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state, finished_at)
     select gen_random_uuid(), $1, $2, 100 + n, 'DEPLOY', 'API', 'test', 'FAILED', clock_timestamp() - interval '2 days'
     from generate_series(1, 250) n`,
    [world.ids.organizationId, newId()],
  )
  await keepAll({ database, keeping: kept }, never)
  const left = await releasesOf(id)
  assert.deepEqual([left.length, await releasesOf(deleted)], [3, []], 'two that ran, and the last one')
  const [row] = await database.query<{ here: number; gone: number }>(
    `select count(*) filter (where environment_id = $1)::int as here,
       count(*) filter (where environment_id <> $1)::int as gone from deployment`,
    [world.ids.environmentId],
  )
  assert.deepEqual(row, { here: 4, gone: 0 }, 'the newest three, and that of a release that is kept')
})

test('a clean-up lists what goes and why with its bytes, and then removes exactly that of one organization', async () => {
  const scene = await createScene({ releases: 50, deployments: 50 })
  const { database, world, deploy, images, releasesOf, cluster } = scene
  await start(scene)
  const id = await addService(world)
  for (const commit of ['one', 'two', 'three', 'four']) await deploy(id, commit)
  const parts = {
    database,
    clusters: { ...scene.clusters, all: () => [cluster] },
    keeping: { ...usualKeeping, releases: 2, deployments: 1 },
  }
  const { organizationId } = world.ids
  const dry = await cleanUp(parts, { organizationId, isDryRun: true }, never)
  const shown = (kind: string) => dry.filter((item) => item.kind === kind)
  const all = await releasesOf(id)
  assert.deepEqual(
    shown('RELEASE').map(({ name, serviceId }) => [name, serviceId]),
    all.slice(0, 2).map((release) => [release.id, id]),
  )
  assert.deepEqual(
    new Map(shown('IMAGE').map(({ name, bytes }) => [name, bytes])),
    new Map(all.slice(0, 2).map(({ image }) => [image, 1000])),
  )
  assert.ok(dry.every(({ reason, bytes }) => reason !== '' && bytes > 0))
  assert.deepEqual([images.size, (await releasesOf(id)).length], [4, 4], 'nothing was removed')
  assert.deepEqual(await cleanUp(parts, { organizationId: newId(), isDryRun: false }, never), [])
  assert.equal(images.size, 4)
  const done = await cleanUp(parts, { organizationId, isDryRun: false }, never)
  const kinds = (items: typeof dry) => items.map(({ kind, name }) => (kind === 'DEPLOYMENTS' ? kind : name)).sort()
  assert.deepEqual(kinds(done), kinds(dry))
  assert.deepEqual(
    [...images].sort(),
    all
      .slice(2)
      .map(({ image }) => image)
      .sort(),
  )
})
