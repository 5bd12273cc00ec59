import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, createWorld, partsOf } from '../../../test/support/engine.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { readUnknown } from '../../clusters/lines/rows.ts'
import { localKey } from '../../clusters/local.ts'
import { newId } from '../../lib/ids.ts'
import type { Owned } from '../../runtimes/owned.ts'
import type { Instance, ServiceKey, TaskKey } from '../../runtimes/runtime.ts'
import { taskIdOf } from '../tasks/ids.ts'
import { deleteOrphans, listOrphans, orphansIn } from './orphans.ts'
import { finishDeletions, judgeIds, readPending, servicesIn, sweepDeleted, sweepTasks } from './sweeps.ts'

const database = await testDatabase()
const world = await createWorld(database)
const parts = partsOf(world, { off: false, callsLeft: null, lateCut: false })
const signal = new AbortController().signal
after(() => world.runtime.close())

/** A cluster that records removals, and fails for one object. */
const createCluster = (bad = 'nothing', key: string = localKey) => {
  const done: string[] = []
  const artifacts: ServiceKey['artifact'][] = []
  const doing = async (what: string): Promise<void> => {
    if (what.endsWith(bad)) throw new Error(`no ${bad}`)
    done.push(what)
  }
  const cluster = standIn<Cluster>({
    key,
    runtime: {
      endTask: ({ taskId }: TaskKey) => doing(`task ${taskId}`),
      converge: ({ serviceId, artifact }: ServiceKey) => {
        artifacts.push(artifact)
        return doing(`service ${serviceId}`)
      },
      removeEnvironment: (id: string) => doing(`environment ${id}`),
    },
    ingress: { sharesPorts: true, unpublish: (id: string) => doing(`route ${id}`) },
  })
  return { cluster, done, artifacts }
}

const instance = (more: Partial<Instance> = {}): Instance =>
  standIn<Instance>({
    serviceId: newId(),
    environmentId: newId(),
    name: 'i',
    state: 'running',
    startedAt: null,
    ...more,
  })

const ownedOf = (more: Partial<Owned>): Owned => ({ instances: [], environments: [], volumes: [], ...more })

/** As a pass of the reconciler does. */
const pass = async (cluster: Cluster, owned: Owned, published: readonly string[] = []): Promise<void> => {
  const pending = await readPending(parts, cluster.key)
  const judged = await judgeIds(parts, cluster.key, [...servicesIn(owned).keys(), ...owned.environments, ...published])
  await sweepTasks(parts, cluster, owned, signal)
  await listOrphans(parts, cluster, owned, judged.unknown)
  await sweepDeleted(parts, cluster, owned, published, judged, signal)
  await finishDeletions(parts, cluster, pending, owned, published, signal)
}

const orphanIds = async (): Promise<string[]> =>
  (await database.query<{ id: string }>('select id from orphan order by kind, id')).map(({ id }) => id)

test('what no row stands for is listed with its volumes and their size, and never removed', async () => {
  const [environmentId, organizationId] = [newId(), newId()]
  const found = instance({ environmentId, organizationId, name: 'shop-0' })
  const volume = {
    id: newId(),
    serviceId: found.serviceId,
    environmentId,
    sizeGb: 4,
    createdAt: '2026-01-02T03:04:05Z',
  }
  const owned = ownedOf({ instances: [found], environments: [environmentId], volumes: [volume] })
  const { cluster, done } = createCluster()
  await pass(cluster, owned, [found.serviceId])
  assert.deepEqual(done, [])
  const rows = await database.query('select id, kind, organization_id, found from orphan order by kind')
  const seen = {
    instances: [{ name: 'shop-0', state: 'running' }],
    volumes: [{ id: volume.id, size_gb: 4 }],
    created_at: '2026-01-02T03:04:05Z',
  }
  assert.deepEqual(rows, [
    {
      ...{ id: environmentId, kind: 'ENVIRONMENT', organization_id: organizationId },
      found: { instances: [], volumes: [], created_at: '2026-01-02T03:04:05Z' },
    },
    { id: found.serviceId, kind: 'SERVICE', organization_id: organizationId, found: seen },
  ])
  await pass(cluster, ownedOf({}))
  assert.deepEqual(await orphanIds(), [])
})

