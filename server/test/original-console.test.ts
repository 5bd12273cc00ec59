/** The defects that the original console had with this server, each replayed with that console's requests. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { notAppliedHeader } from '../src/api/operations/not-applied.ts'
import { DeploymentError } from '../src/lib/errors.ts'
import { newContainer, newRegistry } from './cases/container.ts'
import { type Json, newApplication, newPlace, startApi, type TestPlace } from './support/api.ts'
import { audience, startIdentityProvider } from './support/peers/identity-provider.ts'
import { newScene } from './support/scene.ts'
import { chipOf, consoleOrigin, createStockConsole, savedSettings } from './support/stock-console.ts'
import { lastThat } from './support/streams.ts'
import { until } from './support/until.ts'

const provider = await startIdentityProvider()
const api = await startApi({
  settings: {
    corsOrigins: [consoleOrigin],
    consoleUrl: consoleOrigin,
    oidc: { issuer: provider.issuer, audience: [audience], adminEmails: ['alice@example.com'] },
  },
})
const { organizationId } = api
const stock = createStockConsole(api, await provider.tokenOf('alice'))
const scene = newScene(api)
const ofOrganization = `/organization/${organizationId}`

const place = async (): Promise<TestPlace & { of: Record<string, string> }> => {
  const made = await newPlace(api)
  const { projectId: project, environmentId: environment } = made
  return { ...made, of: { organization: organizationId, cluster: api.clusterId, project, environment } }
}

const statusOf = (environmentId: string) =>
  stock.send('getEnvironmentStatuses', 'GET', `/environment/${environmentId}/statuses`)

const reaches = (environmentId: string, id: string, state: string): Promise<Json> =>
  until(
    async () =>
      (await statusOf(environmentId)).applications.find((one: Json) => one.id === id && one.state === state) ?? null,
    { what: state },
  )

const deploy = (id: string, body: object = {}) =>
  stock.send('deployApplication', 'POST', `/application/${id}/deploy`, body)

test('D1: a page of the console has access, reads errors too, and no other page has', async () => {
  const { refused } = stock
  assert.equal((await refused('GET', '/project/00000000-0000-4000-8000-000000000000')).status, 404)
  assert.equal((await refused('POST', `${ofOrganization}/project`, {})).status, 400)
  const stranger = await fetch(`${api.url}/organization`, { headers: { origin: 'https://evil.example' } })
  assert.deepEqual([stranger.status, stranger.headers.get('access-control-allow-origin')], [401, null])
})

test('D2: while a deployment runs both queues are empty; later requests wait in them, and are in no history yet', async () => {
  const { environmentId } = await place()
  const { id } = await newApplication(api, environmentId)
  const lists = async () => {
    const ofService = await stock.send('listDeploymentRequestByServiceId', 'GET', `/service/${id}/deploymentQueue`)
    const path = `/environment/${environmentId}`
    const queue = await stock.send('listDeploymentRequestByEnvironmentId', 'GET', `${path}/deploymentQueue`)
    const history = await stock.send('listEnvironmentDeploymentHistoryV2', 'GET', `${path}/deploymentHistoryV2`)
    return [ofService, queue, history].map(({ results }) => results.length)
  }
  api.source.image = 'fake/never-ready'
  await deploy(id)
  const { last_deployment_date: began } = await reaches(environmentId, id, 'DEPLOYING')
  assert.ok(
    Math.abs(Date.now() - Date.parse(began)) < 10_000,
    'D7: the clock of the first deployment counts from its start',
  )
  assert.deepEqual(await lists(), [0, 0, 1])
  await stock.send('stopApplication', 'POST', `/application/${id}/stop`, {})
  assert.deepEqual(await lists(), [1, 1, 1])
  await stock.send('cancelEnvironmentDeployment', 'POST', `/environment/${environmentId}/cancelDeployment`, {})
  await reaches(environmentId, id, 'CANCELED')
  assert.deepEqual(await lists(), [0, 0, 2])
  api.source.image = 'fake/serve'
})

test('D3, D7, D10, D11: a failed build is shown with its lines, its commit, its start and its durations', async () => {
  const { environmentId, of } = await place()
  const { id } = await newApplication(api, environmentId)
  api.source.image = new DeploymentError('build_failed', 'The build failed: step 3 exited with 1.', {
    lines: ['no such file'],
  })
  await deploy(id)
  const failed = await reaches(environmentId, id, 'BUILD_ERROR')
  api.source.image = 'fake/serve'
  const [build] = failed.steps.details.filter((step: Json) => step.step_name === 'BUILD')
  assert.equal(build.status, 'ERROR')
  assert.equal(typeof failed.steps.total_duration_sec, 'number')
  assert.ok(Date.parse(failed.last_deployment_date) > 0)
  await deploy(id)
  await reaches(environmentId, id, 'DEPLOYED')

  const history = `/application/${id}/deploymentHistoryV2`
  const { results } = await stock.send('listApplicationDeploymentHistoryV2', 'GET', history)
  assert.equal(results[1].details.commit.git_commit_id, api.source.head)
  const version = results[1].identifier.execution_id
  const past = await stock.socket('/deployment/status', { ...of, version })
  const shown = await lastThat(past, 'the past deployment', () => true)
  const [stage] = shown.stages.filter((one: Json) => one.applications.length > 0)
  assert.equal(stage.applications[0].steps.details.find((step: Json) => step.step_name === 'BUILD').status, 'ERROR')
  assert.equal(typeof stage.stage.steps.total_duration_sec, 'number')

  const read = await stock.send('listEnvironmentLogs', 'GET', `/environment/${environmentId}/logs?version=${version}`)
  const log = await stock.socket('/deployment/logs', { ...of, version })
  const lines = [...read, ...(await lastThat(log, 'the log', () => true))]
  const underBuild = lines.filter((line: Json) => chipOf(line.details.stage.step) === 'BUILD')
  assert.deepEqual(underBuild.length, lines.length, 'the chip of the failed step shows every line')
  assert.ok(lines.some((line: Json) => line.type === 'error' && line.details.stage.step === 'BuiltError'))
  const latest = await stock.send('listEnvironmentLogs', 'GET', `/environment/${environmentId}/logs`)
  assert.deepEqual(new Set(latest.map((line: Json) => chipOf(line.details.stage.step))), new Set(['BUILD', 'DEPLOY']))
  assert.equal(latest.at(-1).details.stage.step, 'Deployed')
  for (const one of [past, log]) one.close()
})

test('D11: a running deployment has its steps too, and so has its stage', async () => {
  const { environmentId, of } = await place()
  const { id } = await newApplication(api, environmentId)
  await deploy(id)
  await reaches(environmentId, id, 'DEPLOYED')
  const path = `/environment/${environmentId}/statusesWithStages`
  const read = await stock.send('getEnvironmentStatusesWithStages', 'GET', path)
  const live = await stock.socket('/deployment/status', of)
  for (const shown of [read, await lastThat(live, 'the status', () => true)]) {
    const [stage] = shown.stages.filter((one: Json) => one.applications.length > 0)
    const names = stage.applications[0].steps.details.map((step: Json) => step.step_name)
    for (const name of ['GIT_CLONE', 'BUILD', 'DEPLOYMENT', 'ROUTER_DEPLOYMENT']) assert.ok(names.includes(name), name)
    assert.equal(typeof stage.applications[0].steps.total_duration_sec, 'number')
    assert.equal(typeof stage.stage.steps.total_duration_sec, 'number')
  }
  live.close()
})

test('D4: the numbers of its forms are stored as numbers, though they are sent as text', async () => {
  const { environmentId } = await place()
  const port = {
    internal_port: '8080',
    external_port: 443,
    publicly_accessible: 'true',
    protocol: 'HTTP',
    name: 'p8080',
    is_default: true,
  }
  const body = {
    name: 'from the form',
    registry_id: await newRegistry(api),
    image_name: 'fake/serve',
    tag: '1.0',
    cpu: '500',
    memory: '512',
    min_running_instances: '1',
    max_running_instances: 1,
    ports: [port],
    healthchecks: {},
  }
  const create = `/environment/${environmentId}/container`
  const made = await stock.send('createContainer', 'POST', create, body)
  assert.deepEqual(
    [made.cpu, made.memory, made.min_running_instances, made.ports[0].internal_port, made.ports[0].publicly_accessible],
    [500, 512, 1, 8080, true],
  )
  for (const wrong of ['08080', '8080 ', '1e3', '0x50', '8080.0', '', '99999999999999999999', '70000']) {
    const ports = [{ ...port, internal_port: wrong }]
    const { status, body: answer } = await stock.refused('POST', create, { ...body, name: `wrong ${wrong}`, ports })
    assert.deepEqual([status, answer.details?.[0].field], [400, '/ports/0/internal_port'], wrong)
  }
  // A text stays a text where a text is expected.
  const renamed = await stock.send('editContainer', 'PUT', `/container/${made.id}`, { ...body, name: '42', tag: '7' })
  assert.deepEqual([renamed.name, renamed.tag], ['42', '7'])
})

test('D5: advanced settings of a service and of a cluster are saved from its form', async () => {
  const { environmentId } = await place()
  const { id } = await newApplication(api, environmentId)
  const grace = 'deployment.termination_grace_period_seconds'
  const headers = 'network.ingress.extra_headers'
  const path = `/application/${id}/advancedSettings`
  const defaults = await stock.send(
    'getDefaultApplicationAdvancedSettings',
    'GET',
    '/defaultApplicationAdvancedSettings',
  )
  const read = () => stock.send('getAdvancedSettings', 'GET', path)
  const save = async (changed: Record<string, string>) =>
    stock.send('editAdvancedSettings', 'PUT', path, savedSettings(await read(), defaults, changed))
  await save({ [grace]: '42' })
  assert.deepEqual(await read(), { ...defaults, [grace]: 42 })
  await save({ [headers]: '{"X-Frame-Options": "DENY"}' })
  assert.equal((await read())[headers], '{"X-Frame-Options":"DENY"}')
  assert.equal((await read())[grace], 42)

  const ofCluster = `${ofOrganization}/cluster/${api.clusterId}/advancedSettings`
  const usual = await stock.send('getDefaultClusterAdvancedSettings', 'GET', '/defaultClusterAdvancedSettings')
  const sent = savedSettings(usual, usual, { 'loki.log_retention_in_week': '3', 'load_balancer.size': '5' })
  const saved = await stock.send('editClusterAdvancedSettings', 'PUT', ofCluster, sent)
  assert.deepEqual(saved, { ...usual, 'loki.log_retention_in_week': 3, 'load_balancer.size': '5' })
})

test('D12: deploy uses the head of the branch, redeploy the deployed commit, and a clone shows the current head', async () => {
  const { environmentId } = await place()
  const { id } = await newApplication(api, environmentId)
  const first = await deploy(id)
  await reaches(environmentId, id, 'DEPLOYED')
  const before = api.source.head
  api.source.head = 'b'.repeat(40)
  const deployed = async (): Promise<string> =>
    (await stock.send('getApplication', 'GET', `/application/${id}`)).git_repository.deployed_commit_id
  const again = await stock.send('redeployApplication', 'POST', `/application/${id}/redeploy`, {})
  await scene.settled(environmentId)
  assert.equal(await deployed(), before)
  const newest = await deploy(id)
  await scene.settled(environmentId)
  assert.equal(await deployed(), api.source.head)
  assert.deepEqual(
    [first, again, newest].map(({ version_choice }) => version_choice),
    ['NEWEST', 'DEPLOYED', 'NEWEST'],
  )
  const fresh = await place()
  await newApplication(api, fresh.environmentId)
  const choiceIn = async (environment: string) =>
    (await stock.send('redeployEnvironment', 'POST', `/environment/${environment}/redeploy`)).version_choice
  assert.deepEqual([await choiceIn(environmentId), await choiceIn(fresh.environmentId)], ['DEPLOYED', 'NEWEST'])
  for (const each of [environmentId, fresh.environmentId]) await scene.settled(each)
  api.source.head = 'c'.repeat(40)
  const clone = await stock.send('cloneApplication', 'POST', `/application/${id}/clone`, {
    name: 'clone',
    environment_id: environmentId,
  })
  await until(
    async () =>
      (await stock.send('getApplication', 'GET', `/application/${clone.id}`)).git_repository.deployed_commit_id ===
      api.source.head,
    { what: 'the head of the branch of the clone' },
  )
  api.source.head = before
})

test('D13: the log of a service begins with the requested number of lines, and shows only matching ones', async () => {
  const { environmentId, of } = await place()
  const { id } = await newContainer(scene, environmentId)
  await stock.send('deployContainer', 'POST', `/container/${id}/deploy`, {})
  await scene.settled(environmentId)
  for (let n = 1; n <= 30; n += 1) api.runtime.append(id, `line ${n}`, n % 10 === 0 ? 'stderr' : 'stdout')
  const open = (query: string, limit = '5') =>
    stock.socket('/service/logs', { ...of, service: id, service_type: 'CONTAINER', query, limit })
  const mine = `qovery_com_service_id="${id}"`
  const all = await open(`{${mine}}`)
  const errors = await open(`{${mine},level="error"}`)
  const found = await open(`{${mine}} |= "line 7"`)
  await until(() => [all, errors, found].every((one) => one.all.length > 0), { what: 'each log to begin' })
  api.runtime.append(id, 'line 77', 'stderr')
  for (const one of [all, errors, found]) await lastThat(one, 'the new line', ({ message }) => message === 'line 77')
  const messages = (heard: { all: Json[] }) => heard.all.map(({ message }) => message)
  assert.deepEqual(messages(all), ['line 26', 'line 27', 'line 28', 'line 29', 'line 30', 'line 77'])
  assert.deepEqual(messages(errors), ['line 10', 'line 20', 'line 30', 'line 77'])
  assert.deepEqual(messages(found), ['line 7', 'line 77'])
  const odd = await open('({app="ingress-nginx"} | level=~"error|warn")')
  await until(() => odd.code !== 0, { what: 'the refusal' })
  assert.deepEqual([odd.code, odd.all], [1008, []])
  for (const one of [all, errors, found]) one.close()
})

test('D14: actions of a person in the console have the origin CONSOLE, actions of a token API', async () => {
  const { environmentId } = await place()
  const { id } = await newApplication(api, environmentId)
  await deploy(id)
  await scene.settled(environmentId)
  const history = `/environment/${environmentId}/deploymentHistoryV2`
  const originNow = async () =>
    (await stock.send('listEnvironmentDeploymentHistoryV2', 'GET', history)).results[0].auditing_data.origin
  assert.equal(await originNow(), 'CONSOLE')
  await api.call('POST', `/application/${id}/redeploy`, undefined, { 'user-agent': 'CLI 1.0' })
  await scene.settled(environmentId)
  assert.equal(await originNow(), 'API')
})

/** Every field of a billing address that the console reads. */
const emptyBilling = Object.fromEntries(
  'first_name last_name email address city zip state country_code company vat_number'
    .split(' ')
    .map((name) => [name, null]),
)

