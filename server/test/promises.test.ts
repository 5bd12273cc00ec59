/** Small promises of the API that existing clients rely on, and protections that must act. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newId } from '../src/lib/ids.ts'
import { type Json, newApplication, newPlace, startApi } from './support/api.ts'
import { judgeAnswer } from './support/client-types.ts'
import { until } from './support/until.ts'

const api = await startApi()
const { call, organizationId } = api
const organization = `/organization/${organizationId}`
const exact = { 'x-state-vocabulary': 'deployment' }
const generated = { 'user-agent': 'OpenAPI-Generator/1.0.0/go' }

const ok = async (method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  return answer.body as Json
}
const stateIs = (path: string, state: string) =>
  until(async () => (await call('GET', `${path}/status`, undefined, exact)).body.state === state, {
    what: `${path} to be ${state}`,
  })
const deploy = async ({ id }: Json, state = 'DEPLOYED'): Promise<Json> => {
  const accepted = await ok('POST', `/application/${id}/deploy`)
  await stateIs(`/application/${id}`, state)
  return accepted
}

test('the list of organizations has an ETag like every other list', async () => {
  const first = await call('GET', '/organization')
  const again = await call('GET', '/organization', undefined, { 'if-none-match': first.headers.get('etag')! })
  assert.deepEqual([first.status, again.status], [200, 304])
})

test('instance types of managed databases are listed for all providers, however the path spells them', async () => {
  const of = async (vendor: string, region: string) =>
    (await call('GET', `/${vendor}/managedDatabase/instanceType/${region}/POSTGRESQL`)).body.results?.length ?? 404
  for (const vendor of ['aws', 'AWS', 'Aws']) assert.ok((await of(vendor, 'eu-west-3')) > 5, vendor)
  for (const vendor of ['SCW', 'scaleway']) assert.ok((await of(vendor, 'fr-par')) > 5, vendor)
  for (const vendor of ['DO', 'hetzner', 'ON_PREMISE']) assert.equal(await of(vendor, 'anywhere'), 0, vendor)
  assert.deepEqual([await of('nobody', 'anywhere'), await of('AWS', 'nowhere')], [404, 404])
})

test('responses match the types of strict clients where they once did not', async () => {
  const { id } = await ok('POST', `${organization}/onPremise/credentials`, { name: 'borrowed' })
  await ok('POST', `${organization}/cluster`, {
    name: 'elsewhere',
    region: 'any',
    cloud_provider: 'DO',
    kubernetes: 'SELF_MANAGED',
    cloud_provider_credentials: { cloud_provider: 'DO', credentials: { id, name: 'borrowed' }, region: 'any' },
  })
  const hook = { target_url: 'http://localhost:9/x', events: ['DEPLOYMENT_SUCCEEDED', 'DEPLOYMENT_FAILED'] }
  const registered = await ok('POST', `${organization}/webhook`, hook)
  assert.deepEqual(registered.events, hook.events)
  const none = await call('POST', `${organization}/container/deploy`, { image_name: 'nobody', tag: '1' })
  assert.equal(none.status, 202)
  assert.deepEqual([none.body.results, judgeAnswer('autoDeployContainerEnvironments', none.body)], [[], []])
  for (const [operation, path] of [
    ['listOrganizationCredentials', '/credentials'],
    ['listOrganizationWebHooks', '/webhook'],
    ['getOrganizationWebhook', `/webhook/${registered.id}`],
    ['getOrganizationProjectStats', '/project/stats'],
  ] as const) {
    const { body } = await call('GET', `${organization}${path}`, undefined, generated)
    assert.deepEqual(judgeAnswer(operation, body), [], operation)
  }
  assert.deepEqual((await ok('GET', `${organization}/webhook/${registered.id}`)).events, hook.events)
})

test('a create returns the head of the branch, and whether the repository can be read', async () => {
  const { environmentId } = await newPlace(api)
  const { git_repository: git } = await newApplication(api, environmentId)
  assert.deepEqual([git.deployed_commit_id, git.has_access], [api.source.head, true])
})

test('a stopped service cannot be stopped again by itself; an environment can', async () => {
  const { environmentId } = await newPlace(api)
  const app = await newApplication(api, environmentId)
  await deploy(app)
  await ok('POST', `/application/${app.id}/stop`)
  // It is stopped a moment before its deployment has ended, and a new request is possible until then.
  const isOver = async () => {
    const { state, deployment_requests_count: open } = await ok('GET', `/application/${app.id}/status`)
    return state === 'STOPPED' && open === 0
  }
  await until(isOver, { what: 'the stop to be over' })
  const again = await call('POST', `/application/${app.id}/stop`)
  assert.deepEqual([again.status, again.body.code], [409, 'already_stopped'])
  await ok('POST', `/environment/${environmentId}/stop`)
})

test('an environment is STOPPED even if a service that its actions skip runs', async () => {
  const { environmentId } = await newPlace(api)
  const [stopped, skipped] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  for (const each of [stopped, skipped]) await deploy(each)
  await api.database.query('update service_state set is_skipped = true where service_id = $1', [skipped.id])
  await ok('POST', `/environment/${environmentId}/stop`)
  await stateIs(`/application/${stopped.id}`, 'STOPPED')
  await stateIs(`/environment/${environmentId}`, 'STOPPED')
  await stateIs(`/application/${skipped.id}`, 'DEPLOYED')
})

test('lists and histories are filtered as requested', async () => {
  const { environmentId, projectId } = await newPlace(api)
  const [fresh, changed] = [await newApplication(api, environmentId), await newApplication(api, environmentId)]
  for (const each of [fresh, changed]) await deploy(each)
  await ok('PUT', `/application/${changed.id}`, { cpu: 300 })
  const ids = async (path: string) => ((await ok('GET', path)).results as Json[]).map(({ id }) => id)
  assert.deepEqual(await ids(`/environment/${environmentId}/application?toUpdate=true`), [changed.id])
  assert.equal((await ids(`/environment/${environmentId}/application?toUpdate=false`)).length, 2)
  assert.equal((await ids(`${organization}/services?project_id=${projectId}`)).length, 2)
  assert.deepEqual(await ids(`${organization}/services?environment_id=${(await newPlace(api)).environmentId}`), [])
  assert.deepEqual(await ids(`${organization}/services?project_id=${projectId}&cluster_id=${newId()}`), [])
  assert.equal((await ids(`${organization}/services?project_id=${projectId}&cluster_id=${api.clusterId}`)).length, 2)

  await deploy(changed)
  for (const path of [`/application/${changed.id}`, `/environment/${environmentId}`]) {
    const all = await ids(`${path}/deploymentHistory`)
    assert.ok(all.length >= 2)
    assert.deepEqual(await ids(`${path}/deploymentHistory?startId=${all[0]}`), all.slice(1))
    assert.deepEqual(await ids(`${path}/deploymentHistory?startId=${all.at(-1)}`), [])
  }

  for (const name of ['one', 'two']) await ok('POST', `${organization}/apiToken`, { name: `${name} of mine` })
  const names = async (query: string) =>
    ((await ok('GET', `${organization}/apiToken?${query}`)).results as Json[]).map(({ name }) => name)
  assert.deepEqual(await names('name=One%20of%20mine'), ['one of mine'])
  const all = await names('')
  const creator = all.find((name) => !name.endsWith('of mine'))!
  assert.ok((await names(`creatorName=${encodeURIComponent(creator)}`)).includes('two of mine'))
  assert.deepEqual(await names('creatorName=nobody'), [])
})

test('what a cluster cannot do is refused: other rights in a kubeconfig, contradictory fields', async () => {
  const kubeconfig = `${organization}/cluster/${api.clusterId}/kubeconfig`
  for (const word of ['read_only', 'with_token_from_cli'])
    assert.equal((await call('GET', `${kubeconfig}?${word}=true`)).status, 400)
  const cluster = `${organization}/cluster/${api.clusterId}?deleteMode=DELETE_QOVERY_CONFIG&skipReconcile=true`
  const refused = await call('DELETE', cluster)
  assert.match(refused.body.message, /skipReconcile: must not be true/)
})

test('a variable becomes a file, and moves with its aliases', async () => {
  const { projectId, environmentId } = await newPlace(api)
  const variables = `/project/${projectId}/environmentVariable`
  const made = await ok('POST', variables, { key: 'CONFIG', value: 'text' })
  const file = await ok('PUT', `${variables}/${made.id}`, { key: 'CONFIG', mount_path: '/etc/one' })
  assert.deepEqual([file.variable_type, file.mount_path, file.value], ['FILE', '/etc/one', 'text'])
  const aliases = `/environment/${environmentId}/environmentVariable`
  const alias = await ok('POST', `${aliases}/${made.id}/alias`, { key: 'ALSO' })
  await ok('PUT', `${variables}/${made.id}`, { key: 'CONFIG', mount_path: '/etc/two' })
  const moved = ((await ok('GET', aliases)).results as Json[]).find(({ key }) => key === 'ALSO')
  assert.equal(moved?.mount_path, '/etc/two')
  assert.equal((await ok('PUT', `${variables}/${made.id}`, { key: 'CONFIG', mount_path: null })).mount_path, '/etc/two')
  for (const [id, path] of [
    [made.id, '../x'],
    [alias.id, '/etc/three'],
  ]) {
    const place = id === made.id ? variables : aliases
    const refused = await call('PUT', `${place}/${id}`, { key: id === made.id ? 'CONFIG' : 'ALSO', mount_path: path })
    assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/mount_path'])
  }
})

const day = (ahead: number): string => new Date(Date.now() + ahead * 86_400_000).toISOString().slice(0, 10)

test('an expired git token is not used, and one that expires soon is reported', async () => {
  const { environmentId } = await newPlace(api)
  const token = async (name: string, expired_at: string) =>
    (await ok('POST', `${organization}/gitToken`, { name, type: 'GITHUB', token: 'secret', expired_at })).id as string
  const repository = { url: 'https://github.com/example/shop.git', branch: 'main' }
  const withToken = async (id: string) =>
    newApplication(api, environmentId, { git_repository: { ...repository, git_token_id: id } })
  const logOf = async () => JSON.stringify(await ok('GET', `/environment/${environmentId}/logs`))

  const late = await withToken(await token('old', day(-1)))
  assert.equal(late.git_repository.has_access, false)
  await deploy(late, 'BUILD_ERROR')
  assert.match(await logOf(), /The git token old expired on \d{4}-\d\d-\d\d: change its token/)
  await deploy(await withToken(await token('soon', day(3))))
  assert.match(await logOf(), /The git token soon expires on \d{4}-\d\d-\d\d/)
  await deploy(await withToken(await token('far', day(30))))
  assert.doesNotMatch(await logOf(), /git token far/)
})

test('a deploy of an environment says which services it leaves out and why', async () => {
  const { environmentId } = await newPlace(api)
  const app = await newApplication(api, environmentId)
  const repository = {
    name: 'charts',
    kind: 'HTTPS',
    url: 'https://localhost/charts',
    skip_tls_verification: false,
    config: {},
  }
  const { id } = await ok('POST', `${organization}/helmRepository`, repository)
  await ok('POST', `/environment/${environmentId}/helm`, {
    name: 'chart',
    source: { helm_repository: { repository: id, chart_name: 'a', chart_version: '1' } },
  })
  await ok('POST', `/environment/${environmentId}/deploy`)
  await stateIs(`/application/${app.id}`, 'DEPLOYED')
  const log = JSON.stringify(await ok('GET', `/environment/${environmentId}/logs`))
  assert.match(log, /chart is left out: A helm service needs a Kubernetes cluster/)
  assert.equal((await ok('GET', `/environment/${environmentId}/status`)).deployment_status, 'OUT_OF_DATE')
})
