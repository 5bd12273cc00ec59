import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newContainer } from '../../../test/cases/container.ts'
import { databaseBody } from '../../../test/cases/database.ts'
import { terraformBody } from '../../../test/cases/terraform.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi()
const { call } = api

const post = async (path: string, body: object, status = 201): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}
const list = async (path: string): Promise<Json[]> => (await call('GET', path)).body.results
const scene = async () => {
  const place = await newPlace(api)
  const { id } = await newApplication(api, place.environmentId, { name: 'web' })
  return { ...place, id, path: `/application/${id}/environmentVariable` }
}
const env = async (id: string) => (await loadEffectiveVariables(api.database, api.parts.sealer, id)).env

test('a list says of each row whether it counts and where its value is set', async () => {
  const { projectId, environmentId, id, path } = await scene()
  const wide = await post(`/project/${projectId}/environmentVariable`, { key: 'URL', value: 'wide' })
  await post(`/environment/${environmentId}/environmentVariable/${wide.id}/override`, { value: 'narrow' })
  await post(`${path}/${wide.id}/alias`, { key: 'ALSO' })
  const rows = await list(path)
  const shown = (key: string, scope: string) => rows.find((row) => row.key === key && row.scope === scope)
  assert.equal(shown('URL', 'PROJECT').effective, false)
  const { effective, origin } = shown('URL', 'ENVIRONMENT')
  const narrow = { scope: 'ENVIRONMENT', parent_id: environmentId, key: 'URL' }
  assert.deepEqual([effective, { ...origin, parent_name: undefined }], [true, { ...narrow, parent_name: undefined }])
  assert.match(origin.parent_name, /^env /)
  // The alias follows what its target's key resolves to here.
  assert.deepEqual(shown('ALSO', 'APPLICATION').origin, origin)
  assert.equal((await env(id)).ALSO, 'narrow')
  assert.ok(rows.filter((row) => row.key === 'URL' && row.effective).length === 1)
  const [generic] = (await list(`/variable?parent_id=${id}&scope=APPLICATION`)).filter(({ key }) => key === 'ALSO')
  assert.deepEqual(generic.origin, origin)
})

test('what is built in can be listed alone', async () => {
  const { id } = await scene()
  const rows = await list(`/variable?parent_id=${id}&scope=BUILT_IN`)
  assert.ok(rows.length > 5 && rows.every(({ scope }) => scope === 'BUILT_IN'))
})

test('the text of a .env file is imported at the service or at the scope named, as variables or secrets', async () => {
  const { environmentId, id, path } = await scene()
  const text = 'export A=1\n# why\nB="two\\nlines" # here\n'
  const made = await post(`${path}/import`, { overwrite: false, dotenv: { text } })
  assert.deepEqual(
    [made.total_variables_to_import, made.successful_imported_variables.map(({ name }: Json) => name)],
    [2, ['A', 'B']],
  )
  const dotenv = { text: 'C=canary', scope: 'ENVIRONMENT', is_secret: true }
  const query = `service_id=${id}&service_type=APPLICATION`
  const secret = await post(`/variable/import?${query}`, { overwrite: true, dotenv })
  assert.ok(!JSON.stringify(secret).includes('canary'))
  assert.equal((await list(`/environment/${environmentId}/secret`))[0].key, 'C')
  const { A, B, C } = await env(id)
  assert.deepEqual([A, B, C], ['1', 'two\nlines', 'canary'])
  const { events } = (await call('GET', `/organization/${api.organizationId}/events?eventType=IMPORT`)).body
  assert.deepEqual([events.length, events[0].sub_target_type], [2, 'VARIABLE'])
  const bad = await call('POST', `${path}/import`, { dotenv: { text: 'A=1\nhunter2' } })
  assert.deepEqual(
    [bad.status, bad.body.details],
    [400, [{ field: '/dotenv/text', message: 'line 2 is not of the form KEY=value' }]],
  )
  assert.equal((await call('POST', `${path}/import`, { overwrite: true })).status, 400)
  assert.equal((await call('POST', `${path}/import`, { overwrite: true, vars: [] })).status, 201)
})

/** Accesses of a cluster to secret managers. */
const newAccesses = async (...names: string[]): Promise<string[]> => {
  const authentication = { mode: 'AWS_ROLE_ARN', role_arn: 'arn:aws:iam::1:role/r' }
  const endpoint = { mode: 'AWS_SECRET_MANAGER', region: 'eu-west-3' }
  const made = await post(`/organization/${api.organizationId}/cluster`, {
    name: `cluster of ${names}`,
    cloud_provider: 'ON_PREMISE',
    kubernetes: 'SELF_MANAGED',
    region: 'on-premise',
    secret_manager_accesses: names.map((name) => ({ name, endpoint, authentication })),
  })
  return made.secret_manager_accesses.map(({ id }: Json) => id)
}

