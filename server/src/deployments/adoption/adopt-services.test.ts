/** A database that has lost running services: their records on the cluster restore the rows. */
import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { standIn } from '../../../test/support/stand-in.ts'
import { until } from '../../../test/support/until.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { newId } from '../../lib/ids.ts'
import { readRecord, writeRecord } from '../release/record.ts'
import { currentRelease, openRelease } from '../release/releases.ts'
import { adopt } from './adopt.ts'
import { adoptServices, type FoundService } from './adopt-services.ts'

const api = await startApi()
const { call, database, runtime, engine, parts } = api

/** The server that starts once the rows are restored. */
const next = api.another()
after(() => next.stop())

const stateOf = async (id: string): Promise<Json> => (await call('GET', `/application/${id}/status`)).body

const deployed = /^(RUNNING|.*_ERROR)$/

const deploy = async (id: string): Promise<void> => {
  assert.equal((await call('POST', `/application/${id}/deploy`, { git_commit_id: api.source.head })).status, 202)
  await until(async () => deployed.test((await stateOf(id)).state), { what: 'the deployment' })
  const status = await stateOf(id)
  assert.equal(status.state, 'RUNNING', JSON.stringify(status))
}

const ok = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, JSON.stringify(answer.body))
  return answer.body
}

/** Two services with variables of each kind, a domain, a public port, a stage of their own and a volume. */
const createScene = async () => {
  const place = await newPlace(api)
  const { environmentId, projectId } = place
  const app = await newApplication(api, environmentId, {
    storage: [{ type: 'FAST_SSD', size: 4, mount_point: '/data' }],
  })
  const other = await newApplication(api, environmentId)
  const shared = await ok('POST', `/project/${projectId}/secret`, { key: 'SHARED', value: 'of the project' })
  await ok('POST', `/environment/${environmentId}/secret`, { key: 'TOKEN', value: 'hidden' })
  await ok('POST', `/application/${app.id}/environmentVariable`, { key: 'COLOR', value: 'blue' })
  await ok('POST', `/application/${app.id}/secret/${shared.id}/alias`, { key: 'ALIAS' })
  await ok('POST', `/application/${app.id}/secret/${shared.id}/override`, { value: 'of the service' })
  await ok('POST', `/application/${app.id}/customDomain`, {
    domain: `d-${app.id}.example.com`,
    generate_certificate: false,
  })
  for (const id of [app.id, other.id]) await deploy(id)
  return { ...place, app, other, ids: [app.id, other.id] as string[] }
}

const found = async ({ ids, environmentId }: { ids: string[]; environmentId: string }): Promise<FoundService[]> => {
  const records = await runtime.records(ids.map((serviceId) => ({ serviceId, environmentId })))
  return Promise.all(
    ids.map(async (serviceId) => ({
      ...{ organizationId: api.organizationId, environmentId, serviceId, records: records.get(serviceId) ?? [] },
      running: (await runtime.instancesOf(serviceId)).length,
    })),
  )
}

/** As in a copy of the database from before they existed. */
const lose = async ({ ids, projectId }: { ids: string[]; projectId: string }): Promise<void> => {
  await database.query('delete from node where id = $1', [projectId])
  await database.query(
    'delete from deployment where id in (select deployment_id from deployment_service where service_id = any($1))',
    [ids],
  )
  await database.query('delete from release where service_id = any($1)', [ids])
}

const tables = {
  node: 'select to_jsonb(n) as row from node n where id in ($1, $2, $3, $4) order by id',
  variable: 'select to_jsonb(n) as row from variable n where parent_id in ($1, $2, $3, $4) order by id',
  custom_domain: 'select to_jsonb(n) as row from custom_domain n where service_id in ($1, $2, $3, $4) order by id',
  route: 'select to_jsonb(n) as row from route n where service_id in ($1, $2, $3, $4) order by host',
  release: 'select to_jsonb(n) as row from release n where service_id in ($1, $2, $3, $4) order by id',
  deployment_stage:
    'select to_jsonb(n) as row from deployment_stage n where environment_id in ($1, $2, $3, $4) order by id',
}

const rowsOf = async ({
  ids,
  projectId,
  environmentId,
}: {
  ids: string[]
  projectId: string
  environmentId: string
}) => {
  const rows: Record<string, Json[]> = {}
  for (const [table, sql] of Object.entries(tables))
    rows[table] = (await database.query<{ row: Json }>(sql, [projectId, environmentId, ...ids])).map(({ row }) => row)
  return rows
}