test('while nothing may be changed, a version that was never deployed is listed, even if another controller rolls it out', async () => {
  const serviceId = await addService(world, {}, 'container')
  const found = instance({ serviceId, environmentId: world.ids.environmentId, revision: newId() })
  const owned = ownedOf({ instances: [found] })
  const { cluster, done } = createCluster()
  const rolling = standIn<Cluster['runtime']>({ rollsItself: true })
  const conflict = { code: 'older_database', message: 'older' } as const
  const held = {
    ...cluster,
    runtime: rolling,
    line: standIn<NonNullable<Cluster['line']>>({ conflict: () => conflict }),
  }
  await listOrphans(parts, held, owned, new Set())
  assert.deepEqual(await database.query('select id, kind from orphan'), [{ id: serviceId, kind: 'VERSION' }])
  // It is this database's again.
  await pass(cluster, owned)
  assert.deepEqual([await orphanIds(), done], [[], []])
})

test('a deletion is recorded with its row, in a cascade too, and is removed from its record until nothing is left', async () => {
  const project = newId()
  const [environmentId, serviceId] = [newId(), newId()]
  const { organizationId } = world.ids
  const node = (id: string, kind: string, scope: string, parent: string, spec: object) =>
    database.query(
      `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec) values ($1, $2, $3, $4, $5, $6, $7)`,
      [id, organizationId, kind, parent, scope, `${kind}-${id}`, JSON.stringify(spec)],
    )
  await node(project, 'project', 'project', organizationId, {})
  await node(environmentId, 'environment', 'environment', project, { cluster_id: world.clusterId })
  await node(serviceId, 'container', 'service', environmentId, {})
  await database.query('delete from node where id = $1', [project])
  const owned = ownedOf({ instances: [instance({ serviceId, environmentId })], environments: [environmentId] })
  const { cluster, done } = createCluster(serviceId)
  const pendingIds = async () => (await readPending(parts, localKey)).map((each) => each.serviceId).sort()
  assert.deepEqual(await pendingIds(), [environmentId, serviceId].sort())
  // The engine fails at first.
  await pass(cluster, owned)
  assert.deepEqual(done, [`environment ${environmentId}`])
  assert.deepEqual(await pendingIds(), [environmentId, serviceId].sort())
  const willing = createCluster()
  await pass(willing.cluster, ownedOf({ instances: owned.instances }))
  assert.deepEqual(willing.done, [`service ${serviceId}`])
  await pass(willing.cluster, ownedOf({}))
  assert.deepEqual(await pendingIds(), [])
  // An object that appears again later is still known to be deleted.
  await pass(willing.cluster, owned)
  assert.equal(willing.done.filter((each) => each === `service ${serviceId}`).length, 2)
  assert.deepEqual(await orphanIds(), [])
})

test('an orphan removed from one cluster is still an orphan on another one that has its id', async () => {
  const [elsewhere, serviceId, environmentId, deploymentId] = [newId(), newId(), newId(), newId()]
  const found = instance({ serviceId, environmentId })
  const taskOwner = await addService(world, {}, 'job')
  const task = instance({ serviceId: taskOwner, environmentId, taskId: taskIdOf(deploymentId, taskOwner) })
  // The owner of an engine chooses its answers.
  const claimed = [found, instance({ serviceId: deploymentId, environmentId })]
  const theirs = createCluster('nothing', elsewhere)
  await pass(theirs.cluster, ownedOf({ instances: claimed }))
  const asked = [serviceId, deploymentId].sort()
  const removeOn = async (cluster: string) =>
    (await database.transaction((tx) => deleteOrphans(tx, cluster, asked))).sort()
  assert.deepEqual(await removeOn(elsewhere), asked)
  const ours = createCluster()
  const owned = ownedOf({ instances: [found, task] })
  await pass(ours.cluster, owned)
  assert.deepEqual(ours.done, [])
  assert.deepEqual(await readUnknown(database, localKey, owned, true), [serviceId])
  await pass(theirs.cluster, ownedOf({ instances: claimed }))
  assert.deepEqual(
    theirs.done.sort(),
    asked.map((id) => `service ${id}`),
  )
  // Here it is removed by a request for this cluster, which other clusters cannot take back.
  assert.deepEqual(await removeOn(localKey), [serviceId])
  await pass(theirs.cluster, ownedOf({ instances: claimed }))
  assert.deepEqual(await removeOn(elsewhere), [])
  await pass(ours.cluster, owned)
  assert.deepEqual(ours.done, [`service ${serviceId}`])
})