test('an external secret names an access to a secret manager of its own organization', async () => {
  const { id, path } = await scene()
  const [access] = await newAccesses('ours')
  const tenant = await api.newOrganization()
  const theirs = newId()
  await api.database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name)
     values ($1, $2, 'secret_manager_access', $2, 'secret_manager_access', 'theirs')`,
    [theirs, tenant.id],
  )
  const place = { variable_scope: 'APPLICATION', variable_parent_id: id }
  const wanted = { key: 'TOKEN', value: 'vault/token', is_secret: false, ...place }
  // A cluster of our own does not count as an access either.
  for (const wrong of [theirs, api.clusterId, newId()]) {
    const refused = await call('POST', '/variable', { ...wanted, secret_manager_access_id: wrong })
    assert.deepEqual([refused.status, refused.body.details?.[0].field], [400, '/secret_manager_access_id'])
  }
  assert.deepEqual(
    (await list(path)).filter(({ key }) => key === 'TOKEN'),
    [],
  )
  const made = await post('/variable', { ...wanted, secret_manager_access_id: access })
  const moved = await call('PUT', `/variable/${made.id}`, { key: 'TOKEN', secret_manager_access_id: theirs })
  assert.deepEqual([moved.status, moved.body.details?.[0].field], [400, '/secret_manager_access_id'])
})

test('a reference to a missing access fails no deployment: its log says which key is left out', async () => {
  const { environmentId, id } = await scene()
  const [access] = await newAccesses('gone')
  const place = { variable_scope: 'ENVIRONMENT', variable_parent_id: environmentId }
  const reference = { key: 'TOKEN', value: 'vault/token', is_secret: false, secret_manager_access_id: access, ...place }
  const { id: variableId } = await post('/variable', reference)
  await api.database.query('update variable set secret_manager_access_id = $2 where id = $1', [variableId, newId()])
  await post(`/application/${id}/deploy`, {}, 202)
  await until(async () => (await call('GET', `/environment/${environmentId}/status`)).body.state === 'DEPLOYED', {
    timeoutMs: 10_000,
    what: 'the deployment without it',
  })
  assert.equal((await env(id)).TOKEN, undefined)
  const log = JSON.stringify((await call('GET', `/environment/${environmentId}/logs`)).body)
  assert.match(log, /TOKEN is skipped: its secret manager access no longer exists\./)
})

test('an external secret is kept as a reference; with a role as its authentication a deployment fails and says so', async () => {
  const { environmentId, id } = await scene()
  const [access, other] = await newAccesses('one', 'two')
  const wanted = { key: 'TOKEN', value: 'vault/token', is_secret: false, secret_manager_access_id: access }
  const made = await post('/variable', { ...wanted, variable_scope: 'ENVIRONMENT', variable_parent_id: environmentId })
  assert.deepEqual(
    [made.variable_type, made.secret_manager_access_id, made.value],
    ['EXTERNAL_SECRET', access, 'vault/token'],
  )
  const file = {
    ...wanted,
    key: 'FILE',
    mount_path: '/etc/file',
    variable_scope: 'APPLICATION',
    variable_parent_id: id,
  }
  assert.equal((await post('/variable', file)).variable_type, 'FILE_EXTERNAL_SECRET')
  const moved = await call('PUT', `/variable/${made.id}`, { key: 'TOKEN', secret_manager_access_id: other })
  assert.deepEqual([moved.status, moved.body.secret_manager_access_id], [200, other])
  await post(`/application/${id}/deploy`, {}, 202)
  const settled = async () => (await call('GET', `/environment/${environmentId}/status`)).body.state.endsWith('_ERROR')
  await until(settled, { timeoutMs: 10_000, what: 'the deployment to fail' })
  const [entry] = await list(`/application/${id}/deploymentHistoryV2`)
  assert.match(
    entry.error.message,
    /^(FILE|TOKEN): the value cannot be read from the secret manager "(one|two)" \(AWS Secrets Manager\): its authentication is a role of a cluster /,
  )
  for (const row of await list(`/variable?parent_id=${id}&scope=APPLICATION`))
    if (row.key === 'TOKEN')
      await post(`/variable/${row.id}/override`, {
        value: 'own',
        override_scope: 'APPLICATION',
        override_parent_id: id,
      })
    else if (row.key === 'FILE') assert.equal((await call('DELETE', `/variable/${row.id}`)).status, 204)
  await post(`/application/${id}/deploy`, {}, 202)
  await until(async () => (await call('GET', `/environment/${environmentId}/status`)).body.state === 'DEPLOYED', {
    timeoutMs: 10_000,
    what: 'the deployment with an override',
  })
})

test('a variable does not become an external secret by an edit', async () => {
  const { path } = await scene()
  const { id } = await post(path, { key: 'A', value: '1' })
  const [access] = await newAccesses('unused')
  const refused = await call('PUT', `/variable/${id}`, { key: 'A', secret_manager_access_id: access })
  assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/secret_manager_access_id'])
})

test('a place has room for 2000 variables of 16 MiB together; what is there can still be replaced', async () => {
  const { environmentId, id, path } = await scene()
  const fill = (parent: string, scope: string, count: number, bytes: number) =>
    api.database.query(
      `insert into variable (id, organization_id, parent_id, scope, key, value, is_secret, variable_type)
       select gen_random_uuid(), $1, $2, $3, 'KEY_' || n, repeat('x', $5), false, 'VALUE' from generate_series(1, $4) n`,
      [api.organizationId, parent, scope, count, bytes],
    )
  await fill(id, 'APPLICATION', 2000, 1)
  const more = await call('POST', path, { key: 'MORE', value: '1' })
  assert.deepEqual([more.status, more.body.code], [409, 'too_many_variables'])
  const imported = await call('POST', `${path}/import`, { dotenv: { text: 'MORE=1' } })
  assert.equal(imported.body.code, 'too_many_variables')
  assert.equal((await call('POST', path, { key: 'KEY_1', value: 'again' })).status, 201)

  const wide = `/environment/${environmentId}/environmentVariable`
  await fill(environmentId, 'ENVIRONMENT', 261, 64_000)
  const small = await post(wide, { key: 'SMALL', value: 'x' })
  const large = 'x'.repeat(65_536)
  const grown = await post(wide, { key: 'LARGE', value: large })
  for (const { id: variable, key } of [small, grown])
    assert.equal((await call('PUT', `${wide}/${variable}`, { key, value: large })).status, key === 'SMALL' ? 409 : 200)
})

test('containers have both families, and terraform services the generic one, over one store', async () => {
  const { environmentId } = await newPlace(api)
  const box = await newContainer({ api, post }, environmentId)
  const made = await post(`/container/${box.id}/secret`, { key: 'S', value: '1' })
  const generic = await list(`/variable?parent_id=${box.id}&scope=CONTAINER&is_secret=true`)
  assert.deepEqual([generic[0].id, generic[0].scope, generic[0].value], [made.id, 'CONTAINER', null])
  const modules = await post(`/environment/${environmentId}/terraform`, terraformBody('modules'))
  const place = { variable_scope: 'TERRAFORM', variable_parent_id: modules.id }
  const set = await post('/variable', { key: 'A', value: '1', is_secret: false, ...place })
  assert.equal(set.service_type, 'TERRAFORM')
  const wrong = { key: 'A', value: '1', is_secret: false, variable_scope: 'HELM', variable_parent_id: modules.id }
  assert.equal((await call('POST', '/variable', wrong)).status, 400)
})

test('services get variables to reach a database beside them, its password as a secret, under a name of their own', async () => {
  const { environmentId, id, path } = await scene()
  const database = await post(`/environment/${environmentId}/database`, databaseBody('store'))
  const prefix = `QOVERY_POSTGRESQL_Z${database.id.slice(0, 8).toUpperCase()}`
  const plain = Object.fromEntries((await list(path)).map(({ key, value }) => [key, value]))
  assert.deepEqual(
    ['HOST', 'HOST_INTERNAL', 'PORT', 'LOGIN', 'DEFAULT_DATABASE_NAME', 'PASSWORD'].map(
      (name) => plain[`${prefix}_${name}`],
    ),
    [database.host, database.host, '5432', 'postgres', 'postgres', undefined],
  )
  const secrets = await list(`/application/${id}/secret`)
  const url = secrets.find(({ key }) => key === `${prefix}_DATABASE_URL_INTERNAL`)
  assert.deepEqual([url.scope, url.service_id, 'value' in url], ['BUILT_IN', database.id, false])
  const alias = await post(`/application/${id}/secret/${url.id}/alias`, { key: 'DATABASE_URL' })
  assert.equal(alias.aliased_secret.key, url.key)
  const { password } = (await call('GET', `/database/${database.id}/masterCredentials`)).body
  assert.equal((await env(id)).DATABASE_URL, `postgresql://postgres:${password}@${database.host}:5432/postgres`)
  assert.ok((await loadEffectiveVariables(api.database, api.parts.sealer, id)).secretValues.includes(password))
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copies = Object.fromEntries((await list(`/environment/${clone.id}/services`)).map((each) => [each.name, each]))
  const own = (await call('GET', `/database/${copies.store.id}/masterCredentials`)).body.password
  assert.equal(
    (await env(copies.web.id)).DATABASE_URL,
    `postgresql://postgres:${own}@${copies.store.host}:5432/postgres`,
  )
})
