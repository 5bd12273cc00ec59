import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { newId } from '../../lib/ids.ts'

const kinds = ['project', 'environment', 'application']
const api = await startApi({ idle: true })
const { call } = api

const places = async () => {
  const place = await newPlace(api)
  const application = (await newApplication(api, place.environmentId)) as { id: string }
  return { ...place, applicationId: application.id, app: `/application/${application.id}` }
}

const create = async (path: string, body: object, status = 201): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}
const listOf = async (path: string): Promise<Json[]> => (await call('GET', path)).body.results
const byKey = async (path: string): Promise<Record<string, Json>> =>
  Object.fromEntries((await listOf(path)).map((row) => [row.key, row]))

for (const kind of kinds)
  test(`${kind}: variables and secrets are set, listed, changed and deleted, secrets without their values`, async () => {
    const place = await places()
    const base = `/${kind}/${place[`${kind}Id` as 'projectId']}`
    const scope = kind.toUpperCase()
    const variable = await create(`${base}/environmentVariable`, { key: 'A', value: '1', description: 'why' })
    assert.deepEqual(
      [variable.key, variable.value, variable.scope, variable.variable_type, variable.mount_path, variable.description],
      ['A', '1', scope, 'VALUE', null, 'why'],
    )
    const file = await create(`${base}/secret`, { key: 'S', value: 'canary-4711', mount_path: '/etc/s' })
    assert.deepEqual([file.variable_type, file.mount_path, 'value' in file], ['FILE', '/etc/s', false])

    const edited = await call('PUT', `${base}/environmentVariable/${variable.id}`, { key: 'A2', value: '2' })
    assert.deepEqual([edited.status, edited.body.key, edited.body.value, edited.body.id], [200, 'A2', '2', variable.id])
    const kept = await call('PUT', `${base}/secret/${file.id}`, { key: 'S' })
    assert.equal(kept.status, 200)

    const variables = await byKey(`${base}/environmentVariable`)
    assert.equal(variables.A2.id, variable.id)
    assert.equal(variables.QOVERY_PROJECT_ID.scope, 'BUILT_IN')
    assert.equal(variables.S, undefined)
    assert.deepEqual(
      (await listOf(`${base}/secret`)).map(({ key }) => key),
      ['S'],
    )
    assert.ok(!JSON.stringify([await listOf(`${base}/secret`), variables, file, kept.body]).includes('canary'))

    assert.equal((await call('DELETE', `${base}/environmentVariable/${file.id}`)).status, 404)
    for (const path of [`environmentVariable/${variable.id}`, `secret/${file.id}`]) {
      assert.equal((await call('DELETE', `${base}/${path}`)).status, 204)
      assert.equal((await call('DELETE', `${base}/${path}`)).status, 404)
    }
  })

test('an application lists what it inherits, and gets aliases and overrides of it', async () => {
  const place = await places()
  const url = await create(`/project/${place.projectId}/environmentVariable`, { key: 'URL', value: 'wide' })
  const key = await create(`/environment/${place.environmentId}/secret`, { key: 'KEY', value: 'word' })
  const alias = await create(`${place.app}/environmentVariable/${url.id}/alias`, { key: 'ALSO' })
  assert.deepEqual([alias.variable_type, alias.value, alias.aliased_variable.key], ['ALIAS', 'wide', 'URL'])
  const override = await create(`${place.app}/environmentVariable/${url.id}/override`, { value: 'own' })
  assert.deepEqual([override.key, override.value, override.overridden_variable.id], ['URL', 'own', url.id])
  assert.equal(override.service_id, place.applicationId)
  const secret = await create(`${place.app}/secret/${key.id}/alias`, { key: 'ALSO_KEY' })
  assert.deepEqual([secret.aliased_secret.key, secret.aliased_secret.value], ['KEY', undefined])
  await create(`${place.app}/environmentVariable/${alias.id}/alias`, { key: 'THIRD' }, 400)
  await create(`/project/${place.projectId}/environmentVariable/${override.id}/alias`, { key: 'B' }, 400)
  await create(`${place.app}/secret/${url.id}/alias`, { key: 'MIXED' }, 404)
  const scopes = (await listOf(`${place.app}/environmentVariable`))
    .filter((row) => row.key === 'URL')
    .map((row) => row.scope)
  assert.deepEqual(scopes.sort(), ['APPLICATION', 'PROJECT'])
  await call('DELETE', `/project/${place.projectId}/environmentVariable/${url.id}`)
  assert.equal((await byKey(`${place.app}/environmentVariable`)).ALSO, undefined)
})

