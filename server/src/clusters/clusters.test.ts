import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { newId } from '../lib/ids.ts'
import { createFakeRuntime } from '../runtimes/fake/fake.ts'
import type { Desired, Task } from '../runtimes/runtime.ts'
import { migrate } from '../store/database.ts'
import { learnCapacity, readCapacityFor } from './capacity.ts'
import { createClusters } from './clusters.ts'

const database = await testDatabase()
const runtime = createFakeRuntime({
  ownerId: newId(),
  capacity: { cpuMillicores: 3000, memoryMb: 700, architecture: 'ARM64', limitsVolumes: false },
})
after(() => runtime.close())
const clusters = createClusters({ database, runtime })

const add = async (
  kind: string,
  parentId: string | null,
  spec: object = {},
  organizationId = parentId,
): Promise<string> => {
  const id = newId()
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec) values ($1, $2, $3, $4, $5, $1::uuid::text, $6)`,
    [id, organizationId ?? id, kind, parentId, kind === 'application' ? 'service' : kind, JSON.stringify(spec)],
  )
  return id
}

/** An organization with its default cluster, and an environment on one of its clusters. */
const newOrganization = async (): Promise<{ id: string; clusterId: string }> => {
  const id = await add('organization', null)
  return { id, clusterId: await add('cluster', id, { is_default: true }) }
}

const newEnvironment = async (organizationId: string, clusterId: string | null): Promise<string> => {
  const projectId = await add('project', organizationId)
  return add('environment', projectId, clusterId === null ? {} : { cluster_id: clusterId }, organizationId)
}

const signal = AbortSignal.timeout(10_000)
const ids = { environmentId: newId(), serviceId: newId() }
const running = { state: 'running' } as Desired
const code = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (error: { code?: string }) => error.code,
  )

test('the default clusters of all organizations are this machine; on another one nothing runs or can be started', async () => {
  const [one, two] = [await newOrganization(), await newOrganization()]
  const local = await clusters.of(one.clusterId)
  assert.equal(await clusters.of(two.clusterId), local)
  assert.deepEqual([local.runtime, clusters.all()], [runtime, [local]])
  const other = await clusters.of(await add('cluster', one.id, { kubernetes: 'MANAGED' }))
  assert.deepEqual([other.isConnected, await other.capacity()], [false, null])
  assert.notEqual(other.key, local.key)
  assert.equal(await code(other.runtime.converge(ids, running, null, signal)), 'cluster_not_connected')
  assert.equal(await code(other.runtime.converge(ids, { state: 'absent', graceMs: 0 }, null, signal)), 'done')
  assert.equal(await code(other.runtime.run({} as Task, () => {}, signal)), 'cluster_not_connected')
  assert.deepEqual(await other.runtime.observe(), [])
  assert.equal(await code(other.runtime.removeEnvironment(newId(), signal)), 'done')
})

test('what a cluster has is what its engine said last, also while the engine is away', async (t) => {
  const { id, clusterId } = await newOrganization()
  const environmentId = await newEnvironment(id, clusterId)
  await learnCapacity(database, await clusters.of(clusterId))
  const known = { cpuMillicores: 3000, memoryMb: 700, architecture: 'ARM64', limitsVolumes: false }
  assert.deepEqual(await readCapacityFor(database, environmentId), known)
  t.mock.method(runtime, 'capacity', async () => {
    throw new Error('away')
  })
  await assert.rejects(learnCapacity(database, await clusters.of(clusterId)))
  assert.deepEqual(await (await clusters.of(clusterId)).capacity(), known)
  const elsewhere = await newEnvironment(id, await add('cluster', id))
  assert.equal(await readCapacityFor(database, elsewhere), null)
})

const undo = [
  'drop trigger service_placed on service_state',
  'drop trigger release_placed on release',
  'drop trigger outside_port_placed on outside_port',
  'drop function place_service, place_release, place_outside_port, cluster_of_service, cluster_of_environment',
  'drop index image_content',
  'alter table image add primary key (content_key)',
  ...['service_state', 'release', 'outside_port', 'image'].map(
    (table) => `alter table ${table} drop column cluster_id`,
  ),
  'drop table cluster_capacity',
  `delete from migration where name like '0018-%'`,
]

test('rows of a data directory from before get the cluster of their environment, else the default one', async () => {
  const { id: organizationId, clusterId } = await newOrganization()
  const other = await add('cluster', organizationId)
  const places = [
    [await newEnvironment(organizationId, other), other],
    [await newEnvironment(organizationId, clusterId), clusterId],
    [await newEnvironment(organizationId, null), clusterId],
  ] as const
  for (const statement of undo) await database.query(statement)
  const services: [string, string][] = []
  for (const [environmentId, expected] of places) {
    const id = await add('application', environmentId, {}, organizationId)
    services.push([id, expected])
    await database.query(
      `insert into service_state (service_id, environment_id, organization_id, kind) values ($1, $2, $3, 'application')`,
      [id, environmentId, organizationId],
    )
    await database.query(`insert into outside_port (protocol, port, service_id) values ('TCP', $1, $2)`, [
      30_000 + services.length,
      id,
    ])
  }
  const gone = newId()
  for (const [id] of [...services, [gone, clusterId]])
    await database.query(
      `insert into release (id, organization_id, service_id, deployment_id, image, workload, sealed_env, hash)
       values (gen_random_uuid(), $1, $2, gen_random_uuid(), 'image', '{}', 'x', 'x')`,
      [organizationId, id],
    )
  await database.query(
    `insert into image (content_key, organization_id, reference, image_id) values ('a', $1, 'x', 'x'), ('b', null, 'x', 'x')`,
    [organizationId],
  )
  assert.deepEqual(await migrate(database), ['0018-clusters.sql'])
  for (const table of ['service_state', 'outside_port', 'release'])
    for (const [id, expected] of services)
      assert.deepEqual(
        await database.query(`select cluster_id as id from ${table} where service_id = $1`, [id]),
        [{ id: expected }],
        table,
      )
  assert.deepEqual(await database.query('select cluster_id as id from release where service_id = $1', [gone]), [
    { id: clusterId },
  ])
  assert.deepEqual(
    await database.query(
      `select content_key as key, cluster_id as id from image where content_key in ('a', 'b') order by 1`,
    ),
    [
      { key: 'a', id: clusterId },
      { key: 'b', id: null },
    ],
  )
})
