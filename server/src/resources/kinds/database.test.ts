import assert from 'node:assert/strict'
import { test } from 'node:test'
import { databaseBody } from '../../../test/cases/database.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { until } from '../../../test/support/until.ts'
import { database } from './database.ts'
import { databaseTypes, isEligible, nextVersions, upgradeRefusal } from './database-types.ts'

const api = await startApi()
const { call } = api

const create = async (more: Record<string, unknown> = {}) => {
  const { environmentId } = await newPlace(api)
  return call('POST', `/environment/${environmentId}/database`, databaseBody('data', more))
}

const kept = async (id: string): Promise<Json> =>
  (await api.database.query('select spec, sealed from node where id = $1', [id]))[0]

test('name, type, version and mode are enough; the answer has the defaults', async () => {
  const { status, body } = await create()
  assert.equal(status, 201)
  assert.deepEqual(
    [body.type, body.version, body.mode, body.accessibility, body.service_type],
    ['POSTGRESQL', '16', 'CONTAINER', 'PRIVATE', 'DATABASE'],
  )
  assert.deepEqual([body.cpu, body.memory, body.storage, body.port], [250, 256, 10, 5432])
  assert.deepEqual([body.instance_type, body.disk_type, body.disk_encrypted], [null, null, false])
  assert.equal(body.host, `service-${body.id}`)
  assert.ok(body.maximum_cpu >= 1000 && body.maximum_memory > 256)
  assert.deepEqual((await call('GET', `/database/${body.id}`)).body, body)
})

test('an omitted memory is what the image needs, a memory that is sent stays', async () => {
  const sizes: [string, string, number, number][] = [
    ['POSTGRESQL', '16', 256, 5432],
    ['MYSQL', '8.0', 512, 3306],
    ['MONGODB', '7.0', 512, 27_017],
    ['REDIS', '7.2', 128, 6379],
  ]
  for (const [type, version, memory, port] of sizes) {
    const { body } = await create({ type, version })
    assert.deepEqual([body.memory, body.port], [memory, port], type)
  }
  assert.equal((await create({ memory: 100 })).body.memory, 100)
})

test('what the local cluster cannot do is refused with the field and what would be needed', async () => {
  const cases: [Record<string, unknown>, string][] = [
    [{ mode: 'MANAGED' }, '/mode'],
    [{ mode: 'OTHER' }, '/mode'],
    [{ type: 'ORACLE' }, '/type'],
    [{ version: '3' }, '/version'],
    [{ version: '160' }, '/version'],
    [{ version: '16; rm' }, '/version'],
    [{ instance_type: 'db.t3.micro' }, '/instance_type'],
    [{ disk_type: 'gp3' }, '/disk_type'],
    [{ cpu: 9 }, '/cpu'],
    [{ cpu: 999_000 }, '/cpu'],
    [{ memory: 5 }, '/memory'],
    [{ memory: 90_000_000 }, '/memory'],
    [{ storage: 0 }, '/storage'],
    [{ storage: 65_537 }, '/storage'],
  ]
  for (const [more, field] of cases) {
    const { status, body } = await create(more)
    assert.deepEqual([status, body.details?.[0]?.field], [400, field], JSON.stringify(more))
  }
  assert.match(
    (await create({ mode: 'MANAGED' })).body.message,
    /^mode: MANAGED needs a Terraform module for POSTGRESQL on clusters of ON_PREMISE.* SLIPWAY_DATABASE_MODULES/,
  )
})

test('an edit keeps what it leaves out, cannot change type and mode, and moves within a major version only', async () => {
  const { body: made } = await create({ description: 'orders', memory: 300, version: '16.3' })
  const path = `/database/${made.id}`
  for (const other of [{ type: 'REDIS' }, { mode: 'MANAGED' }])
    assert.equal((await call('PUT', path, { cpu: 500, ...other })).status, 400)
  const edited = await call('PUT', path, { cpu: 500, type: made.type, mode: made.mode })
  assert.equal(edited.status, 200)
  const { cpu, updated_at, ...rest } = edited.body
  assert.equal(cpu, 500)
  for (const [field, value] of Object.entries(rest)) assert.deepEqual(value, made[field], field)
  assert.equal((await call('PUT', path, { version: '16.4' })).body.version, '16.4')
  for (const version of ['17', '15', '16.3', '16.x']) {
    const { status, body } = await call('PUT', path, { version })
    assert.deepEqual([status, body.details[0].field], [400, '/version'], version)
  }
  assert.match((await call('PUT', path, { version: '17' })).body.message, /major version/)
  assert.deepEqual((await call('GET', `${path}/version`)).body.results, [{ name: '16.4' }, { name: '16' }])
})