test('an alias or override reveals no variables of other places: they are a 404', async () => {
  const [own, other] = [await places(), await places()]
  const hidden = await create(`${other.app}/secret`, { key: 'HIDDEN', value: 'word' })
  const at = { alias_scope: 'APPLICATION', alias_parent_id: own.applicationId }
  const answers = []
  for (const id of [hidden.id, newId()]) {
    answers.push(await call('POST', `/variable/${id}/alias`, { key: 'A', ...at }))
    const override = { value: 'x', override_scope: 'APPLICATION', override_parent_id: own.applicationId }
    answers.push(await call('POST', `/variable/${id}/override`, override))
  }
  const said = answers.map(({ status, body: { message } }) => `${status} ${message}`)
  assert.deepEqual(
    said,
    Array.from({ length: 4 }, () => said[0]),
  )
  assert.match(said[0]!, /^404 /)
})

test('what is built in is found by the name that existing clients look up, and can be aliased', async () => {
  const place = await places()
  const name = `QOVERY_APPLICATION_Z${place.applicationId.slice(0, 8).toUpperCase()}_HOST_INTERNAL`
  const host = (await byKey(`${place.app}/environmentVariable`))[name]
  assert.equal(host.service_id, place.applicationId)
  const alias = await create(`${place.app}/environmentVariable/${host.id}/alias`, { key: 'HOST' })
  assert.equal(alias.value, host.value)
  const { env } = await loadEffectiveVariables(api.database, api.parts.sealer, place.applicationId)
  assert.equal(env.HOST, host.value)
})

test('bad input is 400 without the word that clients read as gone, and a change of kind is 409', async () => {
  const { app } = await places()
  const path = `${app}/environmentVariable`
  for (const body of [
    {},
    { key: '1A', value: '' },
    { key: 'SLIPWAY_A', value: '' },
    { key: 'QOVERY_A', value: '' },
    { key: 'A', value: 1 },
    { key: 'A', description: 'x'.repeat(256) },
  ]) {
    const answer = await call('POST', path, body)
    assert.equal(answer.status, 400)
    assert.doesNotMatch(answer.body.message, /exist/i)
  }
  await create(path, { key: 'A', value: '1' })
  assert.equal((await create(path, { key: 'A', value: '2' })).value, '2')
  await create(`${app}/secret`, { key: 'A', value: '1' }, 409)
})

test('scopes: Deploy reads no variables, Read writes none, Write deletes none, others see nothing', async () => {
  const { app } = await places()
  const path = `${app}/environmentVariable`
  const { id } = await create(path, { key: 'A', value: '1' })
  const as = async (scope: 'Read' | 'Deploy' | 'Write') => api.as(await api.newToken([scope]))
  const [reader, deployer, writer] = [await as('Read'), await as('Deploy'), await as('Write')]
  assert.deepEqual([(await reader('GET', path)).status, (await deployer('GET', path)).status], [200, 403])
  assert.deepEqual([(await writer('GET', path)).status, (await writer('POST', path, { key: 'B' })).status], [200, 201])
  assert.equal((await reader('POST', path, { key: 'C' })).status, 403)
  assert.equal((await writer('DELETE', `${path}/${id}`)).status, 403)
  const other = api.as((await api.newOrganization()).token)
  assert.deepEqual([(await other('GET', path)).status, (await other('DELETE', `/variable/${id}`)).status], [404, 404])
})

test('an import sets variables at the scopes it names and leaves secrets that are set', async () => {
  const { app } = await places()
  await create(`${app}/environmentVariable`, { key: 'A', value: 'old' })
  await create(`${app}/secret`, { key: 'S', value: 'old' })
  const vars = [
    { name: 'A', value: 'new', scope: 'APPLICATION', is_secret: false },
    { name: 'B', value: 'b', scope: 'PROJECT', is_secret: false },
    { name: 'T', value: 'hidden-t', scope: 'ENVIRONMENT', is_secret: true },
    { name: 'S', value: 'new', scope: 'APPLICATION', is_secret: true },
  ]
  const path = `${app}/environmentVariable/import`
  const first = await create(path, { overwrite: false, vars })
  assert.equal(first.total_variables_to_import, 4)
  assert.deepEqual(
    first.successful_imported_variables.map(({ name }: Json) => name),
    ['B', 'T'],
  )
  assert.ok(!JSON.stringify(first).includes('hidden-t'))
  const second = await create(path, { overwrite: true, vars })
  assert.deepEqual(
    second.successful_imported_variables.map(({ name }: Json) => name),
    ['A', 'B'],
  )
  await create(path, { vars: [{ ...vars[0], scope: 'JOB' }] }, 400)
  await create(path, { vars: [{ ...vars[0], name: '1' }] }, 400)
})