test('D16, D17: lists of things that do not exist here are empty, and git tokens are not accounts', async () => {
  const { send } = stock
  const cost = await send('getOrganizationCurrentCost', 'GET', `${ofOrganization}/currentCost`)
  assert.deepEqual([cost.plan, cost.cost.total_in_cents], ['FREE', 0])
  for (const [id, path] of [
    ['listOrganizationCreditCards', 'creditCard'],
    ['listOrganizationInvoice', 'invoice'],
    ['getOrganizationGitProviderAccount', 'account/gitAuthProvider'],
  ] as const)
    assert.deepEqual((await send(id, 'GET', `${ofOrganization}/${path}`)).results, [], path)
  assert.equal((await send('getOrganizationOnboarding', 'GET', `${ofOrganization}/onboarding`)).status, 'COMPLETED')
  const billing = await send('getOrganizationBillingInfo', 'GET', `${ofOrganization}/billingInfo`)
  assert.deepEqual(billing, emptyBilling)
})

test('D16: a new user gets through the sign-up form to an organization, and an invitation leads to the console', async () => {
  const bob = createStockConsole(api, await provider.tokenOf('bob'))
  const form = await bob.send('getUserSignUp', 'GET', '/admin/userSignUp')
  assert.equal(form.user_email, 'bob@example.com')
  const filled = { ...form, first_name: 'Bob', last_name: 'B', type_of_use: 'WORK', current_step: 'personalize' }
  await bob.send('createUserSignUp', 'POST', '/admin/userSignUp', filled)
  assert.deepEqual(await bob.send('getUserSignUp', 'GET', '/admin/userSignUp'), form, 'a form changes no account')
  const made = await bob.send('createOrganization', 'POST', '/organization', { name: "Bob's", plan: 'FREE' })
  const billing = {
    first_name: 'Bob',
    email: 'bob@example.com',
    city: 'NEW YORK CITY',
    zip: '10001',
    country_code: 'US',
  }
  const address = `/organization/${made.id}/billingInfo`
  assert.deepEqual(await bob.send('editOrganizationBillingInfo', 'PUT', address, billing), emptyBilling)
  assert.deepEqual(await bob.send('getOrganizationBillingInfo', 'GET', address), emptyBilling)
  const { headers } = await bob.refused('PUT', address, billing)
  const named = headers.get(notAppliedHeader)
  assert.equal(named, '/first_name, /email, /city, /zip, /country_code')
  await bob.send('createProject', 'POST', `/organization/${made.id}/project`, { name: 'main' })

  const invited = await stock.send('postInviteMember', 'POST', `${ofOrganization}/inviteMember`, {
    email: 'carol@example.com',
  })
  assert.equal(
    invited.invitation_link,
    `${consoleOrigin}/accept-invitation?inviteToken=${invited.id}&organization=${organizationId}`,
  )
})