test('the credentials are made once, sealed, returned by their operation to writers only, and each reading is noted', async () => {
  const { body: made } = await create({ password: 'chosen by the caller' })
  const path = `/database/${made.id}/masterCredentials`
  const { status, body } = await call('GET', path)
  assert.equal(status, 200)
  assert.deepEqual([body.host, body.port, body.login], [made.host, 5432, 'postgres'])
  assert.match(body.password, /^[A-Za-z0-9]{32}$/)
  const row = await kept(made.id)
  assert.match(row.sealed.password, /^v1\./)
  assert.ok(!JSON.stringify(row).includes(body.password))
  await call('PUT', `/database/${made.id}`, { memory: 400, password: 'changed by the caller' })
  assert.equal((await call('GET', path)).body.password, body.password)
  for (const scope of ['Read', 'Deploy'] as const)
    assert.equal((await api.as(await api.newToken([scope]))('GET', path)).status, 403, scope)
  const lists = [`/database/${made.id}`, `/environment/${made.environment.id}/database`]
  for (const list of [...lists, `/environment/${made.environment.id}/services`])
    assert.doesNotMatch(JSON.stringify((await call('GET', list)).body), /password|volume_id|built_in|_url/, list)
  const events = await api.database.query<{ sub_target_type: string; text: string }>(
    `select sub_target_type, e::text as text from event e where target_id = $1 and event_type = 'EXPORT'`,
    [made.id],
  )
  assert.deepEqual(
    events.map((event) => event.sub_target_type),
    ['SECRET', 'SECRET'],
  )
  const [all] = await api.database.query<{ text: string }>(`select string_agg(e::text, '') as text from event e`)
  assert.ok(!all!.text.includes(body.password), 'no audit row holds the password')
})

test('an environment lists the types and versions it can have, and each of them can be created', async () => {
  const { environmentId } = await newPlace(api)
  const { results } = (await call('GET', `/environment/${environmentId}/databaseConfiguration`)).body
  assert.deepEqual(
    results.map(({ database_type }: Json) => database_type),
    ['POSTGRESQL', 'MYSQL', 'MONGODB', 'REDIS'],
  )
  for (const { database_type: type, version } of results)
    for (const { name, supported_mode: mode } of version) {
      const body = databaseBody(`${type} ${name}`, { type, version: name, mode })
      assert.equal((await call('POST', `/environment/${environmentId}/database`, body)).status, 201, `${type} ${name}`)
    }
})

test('a database runs from the public image of its version, with a volume of its own and a probe in the container', async () => {
  const { body } = await create({ storage: 20 })
  const { spec } = await kept(body.id)
  assert.deepEqual(database.deployable.source(spec), {
    from: 'image',
    registryId: null,
    name: 'library/postgres',
    tag: '16',
  })
  const workload = database.deployable.workload(spec)
  assert.deepEqual(workload.volumes, [{ id: spec.volume_id, mountPath: '/var/lib/postgresql/data', sizeGb: 20 }])
  assert.deepEqual(workload.ports, [{ internalPort: 5432, protocol: 'TCP', publiclyAccessible: false }])
  assert.equal(workload.readiness?.check.kind, 'exec')
  assert.deepEqual(database.deployable.environment!(spec, { password: 'word' }), {
    POSTGRES_USER: 'postgres',
    POSTGRES_PASSWORD: 'word',
    POSTGRES_DB: 'postgres',
  })
  const other = await kept((await create()).body.id)
  assert.notEqual(other.spec.volume_id, spec.volume_id)
})

test('the services beside a database get its address, login and password; lists show no secret', async () => {
  const { body: made } = await create()
  const { id, environment } = made
  const { id: neighbour } = await newApplication(api, environment.id)
  const { password } = (await call('GET', `/database/${id}/masterCredentials`)).body
  const { env, secretValues } = await loadEffectiveVariables(api.database, api.parts.sealer, neighbour)
  const url = `postgresql://postgres:${password}@service-${id}:5432/postgres`
  for (const brand of ['SLIPWAY', 'QOVERY']) {
    const prefix = `${brand}_POSTGRESQL_Z${id.slice(0, 8).toUpperCase()}`
    const told = ['HOST', 'HOST_INTERNAL', 'PORT', 'LOGIN', 'DEFAULT_DATABASE_NAME', 'PASSWORD', 'DATABASE_URL']
    assert.deepEqual(
      [...told, 'DATABASE_URL_INTERNAL'].map((name) => env[`${prefix}_${name}`]),
      [made.host, made.host, '5432', 'postgres', 'postgres', password, url, url],
    )
  }
  assert.ok(secretValues.includes(password), 'the password is masked in logs')
  const listed = async (family: string): Promise<Json> =>
    (await call('GET', `/application/${neighbour}/${family}`)).body.results
  const [plain, secret] = [await listed('environmentVariable'), await listed('secret')]
  assert.ok(
    plain.some(({ key }: Json) => key.endsWith('_LOGIN')) && !plain.some(({ key }: Json) => /PASSWORD|_URL/.test(key)),
  )
  assert.ok(secret.some(({ key }: Json) => key.endsWith('_PASSWORD')))
  assert.ok(!JSON.stringify([plain, secret]).includes(password))
})

