import assert from 'node:assert/strict'
import { test } from 'node:test'
import { containerBody, newRegistry } from '../../../test/cases/container.ts'
import { databaseBody } from '../../../test/cases/database.ts'
import { ruleBody } from '../../../test/cases/deployment-rule.ts'
import { terraformBody } from '../../../test/cases/terraform.ts'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi({ idle: true })
const { call } = api

const post = async (path: string, body: object, status = 201): Promise<Json> => {
  const answer = await call('POST', path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}
const get = async (path: string): Promise<Json> => {
  const answer = await call('GET', path)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}
const list = async (path: string): Promise<Json[]> => (await get(path)).results
const effective = (id: string) => loadEffectiveVariables(api.database, api.parts.sealer, id)

const prefixOf = (id: string, type = 'APPLICATION') => `SLIPWAY_${type}_Z${id.slice(0, 8).toUpperCase()}`

/** An environment in which everything refers to something else. */
const scene = async () => {
  const place = await newPlace(api)
  const { projectId, environmentId } = place
  const shop = await newApplication(api, environmentId, { name: 'shop', storage: [{ size: 4, mount_point: '/data' }] })
  const web = await newApplication(api, environmentId, { name: 'web', arguments: [`--peer=service-${shop.id}`] })
  const base = `/application/${web.id}`
  const wide = await post(`/project/${projectId}/environmentVariable`, { key: 'WIDE', value: 'project' })
  const token = await post(`/environment/${environmentId}/secret`, { key: 'TOKEN', value: `canary ${shop.id}` })
  const url = await post(`/environment/${environmentId}/environmentVariable`, { key: 'URL', value: 'environment' })
  await post(`${base}/environmentVariable/${wide.id}/override`, { value: 'own' })
  await post(`${base}/environmentVariable/${url.id}/override`, {
    value: `http://{{${prefixOf(shop.id)}_HOST_INTERNAL}}`,
  })
  await post(`${base}/environmentVariable/${url.id}/alias`, { key: 'ALSO_URL' })
  await post(`${base}/secret/${token.id}/alias`, { key: 'ALSO_TOKEN' })
  await post(`${base}/secret`, { key: 'FILE', value: 'in a file', mount_path: '/etc/file' })
  const host = (await list(`${base}/environmentVariable`)).find(
    ({ key }) => key === `${prefixOf(shop.id)}_HOST_INTERNAL`,
  )
  await post(`${base}/environmentVariable/${host.id}/alias`, { key: 'SHOP_HOST' })
  return { ...place, shop, web }
}

const byName = async (environmentId: string): Promise<Record<string, Json>> =>
  Object.fromEntries((await list(`/environment/${environmentId}/services`)).map((each) => [each.name, each]))

/** Keys and values that users set, as a deployment would use them. */
const own = async (id: string): Promise<Record<string, string>> => {
  const { env, origins } = await effective(id)
  return Object.fromEntries(Object.entries(env).filter(([key]) => origins[key]!.scope !== 'BUILT_IN'))
}

test('a cloned environment sees what its source sees, with its own services in place of the source’s', async () => {
  const { environmentId, projectId, shop, web } = await scene()
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy', mode: 'PREVIEW' }, 202)
  assert.deepEqual([clone.mode, clone.project.id, clone.cluster_id], ['PREVIEW', projectId, api.clusterId])
  const copies = await byName(clone.id)
  assert.deepEqual(Object.keys(copies).sort(), ['shop', 'web'])
  const [before, after] = [await own(web.id), await own(copies.web.id)]
  assert.equal(before.SHOP_HOST, `service-${shop.id}`)
  assert.equal(after.SHOP_HOST, `service-${copies.shop.id}`)
  assert.equal(after.URL, `http://service-${copies.shop.id}`)
  assert.equal(after.TOKEN, `canary ${copies.shop.id}`)
  const asSource = JSON.parse(JSON.stringify(after).replaceAll(copies.shop.id, shop.id))
  assert.deepEqual(asSource, before)
  assert.deepEqual((await effective(copies.web.id)).files, [{ path: '/etc/file', content: 'in a file' }])
})

test('nothing of a clone names a row of its source, and what has an id or a host name has its own', async () => {
  const { environmentId, shop, web } = await scene()
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copies = await byName(clone.id)
  const rows = await api.database.query<{ text: string }>(
    `select v::text as text from variable v where parent_id = any($1)
     union all select n::text from node n where id = any($1) union all select r::text from route r where service_id = any($1)`,
    [[clone.id, copies.shop.id, copies.web.id]],
  )
  const text = rows.map((row) => row.text).join('\n')
  for (const { id } of [shop, web, { id: environmentId }]) {
    assert.ok(!text.includes(id), `still names ${id}`)
    assert.ok(!text.includes(`_Z${id.slice(0, 8).toUpperCase()}_`))
  }
  assert.deepEqual(copies.web.arguments, [`--peer=service-${copies.shop.id}`])
  assert.notEqual(copies.shop.storage[0].id, shop.storage[0].id)
  assert.notEqual(copies.shop.ports[0].id, shop.ports[0].id)
  const linkOf = async (id: string) => (await list(`/application/${id}/link`))[0].url
  assert.notEqual(await linkOf(copies.shop.id), await linkOf(shop.id))
  assert.equal((await get(`/application/${copies.shop.id}/status`)).state, 'READY')
})

test('an edit of the clone shows in the clone only, and the other way round', async () => {
  const { environmentId, web } = await scene()
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copy = (await byName(clone.id)).web
  const before = await own(web.id)
  await call('PUT', `/application/${copy.id}`, { cpu: 750 })
  for (const row of await list(`/application/${copy.id}/environmentVariable`))
    if (row.key === 'URL' && row.scope === 'ENVIRONMENT')
      await call('PUT', `/environment/${clone.id}/environmentVariable/${row.id}`, { key: 'URL', value: 'changed' })
  await post(`/environment/${clone.id}/secret`, { key: 'TOKEN', value: 'changed' })
  assert.equal((await get(`/application/${web.id}`)).cpu, 500)
  assert.deepEqual(await own(web.id), before)
  assert.equal((await own(copy.id)).ALSO_TOKEN, 'changed')
  await post(`/environment/${environmentId}/secret`, { key: 'TOKEN', value: 'of the source' })
  assert.equal((await own(copy.id)).ALSO_TOKEN, 'changed')
})

test('stages, their order and who is skipped are cloned; the clone’s default stages are its own', async () => {
  const { environmentId, shop, web } = await scene()
  const stages = `/environment/${environmentId}/deploymentStage`
  const late = (await call('POST', stages, { name: 'late' })).body
  await call('PUT', `/deploymentStage/${late.id}/service/${shop.id}`, { is_skipped: true })
  const [first] = await list(stages)
  await call('PUT', `/deploymentStage/${late.id}/moveBefore/${first.id}`)
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copies = await byName(clone.id)
  const shown = (all: Json[]) =>
    all.map(({ name, services }) => [name, services.map((one: Json) => [one.service_id, one.is_skipped])])
  const [source, made] = [await list(stages), await list(`/environment/${clone.id}/deploymentStage`)]
  const asSource = JSON.stringify(shown(made)).replace(copies.shop.id, shop.id).replace(copies.web.id, web.id)
  assert.deepEqual(JSON.parse(asSource), shown(source))
  assert.equal(new Set([...source, ...made].map(({ id }) => id)).size, 10)
})

test('a service cloned into another environment keeps what it can see there, and takes no value along that it cannot', async () => {
  const { environmentId, projectId, web } = await scene()
  const other = await post(`/project/${projectId}/environment`, { name: 'other' })
  await post(`/environment/${other.id}/environmentVariable`, { key: 'URL', value: 'of the other' })
  const copy = await post(`/application/${web.id}/clone`, { name: 'web', environment_id: other.id }, 202)
  assert.deepEqual([copy.environment.id, copy.name, copy.cpu], [other.id, 'web', web.cpu])
  const env = await own(copy.id)
  assert.deepEqual([env.WIDE, env.SHOP_HOST, env.ALSO_TOKEN, env.FILE], ['own', undefined, undefined, '/etc/file'])
  const secrets = await list(`/application/${copy.id}/secret`)
  assert.deepEqual(
    secrets.filter(({ scope }) => scope === 'APPLICATION').map(({ key }) => key),
    ['FILE'],
  )
  const rows = await list(`/application/${copy.id}/environmentVariable`)
  assert.equal(rows.find((row) => row.key === 'ALSO_URL').aliased_variable.scope, 'ENVIRONMENT')
  assert.ok(!JSON.stringify((await effective(copy.id)).secretValues).includes('canary'))
  const beside = await post(`/application/${web.id}/clone`, { name: 'web 2', environment_id: environmentId }, 202)
  const expected = await own(web.id)
  assert.deepEqual(await own(beside.id), expected)
  assert.equal(
    (await call('POST', `/application/${web.id}/clone`, { name: 'WEB', environment_id: environmentId })).status,
    409,
  )
})

test('a cloned database has a password of its own; other kinds keep their configuration', async () => {
  const { environmentId } = await newPlace(api)
  const database = await post(`/environment/${environmentId}/database`, databaseBody('store'))
  const registry = await newRegistry(api)
  const container = await post(`/environment/${environmentId}/container`, containerBody(registry, { name: 'box' }))
  await call('PUT', `/container/${container.id}/advancedSettings`, { 'deployment.termination_grace_period_seconds': 7 })
  const terraform = await post(`/environment/${environmentId}/terraform`, {
    ...terraformBody('modules'),
    terraform_variables_source: { tf_vars: [{ key: 'TOKEN', value: 'canary', secret: true }] },
  })
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copies = await byName(clone.id)
  const passwordOf = async (id: string) => (await get(`/database/${id}/masterCredentials`)).password
  assert.notEqual(await passwordOf(copies.store.id), await passwordOf(database.id))
  assert.deepEqual(
    [copies.store.version, copies.store.storage, copies.box.image_name, copies.box.registry.id],
    [database.version, database.storage, container.image_name, registry],
  )
  const settings = await get(`/container/${copies.box.id}/advancedSettings`)
  assert.equal(settings['deployment.termination_grace_period_seconds'], 7)
  const [row] = await api.database.query<{ sealed: Record<string, string> }>('select sealed from node where id = $1', [
    copies.modules.id,
  ])
  const place = { table: 'node', row: copies.modules.id, column: 'tf_vars.TOKEN' }
  const opened = await api.parts.sealer.open(api.organizationId, place, row!.sealed['tf_vars.TOKEN']!)
  assert.equal(opened.reveal(), 'canary')
  assert.notEqual(copies.modules.id, terraform.id)
})

test('a clone goes into another project or cluster of the organization, never out of it', async () => {
  const { environmentId } = await scene()
  const { projectId } = await newPlace(api)
  const path = `/environment/${environmentId}/clone`
  const wish = { name: 'moved', project_id: projectId, cluster_id: api.clusterId.toUpperCase() }
  const clone = await post(path, wish, 202)
  assert.deepEqual([clone.project.id, clone.cluster_id], [projectId, api.clusterId])
  const env = await own((await byName(clone.id)).web.id)
  assert.equal(env.WIDE, 'own')
  assert.equal((await call('POST', path, wish)).status, 409)
  for (const field of ['project_id', 'cluster_id']) {
    const refused = await call('POST', path, { name: 'x', [field]: newId() })
    assert.deepEqual([refused.status, refused.body.details[0].field], [400, `/${field}`])
  }
  const other = await api.newOrganization()
  assert.equal((await api.as(other.token)('POST', path, { name: 'x' })).status, 404)
})

test('a rule of the project is applied to a clone only when asked for', async () => {
  const { environmentId, projectId } = await newPlace(api)
  await post(`/project/${projectId}/deploymentRule`, ruleBody('reviews', api.clusterId))
  const path = `/environment/${environmentId}/clone`
  const plain = await post(path, { name: 'review-1' }, 202)
  const ruled = await post(path, { name: 'Review-2', apply_deployment_rule: true }, 202)
  const named = await post(path, { name: 'review-3', apply_deployment_rule: true, mode: 'PREVIEW' }, 202)
  assert.deepEqual([plain.mode, ruled.mode, named.mode], ['DEVELOPMENT', 'STAGING', 'PREVIEW'])
  assert.equal((await get(`/environment/${ruled.id}/deploymentRule`)).timezone, 'Europe/Paris')
  assert.equal((await get(`/environment/${plain.id}/deploymentRule`)).timezone, 'UTC')
})

test('what is being deleted is not cloned, and a clone that fails leaves nothing', async () => {
  const { environmentId, projectId, web, shop } = await scene()
  await api.database.query(`update service_state set state = 'DEPLOYED' where service_id = $1`, [web.id])
  assert.equal((await call('DELETE', `/application/${web.id}`)).status, 204)
  const before = await list(`/project/${projectId}/environment`)
  for (const path of [`/environment/${environmentId}`, `/application/${web.id}`]) {
    const answer = await call('POST', `${path}/clone`, { name: 'copy', environment_id: environmentId })
    assert.deepEqual([answer.status, answer.body.code], [409, 'deletion_in_progress'])
  }
  assert.deepEqual(await list(`/project/${projectId}/environment`), before)
  const doomed = await scene()
  await api.database.query(`update service_state set state = 'DEPLOYED' where service_id = $1`, [doomed.web.id])
  assert.equal((await call('DELETE', `/environment/${doomed.environmentId}`)).status, 204)
  const wish = { name: 'late', environment_id: doomed.environmentId }
  for (const path of [`/environment/${doomed.environmentId}`, `/application/${shop.id}`])
    assert.equal((await call('POST', `${path}/clone`, wish)).body.code, 'deletion_in_progress')
})

test('the audit log names the source of each clone', async () => {
  const { environmentId, web } = await scene()
  const clone = await post(`/environment/${environmentId}/clone`, { name: 'copy' }, 202)
  const copy = await post(`/application/${web.id}/clone`, { name: 'again', environment_id: clone.id }, 202)
  const events = await api.database.query<{ target_id: string; change: { cloned_from: string } }>(
    `select target_id, change from event where event_type = 'CLONE' and target_id = any($1)`,
    [[clone.id, copy.id]],
  )
  const made = Object.fromEntries(events.map((event) => [event.target_id, event.change.cloned_from]))
  assert.deepEqual(made, { [clone.id]: environmentId, [copy.id]: web.id })
})