test('services that a database has lost are in it again as they run, and their next deployment finds them', async () => {
  const scene = await createScene()
  const { app, ids } = scene
  const before = await rowsOf(scene)
  const instances = (await runtime.instancesOf(app.id)).map(({ id }) => id)
  const shown = await ok('GET', `/application/${app.id}`)
  const services = await found(scene)
  await engine.stop()
  await lose(scene)
  assert.equal((await call('GET', `/application/${app.id}`)).status, 404)

  const { adopted, left } = await adoptServices(parts, 'local', services)
  assert.deepEqual(left, [])
  assert.deepEqual(adopted.toSorted(), ids.toSorted())
  assert.deepEqual(await rowsOf(scene), before)
  assert.deepEqual({ ...(await ok('GET', `/application/${app.id}`)), updated_at: 0 }, { ...shown, updated_at: 0 })
  const [current] = await database.query<{ id: string }>(
    'select current_release_id as id from service_state where service_id = $1',
    [app.id],
  )
  const opened = (await openRelease(database, parts.sealer, current!.id))!
  const { COLOR, TOKEN, ALIAS, SHARED } = opened.environment.env
  assert.deepEqual(
    { COLOR, TOKEN, ALIAS, SHARED },
    { COLOR: 'blue', TOKEN: 'hidden', ALIAS: 'of the service', SHARED: 'of the service' },
  )

  await next.start()
  const status = await stateOf(app.id)
  assert.equal(status.state, 'RUNNING')
  assert.equal(status.service_deployment_status, 'UP_TO_DATE')
  await deploy(app.id)
  assert.equal((await runtime.instancesOf(app.id)).length, instances.length)
})

test('a service with more variables than a record holds is adopted without them, and deployed however many there are', async () => {
  const scene = await createScene()
  await database.query(
    `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
     select gen_random_uuid(), $1, $2, 'PROJECT', 'LARGE_' || n, repeat(md5(n::text), 2000), false, 'VALUE'
     from generate_series(1, 40) n`,
    [api.organizationId, scene.projectId],
  )
  const [{ records: before }] = (await found(scene)) as [FoundService]
  assert.match(
    JSON.stringify(
      (
        await readRecord(parts.sealer, { organizationId: api.organizationId, serviceId: scene.app.id }, before[0]!)
      ).reveal().rows,
    ),
    /COLOR/,
  )
  const { other } = scene
  const { rows } = (
    await readRecord(
      parts.sealer,
      { organizationId: api.organizationId, serviceId: other.id },
      (
        await writeRecord(parts, (await currentRelease(database, other.id))!)
      ).record!,
    )
  ).reveal()
  assert.equal(rows.variable ?? null, null)
  assert.equal(rows.release?.length, 1)
})

test('a second adoption changes nothing, and neither does an older record', async () => {
  const scene = await createScene()
  const services = await found(scene)
  assert.equal((await adoptServices(parts, 'local', services)).left.length, 0)
  await ok('PUT', `/application/${scene.app.id}`, {
    ...(await ok('GET', `/application/${scene.app.id}`)),
    name: 'renamed',
  })
  const before = await rowsOf(scene)
  assert.equal((await adoptServices(parts, 'local', services)).left.length, 0)
  assert.deepEqual(await rowsOf(scene), before)
})

