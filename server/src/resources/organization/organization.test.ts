import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import { createFirstOrganization } from './organization.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}`

test('the first start makes one organization and its default cluster, however often it is done', async () => {
  assert.equal(await createFirstOrganization(api.parts), organizationId)
  const clusters = (await call('GET', `${base}/cluster`)).body.results
  assert.deepEqual(
    clusters.map((one: Record<string, unknown>) => [
      one.name,
      one.cloud_provider,
      one.kubernetes,
      one.is_default,
      one.status,
    ]),
    [['local', 'ON_PREMISE', 'SELF_MANAGED', true, 'DEPLOYED']],
  )
})

test('GET /organization is the record and the list of records at once; others are not seen', async () => {
  const stranger = await api.newOrganization()
  const { body } = await api.as(await api.newToken(['Admin']))('GET', '/organization')
  assert.deepEqual(
    [body.id, body.plan, body.results.length, body.results[0].id],
    [organizationId, 'FREE', 1, organizationId],
  )
  assert.equal((await api.as(stranger.token)('GET', '/organization')).body.id, stranger.id)
  assert.equal((await api.as(stranger.token)('GET', base)).status, 404)
})

test("the operator's token creates organizations, each with its own cluster, sees all, and no other token does", async () => {
  const made = await call('POST', '/organization', { name: 'Second', plan: 'TEAM_2025', description: 'for them' })
  assert.deepEqual([made.status, made.body.name, made.body.description], [201, 'Second', 'for them'])
  const path = `/organization/${made.body.id}`
  const clusters = (await call('GET', `${path}/cluster`)).body.results
  assert.deepEqual(
    clusters.map((one: Record<string, unknown>) => [one.name, one.is_default]),
    [['local', true]],
  )
  const project = await call('POST', `${path}/project`, { name: 'theirs' })
  const environment = await call('POST', `/project/${project.body.id}/environment`, { name: 'dev' })
  assert.deepEqual([environment.status, environment.body.cluster_id], [201, clusters[0].id])
  assert.ok((await call('GET', '/organization')).body.results.some((one: { id: string }) => one.id === made.body.id))
  const { token } = (await call('POST', `${base}/apiToken`, { name: 'of the first' })).body
  assert.equal((await api.as(token)('GET', `/environment/${environment.body.id}`)).status, 404)
  assert.equal((await api.as(token)('POST', '/organization', { name: 'Third', plan: 'FREE' })).status, 403)
  const inside = (await call('POST', `${path}/apiToken`, { name: 'of the second' })).body.token
  assert.equal((await api.as(inside)('GET', `/environment/${environment.body.id}`)).status, 200)
  assert.equal((await api.as(inside)('GET', base)).status, 404)
})

test('an organization goes with its tokens, but not the last, nor one of which something is deployed', async () => {
  const { id } = (await call('POST', '/organization', { name: 'Short', plan: 'FREE' })).body
  const { body: project } = await call('POST', `/organization/${id}/project`, { name: 'p' })
  const { body: environment } = await call('POST', `/project/${project.id}/environment`, { name: 'e' })
  const { token } = (await call('POST', `/organization/${id}/apiToken`, { name: 't' })).body
  const application = await newApplication(api, environment.id)
  await call('POST', `/application/${application.id}/deploy`)
  assert.equal((await call('DELETE', `/organization/${id}`)).body.code, 'organization_in_use')
  await call('POST', `/environment/${environment.id}/cancelDeployment`)
  assert.equal((await call('DELETE', `/organization/${id}`)).status, 204)
  assert.equal((await call('GET', `/organization/${id}`)).status, 404)
  assert.equal((await call('GET', `/project/${project.id}`)).status, 404)
  await until(async () => (await api.as(token)('GET', '/organization')).status === 401, {
    timeoutMs: 1000,
    what: 'the token to be refused',
  })
  assert.equal((await call('DELETE', base)).body.code, 'operator_organization')
})

test('an edit keeps what it leaves out', async () => {
  await call('PUT', base, { description: 'first', website_url: 'https://example.org' })
  const { status, body } = await call('PUT', base, { name: 'Renamed' })
  assert.deepEqual(
    [status, body.name, body.description, body.website_url],
    [200, 'Renamed', 'first', 'https://example.org'],
  )
})

