/** An existing client of this API, unmodified: its calls reach us and its types hold what we answer. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  ApplicationActionsApi,
  ApplicationDeploymentHistoryApi,
  ApplicationEnvironmentVariableApi,
  ApplicationLogsApi,
  ApplicationMainCallsApi,
  ApplicationSecretApi,
  ApplicationsApi,
  Configuration,
  EnvironmentActionsApi,
  EnvironmentMainCallsApi,
  EnvironmentsApi,
  GitProviderEnum,
  OrganizationApiTokenApi,
  OrganizationMainCallsApi,
  PortProtocolEnum,
  ProjectsApi,
} from 'qovery-typescript-axios'
import { startApi } from './api.ts'
import { until } from './until.ts'

const api = await startApi()
const configuration = new Configuration({ basePath: api.url, apiKey: `Token ${api.token}` })
const by = <T>(Api: new (configuration: Configuration) => T): T => new Api(configuration)

test('the public TypeScript client goes the whole path: organization to a running application and its end', async () => {
  const organizations = (await by(OrganizationMainCallsApi).listOrganization()).data.results!
  assert.equal(organizations[0]!.id, api.organizationId)
  const project = (await by(ProjectsApi).createProject(api.organizationId, { name: 'client' })).data
  const environment = (
    await by(EnvironmentsApi).createEnvironment(project.id, {
      name: 'staging',
      mode: 'STAGING',
      cluster: api.clusterId,
    })
  ).data
  assert.deepEqual([environment.mode, environment.cluster_id], ['STAGING', api.clusterId])

  const application = (
    await by(ApplicationsApi).createApplication(environment.id, {
      name: 'web',
      git_repository: { url: 'https://github.com/example/web.git', branch: 'main', provider: GitProviderEnum.GITHUB },
      healthchecks: {},
      ports: [{ internal_port: 8080, publicly_accessible: true, protocol: PortProtocolEnum.HTTP }],
    })
  ).data
  assert.equal(application.git_repository!.owner, 'example')

  await by(ApplicationEnvironmentVariableApi).createApplicationEnvironmentVariable(application.id, {
    key: 'A',
    value: '1',
  })
  await by(ApplicationSecretApi).createApplicationSecret(application.id, { key: 'S', value: 'hidden' })
  const variables = (await by(ApplicationEnvironmentVariableApi).listApplicationEnvironmentVariable(application.id))
    .data
  assert.equal(variables.results!.find(({ key }) => key === 'A')!.value, '1')

  // This client sends {} where nothing is given.
  const deploy = await by(ApplicationActionsApi).deployApplication(application.id)
  assert.deepEqual([deploy.status, deploy.data.state], [202, 'DEPLOYMENT_QUEUED'])
  const status = async () => (await by(ApplicationMainCallsApi).getApplicationStatus(application.id)).data
  await until(async () => ((await status()).state as string) === 'RUNNING', { timeoutMs: 10_000, what: 'it to run' })
  assert.equal((await status()).service_deployment_status, 'UP_TO_DATE')

  const statuses = (await by(EnvironmentMainCallsApi).getEnvironmentStatuses(environment.id)).data
  assert.deepEqual(
    [statuses.environment.last_deployment_state, statuses.applications![0]!.state],
    ['DEPLOYED', 'DEPLOYED'],
  )
  const history = await by(ApplicationDeploymentHistoryApi).listApplicationDeploymentHistoryV2(application.id, 5)
  assert.equal(history.data.results![0]!.status_details.action, 'DEPLOY')
  assert.ok((await by(ApplicationLogsApi).listApplicationLog(application.id)).data.results!.length > 0)

  const again = await by(EnvironmentActionsApi).deployAllServices(environment.id, {
    applications: [{ application_id: application.id, git_commit_id: 'b'.repeat(40) }],
  })
  assert.equal(again.data.last_deployment_state, 'DEPLOYMENT_QUEUED')
  const deployedCommit = async () =>
    (await by(ApplicationMainCallsApi).getApplication(application.id)).data.git_repository!.deployed_commit_id
  await until(async () => (await deployedCommit()) === 'b'.repeat(40), { timeoutMs: 10_000, what: 'the other commit' })

  await by(ApplicationMainCallsApi).deleteApplication(application.id)
  const gone = async () =>
    by(ApplicationMainCallsApi)
      .getApplication(application.id)
      .then(
        () => false,
        (error: { response: { status: number } }) => error.response.status === 404,
      )
  await until(gone, { timeoutMs: 10_000, what: 'its end' })
})

test("the client's errors carry our words under the names that clients read", async () => {
  const error = await by(ProjectsApi)
    .createProject(api.organizationId, { name: '' })
    .then(
      () => assert.fail('it was accepted'),
      (refused: { response: { status: number; data: Record<string, unknown> } }) => refused.response,
    )
  assert.equal(error.status, 400)
  assert.deepEqual([error.data.status, error.data.error, error.data.detail], [400, 'Bad Request', error.data.message])
})

test('a token made by the client works as its bearer', async () => {
  const made = await by(OrganizationApiTokenApi).createOrganizationApiToken(api.organizationId, {
    name: 'client',
    role_id: null,
  })
  const bearer = new Configuration({ basePath: api.url, accessToken: made.data.token! })
  assert.equal((await new OrganizationMainCallsApi(bearer).listOrganization()).status, 200)
})