test('a name, host or deployment number that is taken by now keeps no service out', async () => {
  const scene = await createScene()
  const services = await found(scene)
  const { name } = await ok('GET', `/project/${scene.projectId}`)
  await lose(scene)
  const taken = await ok('POST', `/organization/${api.organizationId}/project`, { name })
  const environment = await ok('POST', `/project/${taken.id}/environment`, { name: 'other' })
  const other = await newApplication(api, environment.id)
  const domain = `d-${scene.app.id}.example.com`
  await ok('POST', `/application/${other.id}/customDomain`, { domain, generate_certificate: false })
  await database.query(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, origin, triggered_by, state)
     select gen_random_uuid(), $1, $2, n, 'DEPLOY', 'API', 'somebody', 'CANCELED' from generate_series(1, 9) n`,
    [api.organizationId, scene.environmentId],
  )
  assert.deepEqual((await adoptServices(parts, 'local', services)).left, [])
  assert.match((await ok('GET', `/project/${scene.projectId}`)).name, new RegExp(`^${name} .{6}$`))
  assert.deepEqual((await rowsOf(scene)).custom_domain, [])
  await deploy(scene.app.id)
})

test('a domain that is the platform’s by now, or belongs to a wildcard of others, is not served for a service that is back', async () => {
  const [first, second] = [await createScene(), await createScene()]
  const domainOf = ({ app }: typeof first) => `d-${app.id}.example.com`
  const services = [await found(first), await found(second)]
  const comeBack = async (): Promise<string[]> => {
    await Promise.all([lose(first), lose(second)])
    for (const each of services) assert.deepEqual((await adoptServices(parts, 'local', each)).left, [])
    const routes = await database.query<{ host: string }>(`select host from route where host = any($1)`, [
      [domainOf(first), domainOf(second)],
    ])
    return routes.map(({ host }) => host)
  }
  await database.query(`insert into reserved_host (host, use) values ($1, 'PLATFORM')`, [domainOf(first)])
  assert.deepEqual(await comeBack(), [domainOf(second)])
  await Promise.all([lose(first), lose(second)])
  const foreign = await api.newOrganization()
  await database.query(
    `insert into custom_domain (id, organization_id, service_id, domain, generate_certificate, use_cdn)
     values (gen_random_uuid(), $1, $1, '*.example.com', false, false)`,
    [foreign.id],
  )
  assert.deepEqual(await comeBack(), [])
  await database.query(`delete from custom_domain where domain = '*.example.com'`)
  await database.query('delete from reserved_host where host = $1', [domainOf(first)])
})

test('a record that is damaged, of another service or organization, or missing is refused in a sentence', async () => {
  const scene = await createScene()
  const [one, two] = await found(scene)
  await lose(scene)
  const text = one!.records[0]!
  const foreign = await api.newOrganization()
  const cases: [Partial<FoundService>, RegExp][] = [
    [{ records: [] }, /has no record/],
    [{ records: ['{'] }, /damaged/],
    [{ records: [text.replace('"version":1', '"version":2')] }, /does not know/],
    [{ records: [`${text.slice(0, -12)}AAAAAAAAAA"}`] }, /cannot be opened/],
    [{ records: [two!.records[0]!] }, /cannot be opened/],
    [{ organizationId: foreign.id }, /another organization/],
    [{ environmentId: foreign.id }, /another service/],
    [{ records: [`${text}${' '.repeat(50_000)}`] }, /larger/],
  ]
  for (const [change, reason] of cases) {
    const { adopted, left } = await adoptServices(parts, 'local', [{ ...one!, ...change }])
    assert.deepEqual(adopted, [])
    assert.match(left[0]!.reason, reason)
  }
  assert.deepEqual((await rowsOf(scene)).node, [])
})

test('a service whose instances only just start is one that is to run, and one that was never begun is not', async () => {
  const { ids, environmentId, ...scene } = await createScene()
  await lose({ ...scene, ids })
  const orphans = (['restarting', 'created'] as const).map((state, index) => ({
    ...{ id: ids[index]!, kind: 'SERVICE' as const, environmentId, organizationId: api.organizationId },
    found: { instances: [{ name: 'one', state }], volumes: [], created_at: null },
  }))
  const { left } = await adopt(parts, standIn<Cluster>({ key: 'local', runtime }), orphans)
  assert.deepEqual(left, [])
  const rows = await database.query<{ desired: string }>(
    'select desired from service_state where service_id = any($1) order by array_position($1, service_id)',
    [ids],
  )
  assert.deepEqual(
    rows.map(({ desired }) => desired),
    ['RUNNING', 'STOPPED'],
  )
})

test('services of a cluster that was registered again since are adopted onto that', async () => {
  const scene = await createScene()
  const services = await found(scene)
  await lose(scene)
  const again = newId()
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     select $2, organization_id, kind, parent_id, name_scope, 'again', spec from node where id = $1`,
    [api.clusterId, again],
  )
  await database.query(
    `update node set spec = spec || jsonb_build_object('cluster_id', $2::text) where spec ->> 'cluster_id' = $1`,
    [api.clusterId, again],
  )
  await database.query('delete from node where id = $1', [api.clusterId])
  assert.deepEqual((await adoptServices(parts, 'local', services)).left, [])
  assert.equal((await ok('GET', `/environment/${scene.environmentId}`)).cluster_id, again)
  const clusters = await database.query<{ id: string }>(
    `select cluster_id as id from service_state where service_id = any($1)
     union all select cluster_id from release where service_id = any($1)`,
    [scene.ids],
  )
  assert.deepEqual(new Set(clusters.map(({ id }) => id)), new Set([again]))
})
