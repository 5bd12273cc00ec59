/** An existing client of this API, unmodified: its calls work, and requests and responses match its types. */
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
  CloudProviderCredentialsApi,
  ClustersApi,
  Configuration,
  ContainerDeploymentHistoryApi,
  ContainerRegistriesApi,
  ContainersApi,
  DatabaseActionsApi,
  DatabaseMainCallsApi,
  DatabasesApi,
  EnvironmentActionsApi,
  EnvironmentMainCallsApi,
  EnvironmentSecretApi,
  EnvironmentsApi,
  GitProviderEnum,
  HelmActionsApi,
  HelmDeploymentHistoryApi,
  HelmsApi,
  JobActionsApi,
  JobEnvironmentVariableApi,
  JobsApi,
  OrganizationApiTokenApi,
  OrganizationMainCallsApi,
  OrganizationWebhookApi,
  PortProtocolEnum,
  ProjectSecretApi,
  ProjectsApi,
} from 'qovery-typescript-axios'
import { operations } from '../src/resources/index.ts'
import { startApi } from './support/api.ts'
import { judgeAnswer, judgeBody } from './support/client-types.ts'
import { until } from './support/until.ts'

const api = await startApi()
const configuration = new Configuration({ basePath: api.url, apiKey: `Token ${api.token}` })
const by = <T>(Api: new (configuration: Configuration) => T): T => new Api(configuration)

interface Exchange {
  status: number
  data: unknown
  config: { method?: string; url?: string; data?: unknown }
}

/** The HTTP client that all calls of the package share. */
const { axios } = by(OrganizationMainCallsApi) as unknown as {
  axios: { interceptors: { response: { use(see: (exchange: Exchange) => Exchange): void } } }
}