test('executions are ended only if it is known that they are over', async () => {
  const serviceId = await addService(world, {}, 'job')
  const [ended, running] = [newId(), newId()]
  const { organizationId, environmentId } = world.ids
  for (const [id, state, number] of [
    [ended, 'FAILED', 1],
    [running, 'RUNNING', 2],
  ] as const)
    await database.query(
      `insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state)
       values ($1, $2, $3, $4, 'DEPLOY', 'API', 'test', $5)`,
      [id, organizationId, environmentId, number, state],
    )
  const taskOf = (taskId: string) => instance({ serviceId, environmentId, taskId })
  const over = taskIdOf(ended, serviceId)
  // Runs without a deployment row, as after a restore, one that ended, and one that runs.
  const instances = ['x', taskIdOf(newId(), serviceId), over, taskIdOf(running, serviceId)].map(taskOf)
  const { cluster, done } = createCluster()
  await pass(cluster, ownedOf({ instances }))
  assert.deepEqual(done, [`task ${over}`])
})

test('a deletion says what the service was; what was removed as an orphan may have been anything', async () => {
  const kinds = [
    ['container', 'image'],
    ['job', 'image'],
    ['helm', 'chart'],
    ['argocd_app', 'app'],
    ['ORPHAN', undefined],
  ] as const
  for (const [kind, artifact] of kinds) {
    const [serviceId, environmentId] = [newId(), newId()]
    const sql = 'insert into deletion (id, kind, environment_id, cluster) values ($1, $2, $3, $4)'
    await database.query(sql, [serviceId, kind, environmentId, localKey])
    const { cluster, artifacts } = createCluster()
    await pass(cluster, ownedOf({ instances: [instance({ serviceId, environmentId })] }))
    assert.deepEqual(artifacts, [artifact], kind)
    await database.query('update deletion set done_at = clock_timestamp() where id = $1', [serviceId])
  }
})

test('a service, a route or a network that cannot be removed keeps none of the others', async () => {
  const ids = [newId(), newId(), newId()]
  const environments = [newId(), newId()]
  for (const id of [...ids, ...environments])
    await database.query(
      `insert into deletion (id, kind, environment_id, cluster) values ($1, 'container', $1, 'local')`,
      [id],
    )
  const [bad] = ids
  const { cluster, done } = createCluster(bad)
  await pass(cluster, ownedOf({ instances: ids.map((serviceId) => instance({ serviceId })), environments }), [
    bad!,
    ids[1]!,
  ])
  const rest = ids.slice(1).map((id) => `service ${id}`)
  assert.deepEqual(done, [...rest, `route ${ids[1]}`, ...environments.map((id) => `environment ${id}`)])
})

test('however much a cluster lists, its orphans are found in time linear in it', () => {
  const count = 40_000
  const instances = Array.from({ length: count }, () => instance({ name: 'i' }))
  const environments = instances.map(({ environmentId }) => environmentId)
  const volumes = instances.map(({ serviceId, environmentId }) => ({ id: newId(), serviceId, environmentId }))
  const unknown = new Set([...environments, ...instances.map(({ serviceId }) => serviceId)])
  const begun = performance.now()
  assert.equal(orphansIn(ownedOf({ instances, environments, volumes }), unknown).length, 2 * count)
  // Quadratic, it would take minutes.
  assert.ok(performance.now() - begun < 5000, `${performance.now() - begun} ms`)
})