test('each type is described by its image, port, files, probe, login and environment', () => {
  const described: Record<string, unknown[]> = {
    POSTGRESQL: ['library/postgres', 5432, '/var/lib/postgresql/data', 'pg_isready', 'postgres', 'postgresql'],
    MYSQL: ['library/mysql', 3306, '/var/lib/mysql', 'mysqladmin', 'root', 'mysql'],
    MONGODB: ['library/mongo', 27_017, '/data/db', 'mongosh', 'root', 'mongodb'],
    REDIS: ['library/redis', 6379, '/data', 'redis-cli', 'default', 'redis'],
  }
  const environments: Record<string, Record<string, string>> = {
    POSTGRESQL: { POSTGRES_USER: 'postgres', POSTGRES_PASSWORD: 'word', POSTGRES_DB: 'postgres' },
    MYSQL: { MYSQL_ROOT_PASSWORD: 'word', MYSQL_DATABASE: 'main' },
    MONGODB: { MONGO_INITDB_ROOT_USERNAME: 'root', MONGO_INITDB_ROOT_PASSWORD: 'word' },
    REDIS: { REDISCLI_AUTH: 'word' },
  }
  const majors: Record<string, string[]> = {
    POSTGRESQL: ['12', '13', '14', '15', '16', '17'],
    MYSQL: ['5', '8', '9'],
    MONGODB: ['5', '6', '7', '8'],
    REDIS: ['6', '7', '8'],
  }
  assert.deepEqual(Object.keys(databaseTypes), Object.keys(described))
  for (const [type, one] of Object.entries(databaseTypes)) {
    const told = [one.image, one.port, one.dataPath, one.probe[0], one.login, one.scheme]
    assert.deepEqual(told, described[type], type)
    assert.deepEqual(one.environment('word'), environments[type], type)
    // A server that only sets itself up may listen on its socket: the probe asks over the network.
    assert.ok(one.probe.includes('127.0.0.1') && !one.probe.includes('word'), type)
    assert.deepEqual([...new Set(one.versions.map((version) => version.split('.')[0]))], majors[type], type)
  }
})

test('versions are eligible when they are listed or a release of one that is', () => {
  assert.ok(isEligible('POSTGRESQL', '16') && isEligible('POSTGRESQL', '16.4') && isEligible('MYSQL', '8.0.36'))
  assert.ok(!isEligible('POSTGRESQL', '1') && !isEligible('POSTGRESQL', '160') && !isEligible('REDIS', '5'))
  assert.equal(upgradeRefusal('8.0', '8.4'), null)
  assert.equal(upgradeRefusal('16', '16.4'), null)
  assert.match(upgradeRefusal('8.4', '8.0')!, /older/)
  assert.match(upgradeRefusal('8', '9')!, /major/)
  assert.deepEqual(nextVersions('REDIS', '7.2'), ['7.2', '7', '7.4'])
  for (const [type, { versions }] of Object.entries(databaseTypes)) assert.ok(versions.length > 2, type)
})

test('a database is deployed, restarted, stopped and deleted', async () => {
  const { body } = await create({ type: 'REDIS', version: '7' })
  const path = `/database/${body.id}`
  const reaches = (state: string) =>
    until(async () => (await call('GET', `${path}/status`)).body.state === state, { what: state })
  assert.equal((await call('POST', `${path}/deploy?applyImmediately=true`)).status, 202)
  await reaches('DEPLOYED')
  assert.equal((await call('POST', `${path}/restart-service`)).status, 202)
  await reaches('RESTARTED')
  assert.equal((await call('POST', `${path}/stop`)).status, 202)
  await reaches('STOPPED')
  assert.equal((await call('DELETE', path)).status, 204)
  await until(async () => (await call('GET', path)).status === 404, { what: 'the end' })
})