const patterns = operations.map(({ id, method, path }) => ({
  id,
  method,
  path: new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`),
}))

const called = new Set<string>()

/** Checks every request and every response against the types of the package. */
axios.interceptors.response.use((exchange) => {
  const { method, url, data } = exchange.config
  const { pathname } = new URL(url!, api.url)
  const { id } = patterns.find((one) => one.method === method!.toUpperCase() && one.path.test(pathname))!
  called.add(id)
  const sent = typeof data === 'string' && data !== '' ? (JSON.parse(data) as object) : undefined
  if (sent !== undefined && Object.keys(sent).length > 0) assert.deepEqual(judgeBody(id, sent), [], `${id} sends`)
  // The one response with a different vocabulary for callers of the specification.
  if (exchange.status !== 204 && id !== 'getApplicationStatus')
    assert.deepEqual(judgeAnswer(id, exchange.data), [], `${id} answers`)
  return exchange
})

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

  // This client sends {} without arguments.
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
  const [line] = (await by(ApplicationLogsApi).listApplicationLog(application.id)).data.results!
  assert.match(line!.message, /^started /)

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

const organization = by(OrganizationMainCallsApi)
const newEnvironment = async (name: string) => {
  const project = (await by(ProjectsApi).createProject(api.organizationId, { name, description: 'of the client' })).data
  const wanted = { name, mode: 'DEVELOPMENT', cluster: api.clusterId } as const
  return (await by(EnvironmentsApi).createEnvironment(project.id, wanted)).data
}

test('the client sets up an organization: credentials, a cluster, a registry, a git token, a webhook', async () => {
  const clusters = by(ClustersApi)
  const aws = { type: 'AWS_STATIC', name: 'aws', access_key_id: 'AKIA', secret_access_key: 'hidden' } as const
  const credentials = (await by(CloudProviderCredentialsApi).createAWSCredentials(api.organizationId, aws)).data
  const cluster = (
    await clusters.createCluster(api.organizationId, {
      name: 'far away',
      region: 'eu-west-3',
      cloud_provider: 'AWS',
      cloud_provider_credentials: {
        cloud_provider: 'AWS',
        region: 'eu-west-3',
        credentials: { id: credentials.id, name: credentials.name },
      },
    })
  ).data
  const listed = (await organization.listOrganizationCredentials(api.organizationId)).data.results!
  assert.equal(listed.find((each) => each.credential!.id === credentials.id)!.clusters![0]!.id, cluster.id)
  assert.deepEqual((await clusters.getRoutingTable(api.organizationId, cluster.id)).data.results, [])
  const { id } = await newEnvironment('on the cluster')
  const there = (await clusters.getEnvironmentsByClusterId(api.clusterId)).data.results!
  assert.ok(there.some(({ environment_id }) => environment_id === id))

  const registries = by(ContainerRegistriesApi)
  const wanted = {
    name: 'hub',
    kind: 'DOCKER_HUB',
    url: 'https://docker.io',
    config: { username: 'u', password: 'hidden' },
  }
  const registry = (await registries.createContainerRegistry(api.organizationId, wanted as never)).data
  assert.equal((await registries.getContainerRegistry(api.organizationId, registry.id)).data.config!.username, 'u')

  const token = { name: 'git', type: 'GITHUB', token: 'hidden' } as const
  const made = (await organization.createGitToken(api.organizationId, token)).data
  assert.equal((await organization.getOrganizationGitToken(api.organizationId, made.id)).data.name, 'git')

  const webhooks = by(OrganizationWebhookApi)
  const webhook = (
    await webhooks.createOrganizationWebhook(api.organizationId, {
      kind: 'STANDARD',
      target_url: 'http://127.0.0.1:9/hook',
      events: ['DEPLOYMENT_STARTED'],
    })
  ).data
  assert.equal((await webhooks.deleteOrganizationWebhook(api.organizationId, webhook.id)).status, 204)
})

test('the client makes a container and reads its history and its queue', async () => {
  const environment = await newEnvironment('containers')
  const registry = (
    await by(ContainerRegistriesApi).createContainerRegistry(api.organizationId, {
      name: 'another hub',
      kind: 'DOCKER_HUB',
      url: 'https://docker.io',
      config: {},
    })
  ).data
  const container = (
    await by(ContainersApi).createContainer(environment.id, {
      name: 'cache',
      registry_id: registry.id,
      image_name: 'fake/serve',
      tag: '1',
      healthchecks: {},
    })
  ).data
  assert.equal(container.registry.id, registry.id)
  const history = await by(ContainerDeploymentHistoryApi).listContainerDeploymentHistoryV2(container.id)
  assert.deepEqual([history.data.page_size, history.data.results], [20, []])
  const statuses = await by(ContainersApi).getContainerRegistryContainerStatus(api.organizationId, registry.id)
  assert.deepEqual(
    statuses.data.results!.map(({ id }) => id),
    [container.id],
  )
  const queue = await by(EnvironmentMainCallsApi).listDeploymentRequestByServiceId(container.id)
  assert.deepEqual(queue.data.results, [])
})

test('the client makes a database, deploys it and reads the available versions', async () => {
  const environment = await newEnvironment('databases')
  const database = (
    await by(DatabasesApi).createDatabase(environment.id, {
      name: 'main',
      type: 'POSTGRESQL',
      version: '16',
      mode: 'CONTAINER',
    })
  ).data
  assert.equal((await by(DatabaseMainCallsApi).getDatabase(database.id)).data.name, 'main')
  const deploy = await by(DatabaseActionsApi).deployDatabase(database.id)
  assert.deepEqual([deploy.status, deploy.data.id], [202, database.id])
  const versions = (await by(DatabasesApi).listEnvironmentDatabaseConfig(environment.id)).data.results!
  assert.ok(versions.length >= 4)
})

test('the client makes a job, gives it an alias of a variable and runs its event again', async () => {
  const environment = await newEnvironment('jobs')
  const registry = (
    await by(ContainerRegistriesApi).createContainerRegistry(api.organizationId, {
      name: 'hub of jobs',
      kind: 'DOCKER_HUB',
      url: 'https://docker.io',
      config: {},
    })
  ).data
  const job = (
    await by(JobsApi).createJob(environment.id, {
      name: 'migrate',
      source: { image: { image_name: 'fake/serve', tag: '1', registry_id: registry.id } },
      schedule: { on_start: { arguments: ['up'] } },
      healthchecks: {},
    })
  ).data
  const variables = by(JobEnvironmentVariableApi)
  const variable = (await variables.createJobEnvironmentVariable(job.id, { key: 'A', value: '1' })).data
  const alias = (await variables.createJobEnvironmentVariableAlias(job.id, variable.id, { key: 'B' })).data
  assert.deepEqual([alias.variable_type, alias.aliased_variable!.key], ['ALIAS', 'A'])
  assert.equal((await by(JobActionsApi).redeployJob(job.id, 'START')).status, 202)
})

test('the client makes a chart, stops it and reads its history', async () => {
  const environment = await newEnvironment('charts')
  const helm = (
    await by(HelmsApi).createHelm(environment.id, {
      name: 'ingress',
      auto_deploy: false,
      source: { git_repository: { url: 'https://github.com/example/charts.git', branch: 'main', root_path: '/' } },
      arguments: [],
      values_override: {},
    })
  ).data
  assert.equal((await by(HelmActionsApi).stopHelm(helm.id)).status, 202)
  const history = (await by(HelmDeploymentHistoryApi).listHelmDeploymentHistory(helm.id)).data
  assert.equal(history.page, 1)
})

test('the client changes a secret of a project, lists those of an environment, and clones it', async () => {
  const environment = await newEnvironment('secrets')
  const secrets = by(ProjectSecretApi)
  const made = (await secrets.createProjectSecret(environment.project.id, { key: 'S', value: 'hidden' })).data
  const edited = (await secrets.editProjectSecret(environment.project.id, made.id, { key: 'S', value: 'other' })).data
  assert.equal(edited.key, 'S')
  const seen = (await by(EnvironmentSecretApi).listEnvironmentSecrets(environment.id)).data.results!
  assert.ok(seen.some(({ key }) => key === 'S'))
  const clone = await by(EnvironmentActionsApi).cloneEnvironment(environment.id, { name: 'copy', mode: 'PREVIEW' })
  assert.deepEqual([clone.status, clone.data.name, clone.data.mode], [202, 'copy', 'PREVIEW'])
})

test("the client's errors have our messages in the fields that clients read", async () => {
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

/** The operations of the specification (part 4). */
const specified = `listOrganization listProject createProject createEnvironment cloneEnvironment createCluster
  getRoutingTable get-environments-by-cluster-id listOrganizationCredentials getContainerRegistry
  getContainerRegistryContainerStatus getOrganizationGitToken createOrganizationWebhook deleteOrganizationWebhook
  createApplication deployApplication getApplicationStatus createApplicationEnvironmentVariable
  listApplicationEnvironmentVariable createApplicationSecret listApplicationLog createDatabase getDatabase
  deployDatabase listEnvironmentDatabaseConfig redeployJob stopHelm listHelmDeploymentHistory
  listContainerDeploymentHistoryV2 listDeploymentRequestByServiceId createJobEnvironmentVariableAlias editProjectSecret
  listEnvironmentSecrets`.split(/\s+/)

test('every operation of the specification was called by the client', async () => {
  await by(ProjectsApi).listProject(api.organizationId)
  assert.equal(specified.length, 33)
  assert.deepEqual(
    specified.filter((id) => !called.has(id)),
    [],
  )
})