test('a project is made with 200, read, changed and deleted; its name is unique whatever the case', async () => {
  const made = await call('POST', `${base}/project`, { name: 'Shop', description: 'sells' })
  assert.deepEqual([made.status, made.body.name, made.body.associated_environments_count], [200, 'Shop', 0])
  assert.equal(made.body.organization.id, organizationId)
  assert.match(made.body.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  const taken = await call('POST', `${base}/project`, { name: 'sHOP' })
  assert.deepEqual([taken.status, taken.body.code], [409, 'name_taken'])
  const path = `/project/${made.body.id}`
  assert.equal((await call('PUT', path, { name: 'Store' })).body.description, 'sells')
  assert.equal((await call('GET', path)).body.name, 'Store')
  assert.equal((await call('DELETE', path)).status, 204)
  assert.equal((await call('GET', path)).status, 404)
  assert.equal((await call('DELETE', path)).status, 404)
})

test('every write leaves an audit row that says who and what, and what the program calls itself', async () => {
  const made = await call(
    'POST',
    `${base}/project`,
    { name: 'audited' },
    { 'user-agent': 'CLI 1.2', 'x-request-id': 'audit-1234' },
  )
  await call('DELETE', `/project/${made.body.id}`)
  const rows = await api.database.query(
    'select event_type, target_type, target_name, origin, user_agent, actor_type, request_id from event where target_id = $1 order by created_at',
    [made.body.id],
  )
  assert.deepEqual(rows[0], {
    event_type: 'CREATE',
    target_type: 'PROJECT',
    target_name: 'audited',
    origin: 'API',
    user_agent: 'CLI 1.2',
    actor_type: 'API_TOKEN',
    request_id: 'audit-1234',
  })
  assert.equal(rows[1]!.event_type, 'DELETE')
})

test('an environment takes cluster_id or cluster, and the default cluster without either', async () => {
  const { projectId } = await newPlace(api)
  const create = (body: object) => call('POST', `/project/${projectId}/environment`, body)
  for (const [name, field] of [
    ['a', { cluster_id: api.clusterId }],
    ['b', { cluster: api.clusterId }],
    ['c', {}],
  ] as const) {
    const { status, body } = await create({ name, mode: 'PREVIEW', ...field })
    assert.deepEqual([status, body.cluster_id, body.mode], [201, api.clusterId, 'PREVIEW'])
    assert.deepEqual(body.cloud_provider, { provider: 'ON_PREMISE', cluster: 'local' })
    assert.equal(body.project.id, projectId)
  }
  const unknown = await create({ name: 'd', cluster_id: projectId })
  assert.deepEqual([unknown.status, unknown.body.details[0].field], [400, '/cluster_id'])
})

test("an environment's cluster never changes; its name and mode do", async () => {
  const { environmentId } = await newPlace(api)
  const moved = await call('PUT', `/environment/${environmentId}`, { cluster_id: organizationId })
  assert.deepEqual([moved.status, moved.body.details[0].field], [400, '/cluster_id'])
  const { status, body } = await call('PUT', `/environment/${environmentId}`, {
    mode: 'PRODUCTION',
    cluster_id: api.clusterId,
  })
  assert.deepEqual([status, body.mode, body.cluster_id], [200, 'PRODUCTION', api.clusterId])
})

test('a cloud cluster without credentials is refused with one sentence that says what it needs', async () => {
  const answer = await call('POST', `${base}/cluster`, { name: 'cloud', region: 'eu-west-3', cloud_provider: 'AWS' })
  assert.equal(answer.status, 400)
  assert.match(answer.body.message, /credentials/)
  for (const wrong of [
    { disk_iops: 2999 },
    { disk_iops: 16_001 },
    { disk_throughput: 124 },
    { disk_throughput: 1001 },
  ]) {
    const refused = await call('POST', `${base}/cluster`, { name: 'c', region: 'r', cloud_provider: 'AWS', ...wrong })
    assert.equal(refused.body.details[0].field, `/${Object.keys(wrong)[0]}`)
  }
})

test('a cluster in use cannot be deleted, and lists its environments, services and routes', async () => {
  const { environmentId } = await newPlace(api)
  const { id, name } = await newApplication(api, environmentId)
  const refused = await call('DELETE', `${base}/cluster/${api.clusterId}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'cluster_in_use'])
  const { results } = (await call('GET', `/cluster/${api.clusterId}/environments`)).body
  const found = results.find((one: Record<string, unknown>) => one.environment_id === environmentId)
  assert.deepEqual(found.services, [{ id, name, type: 'APPLICATION' }])
  const routes = (await call('GET', `${base}/cluster/${api.clusterId}/routingTable`)).body.results
  assert.ok(routes.some((route: Record<string, string>) => route.target === `${name}:3000`))
})

test('a git token of another type is for the public host of that type, and must be sent again for it', async () => {
  const made = await call('POST', `${base}/gitToken`, { name: 'moves', type: 'GITHUB', token: 'x' })
  const path = `${base}/gitToken/${made.body.id}`
  const silent = await call('PUT', path, { type: 'GITLAB' })
  assert.deepEqual([silent.status, silent.body.details[0].field], [400, '/token'])
  const moved = await call('PUT', path, { type: 'GITLAB', token: 'y' })
  assert.deepEqual([moved.status, moved.body.git_api_url], [200, 'https://gitlab.com/api/v4'])
  const git_api_url = 'https://git.example/api/v4'
  assert.equal((await call('PUT', path, { git_api_url, token: 'z' })).status, 200)
  assert.equal((await call('PUT', path, { type: 'GITHUB' })).body.git_api_url, git_api_url)
})

test('a git token is kept sealed and never answered; a service that uses it keeps it from being deleted', async () => {
  const body = { name: 'hub', type: 'GITHUB', token: 'canary-token', expired_at: '2030-01-01' }
  const made = await call('POST', `${base}/gitToken`, body)
  assert.deepEqual(
    [made.status, made.body.git_api_url, made.body.expired_at],
    [201, 'https://api.github.com', '2030-01-01'],
  )
  const path = `${base}/gitToken/${made.body.id}`
  const { environmentId } = await newPlace(api)
  const git_repository = { url: 'https://github.com/a/b', branch: 'main', git_token_id: made.body.id }
  const application = await newApplication(api, environmentId, { git_repository })
  assert.equal(application.git_repository.git_token_name, 'hub')
  const read = await call('GET', path)
  assert.equal(read.body.associated_services_count, 1)
  assert.equal((await call('DELETE', path)).body.code, 'git_token_in_use')
  const [row] = await api.database.query('select spec, sealed from node where id = $1', [made.body.id])
  const answers = [made.body, read.body, (await call('PUT', path, { name: 'hub2' })).body, row]
  assert.doesNotMatch(JSON.stringify(answers), /canary/)
  assert.equal((await call('POST', `${base}/gitToken`, { ...body, name: 'b', type: 'BITBUCKET' })).status, 400)
})

test("another organization's git token cannot be used", async () => {
  const stranger = await api.newOrganization()
  const made = await api.as(stranger.token)('POST', `/organization/${stranger.id}/gitToken`, {
    name: 'x',
    type: 'GITLAB',
    token: 't',
  })
  const { environmentId } = await newPlace(api)
  const answer = await call('POST', `/environment/${environmentId}/application`, {
    name: 'thief',
    git_repository: { url: 'https://github.com/a/b', git_token_id: made.body.id },
  })
  assert.deepEqual(
    [answer.status, answer.body.details[0]],
    [400, { field: '/git_repository/git_token_id', message: 'not found in this organization' }],
  )
})

test('an API token is shown once, lasts 90 days by default, and works', async () => {
  const made = await call('POST', `${base}/apiToken`, { name: 'ci', scopes: ['Deploy', 'Read'] })
  assert.equal(made.status, 201)
  assert.match(made.body.token, /^slip_[0-9A-Za-z]{49}$/)
  const days = (Date.parse(made.body.expires_at) - Date.now()) / 86_400_000
  assert.ok(days > 89.9 && days < 90.1)
  const list = await call('GET', `${base}/apiToken`)
  assert.ok(!JSON.stringify(list.body).includes(made.body.token))
  assert.ok(list.body.results.some(({ prefix }: { prefix: string }) => made.body.token.startsWith(prefix)))
  assert.equal((await api.as(made.body.token)('GET', `${base}/project`)).status, 200)
  assert.equal((await api.as(made.body.token)('POST', `${base}/project`, { name: 'no' })).status, 403)
  assert.equal((await call('POST', `${base}/apiToken`, { name: 'CI' })).body.code, 'name_taken')
  const endless = await call('POST', `${base}/apiToken`, { name: 'endless', expires_at: null })
  assert.equal(endless.body.expires_at, null)
})