test('the generic family reads and writes the same records', async () => {
  const { app, applicationId, projectId } = await places()
  const at = { variable_scope: 'APPLICATION', variable_parent_id: applicationId }
  const secret = await create('/variable', { key: 'S', value: 'canary', is_secret: true, ...at })
  assert.deepEqual([secret.value, secret.is_secret, secret.scope], [null, true, 'APPLICATION'])
  assert.equal((await listOf(`${app}/secret`))[0].id, secret.id)
  const wide = await create('/variable', {
    key: 'W',
    value: 'w',
    is_secret: false,
    variable_scope: 'PROJECT',
    variable_parent_id: projectId,
  })
  const query = `/variable?parent_id=${applicationId}&scope=APPLICATION`
  assert.equal((await byKey(query)).W.id, wide.id)
  assert.deepEqual(
    (await listOf(`${query}&is_secret=true`)).map(({ key }) => key),
    ['S'],
  )
  const alias = await create(`/variable/${wide.id}/alias`, {
    key: 'ALSO',
    alias_scope: 'APPLICATION',
    alias_parent_id: applicationId,
  })
  assert.equal(alias.aliased_variable.id, wide.id)
  await create(
    `/variable/${wide.id}/override`,
    { value: 'own', override_scope: 'PROJECT', override_parent_id: projectId },
    400,
  )
  const override = await create(`/variable/${wide.id}/override`, {
    value: 'own',
    override_scope: 'APPLICATION',
    override_parent_id: applicationId,
  })
  assert.equal(override.value, 'own')
  assert.equal((await call('PUT', `/variable/${wide.id}`, { key: 'W', value: 'x' })).body.value, 'x')
  await create(
    '/variable',
    { key: 'X', value: '', is_secret: false, variable_scope: 'JOB', variable_parent_id: applicationId },
    400,
  )
  await create(
    '/variable',
    { key: 'X', value: '', is_secret: false, variable_scope: 'PROJECT', variable_parent_id: secret.id },
    404,
  )
  assert.equal((await call('DELETE', `/variable/${wide.id}`)).status, 204)
  assert.deepEqual(
    (await listOf(query)).filter(({ scope }) => scope !== 'BUILT_IN').map(({ key }) => key),
    ['S'],
  )
  const vars = [{ name: 'I', value: 'i', scope: 'APPLICATION', is_secret: false }]
  await create(`/variable/import?service_id=${applicationId}&service_type=APPLICATION`, { overwrite: true, vars })
  assert.equal((await byKey(query)).I.value, 'i')
})

test('a repeated create with one Idempotency-Key answers the same record', async () => {
  const { app } = await places()
  const send = () => call('POST', `${app}/secret`, { key: 'S', value: '1' }, { 'idempotency-key': 'same' })
  const [first, second] = [await send(), await send()]
  assert.deepEqual([first.status, second.status], [201, 201])
  assert.deepEqual(second.body, first.body)
})

test('a key may have dots and dashes, wherever a key is sent', async () => {
  const place = await places()
  const wide = await create(`/project/${place.projectId}/environmentVariable`, { key: 'discovery.type', value: 'many' })
  await create(`${place.app}/secret`, { key: 'npm-token', value: 'canary' })
  await create(`${place.app}/environmentVariable`, { key: 'own-file.yml', value: 'x: {{npm-token}}', mount_path: '/x' })
  await create(`${place.app}/environmentVariable/${wide.id}/alias`, { key: 'also.discovery-type' })
  await create(`${place.app}/environmentVariable/${wide.id}/override`, { value: 'single-node' })
  const query = `service_id=${place.applicationId}&service_type=APPLICATION`
  const text = 'spring.datasource.url="jdbc:{{discovery.type}}"'
  const imported = await call('POST', `/variable/import?${query}`, { overwrite: false, dotenv: { text } })
  assert.equal(imported.status, 201, JSON.stringify(imported.body))
  const { env } = await loadEffectiveVariables(api.database, api.parts.sealer, place.applicationId)
  const own = Object.fromEntries(Object.entries(env).filter(([key]) => /[.-]/.test(key)))
  assert.deepEqual(own, {
    'also.discovery-type': 'single-node',
    'discovery.type': 'single-node',
    'npm-token': 'canary',
    'own-file.yml': '/x',
    'spring.datasource.url': 'jdbc:single-node',
  })
  for (const key of ['..', '1.a', 'a b', 'a=b'])
    assert.equal((await call('POST', `${place.app}/environmentVariable`, { key, value: '1' })).status, 400, key)
})
