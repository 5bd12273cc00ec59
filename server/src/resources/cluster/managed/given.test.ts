/** The inputs of a module: every field of a cluster that it can read, its login, and nothing else. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, startApi } from '../../../../test/support/api.ts'
import { closedValues } from '../../../../test/support/closed-values.ts'
import { resourceFields } from '../../../api/operations/field-table.ts'
import { fieldsOf } from '../../../api/operations/fields.ts'
import { type ClusterModule, inputsFor } from '../../../clusters/modules.ts'
import { isRefusedLogin, loginRefusal, openLogin } from '../../../clusters/provider-login.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { readEngines } from '../../../limits/engine-room.ts'
import { usualLimits } from '../../../limits/limits.ts'
import { operations } from '../../index.ts'
import { readDocument } from './document.ts'

const module: ClusterModule = {
  ...{ engine: 'terraform', source: 'git::https://git.example/eks.git?ref=v1', inputs: { all: '' }, versions: [] },
  ...{ outputs: { kubeconfig: 'kubeconfig' }, timeoutMinutes: 60 },
}
const modules: Json = { AWS: module, GCP: module, AZURE: module, SCW: module }
const api = await startApi({ idle: true, settings: { clusterModules: modules } })
const { call, database, organizationId } = api
const base = `/organization/${organizationId}`

const send = async (method: string, path: string, body: Json): Promise<{ body: Json; notApplied: string }> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${path} ${JSON.stringify(body)}: ${JSON.stringify(answer.body)}`)
  return { body: answer.body, notApplied: answer.headers.get('slipway-not-applied') ?? '' }
}

const rowOf = async (id: string): Promise<Json> => {
  const [row] = await database.query<Json>(
    'select id, organization_id as "organizationId", name, spec from node where id = $1',
    [id],
  )
  return row
}
const documentOf = async (id: string): Promise<Json> =>
  readDocument(database, await rowOf(id), { kubernetes_version: null, stopped: false })

const labels = (
  await send('POST', `${base}/labelsGroups`, {
    name: 'labels',
    labels: [
      { key: 'team', value: 'shop', propagate_to_cloud_provider: true },
      { key: 'floor', value: 'two', propagate_to_cloud_provider: false },
    ],
  })
).body
const gitToken = (await send('POST', `${base}/gitToken`, { name: 'git', type: 'GITHUB', token: 'x' })).body
const keys = (
  await send('POST', `${base}/aws/credentials`, {
    ...{ name: 'keys', type: 'AWS_STATIC', access_key_id: 'AKIA', secret_access_key: 'the-secret' },
  })
).body
const cluster = (
  await send('POST', `${base}/cluster`, {
    ...{ name: 'cloud', region: 'eu-west-3', cloud_provider: 'AWS' },
    cloud_provider_credentials: { credentials: { id: keys.id }, region: 'eu-west-3' },
  })
).body
const path = `${base}/cluster/${cluster.id}`

const eksAnywhere = {
  git_repository: {
    url: 'https://git.example/a.git',
    branch: 'main',
    commit_id: 'a1',
    git_token_id: gitToken.id,
    provider: 'GITHUB',
  },
  yaml_file_path: 'cluster.yaml',
  cluster_backup: {
    ...{ enabled: false, timeout_seconds: 60, certs_secret_name: 'certs' },
    s3: { bucket: 'b', region: 'r', role_arn: 'arn', key_prefix: 'p' },
  },
}
/** Every field of a cluster that a module can read, each different from its default. */
const everything: Json = {
  ...{ min_running_nodes: 3, max_running_nodes: 5, disk_size: 50, disk_iops: 4000, disk_throughput: 200 },
  ...{ instance_type: 't3.large', production: true, ssh_keys: ['ssh-ed25519 AAAA me'], keda: { enabled: true } },
  features: [{ id: 'STATIC_IP', value: true }],
  labels_groups: [{ id: labels.id }],
  metrics_parameters: {
    enabled: true,
    configuration: {
      ...{ kind: 'MANAGED_BY_QOVERY', resource_profile: 'LOW', high_availability: true },
      ...{ cloud_watch_export_config: { enabled: true }, internal_network_monitoring: { enabled: true } },
      alerting: {
        ...{ enabled: true, default_rule_labels: { team: 'shop' }, spec_config_secret: 's', config_name: 'c' },
        spec_external_url: 'https://alerts.example',
      },
    },
  },
  infrastructure_charts_parameters: {
    nginx_parameters: {
      ...{ replica_count: 2, default_ssl_certificate: 'ns/cert', publish_status_address: '10.0.0.1' },
      ...{ annotation_metal_lb_load_balancer_ips: '10.0.0.2', annotation_external_dns_kubernetes_target: 'x.example' },
    },
    cert_manager_parameters: { kubernetes_namespace: 'certs' },
    metal_lb_parameters: { ip_address_pools: ['10.0.0.1-10.0.0.9'] },
    eks_anywhere_parameters: eksAnywhere,
  },
}

const at = (value: Json, pointer: string): Json =>
  pointer
    .slice(1)
    .split('/')
    .reduce((inner, name) => inner?.[name === '*' ? 0 : name], value)

const withValue = (value: Json, [name, ...rest]: string[], given: unknown): Json =>
  name === undefined
    ? given
    : Array.isArray(value)
      ? [withValue(value[0], rest, given)]
      : { ...value, [name]: withValue(value?.[name], rest, given) }

const forModule = resourceFields(operations).filter(({ elsewhere }) => elsewhere)
const fieldsBy = (operationId: string): string[] =>
  forModule.filter(({ operations: all }) => all.includes(operationId)).map(({ field }) => field)

test('every field of a cluster that a module can read is given to it, with each value of its list', async () => {
  const fields = fieldsBy('editCluster')
  assert.ok(fields.length > 35, String(fields.length))
  for (const field of fields) assert.notEqual(at(everything, field), undefined, `${field} has no sample`)
  assert.equal((await send('PUT', path, everything)).notApplied, '')
  const { all } = inputsFor(module, await documentOf(cluster.id)) as Json
  for (const field of fields) assert.deepEqual(at(all, field), at(everything, field), field)
  assert.deepEqual([all.labels, all.name, all.region], [{ team: 'shop' }, 'cloud', 'eu-west-3'])
  assert.ok(all.access_rules.some(({ resources }: Json) => resources.includes('namespaces')))
  assert.ok(!JSON.stringify(all).includes('the-secret'))
  const closed = forModule.filter(({ values, operations: all }) => values.length > 0 && all.includes('editCluster'))
  for (const { field } of closed)
    for (const value of closedValues('editCluster', field)) {
      await send('PUT', path, withValue(everything, field.slice(1).split('/'), value))
      assert.equal(at(await documentOf(cluster.id), field), value)
    }
})

const settingSample = (schema: Json): unknown => {
  const one = schema.anyOf?.find(({ type }: Json) => type !== 'null') ?? schema
  if (one.type === 'boolean') return one.default !== true
  if (one.type === 'integer') return (one.default ?? 1) + 1
  if (one.type === 'object') return { team: 'shop' }
  return one.enum?.find((value: string) => value !== one.default) ?? 'sample'
}

test('every advanced setting of a cluster that a module can read is given to it, with each value of its list', async () => {
  const operation = operations.find(({ id }) => id === 'editClusterAdvancedSettings')!
  const rows = fieldsOf(operation).filter(({ elsewhere }) => elsewhere)
  assert.ok(rows.length > 40, String(rows.length))
  const sent = Object.fromEntries(rows.map(({ field, schema }) => [field.slice(1), settingSample(schema as Json)]))
  assert.equal((await send('PUT', `${path}/advancedSettings`, sent)).notApplied, '')
  const { advanced_settings: given } = await documentOf(cluster.id)
  for (const [name, value] of Object.entries(sent)) assert.deepEqual(given[name], value, name)
  for (const { field, values } of rows.filter(({ values }) => values.length > 0)) {
    assert.deepEqual(closedValues(operation.id, field), values)
    for (const value of values) {
      await send('PUT', `${path}/advancedSettings`, { [field.slice(1)]: value })
      assert.equal((await documentOf(cluster.id)).advanced_settings[field.slice(1)], value)
    }
  }
})

test('what no module reads is named as not applied, and no more than that', async () => {
  modules.AWS = {
    ...module,
    inputs: { nodes: '/min_running_nodes', nginx: '/infrastructure_charts_parameters/nginx_parameters/replica_count' },
  }
  const { notApplied } = await send('PUT', path, {
    ...{ min_running_nodes: 4, disk_size: 77 },
    infrastructure_charts_parameters: { nginx_parameters: { replica_count: 3, default_ssl_certificate: 'a/b' } },
  })
  const names = notApplied.split(', ').toSorted()
  assert.deepEqual(names, ['/disk_size', '/infrastructure_charts_parameters/nginx_parameters/default_ssl_certificate'])
  const settings = await send('PUT', `${path}/advancedSettings`, { 'load_balancer.size': 'lb-xl' })
  assert.equal(settings.notApplied, '/load_balancer.size')
  delete modules.AWS
  assert.equal((await send('PUT', path, { disk_size: 78 })).notApplied, '/disk_size')
  const bare = await send('POST', `${base}/aws/credentials`, {
    name: 'bare',
    access_key_id: 'A',
    secret_access_key: 'b',
  })
  assert.match(bare.notApplied, /\/access_key_id/)
  modules.AWS = module
})

/** The credentials of each provider, and the variables that the tool reads. */
const logins: Json = {
  AWS: {
    path: 'aws',
    body: { type: 'AWS_STATIC', access_key_id: 'AKIA', secret_access_key: 'secret-of-aws' },
    env: {
      AWS_ACCESS_KEY_ID: 'AKIA',
      AWS_SECRET_ACCESS_KEY: 'secret-of-aws',
      AWS_REGION: 'r',
      AWS_DEFAULT_REGION: 'r',
      AWS_EC2_METADATA_DISABLED: 'true',
    },
    hidden: ['secret-of-aws'],
  },
  GCP: {
    path: 'gcp',
    body: { credential_type: 'SERVICE_ACCOUNT_KEY', gcp_credentials: '{"project_id":"shop"}' },
    env: { GOOGLE_CREDENTIALS: '{"project_id":"shop"}', GOOGLE_REGION: 'r', GOOGLE_PROJECT: 'shop' },
    hidden: ['{"project_id":"shop"}'],
  },
  AZURE: {
    path: 'azure',
    body: {
      ...{ azure_subscription_id: 's', azure_tenant_id: 't', azure_application_id: 'a' },
      azure_application_secret: 'secret-of-azure',
    },
    env: {
      ...{ ARM_SUBSCRIPTION_ID: 's', ARM_TENANT_ID: 't', ARM_CLIENT_ID: 'a', ARM_CLIENT_SECRET: 'secret-of-azure' },
      ...{ ARM_USE_CLI: 'false', ARM_USE_MSI: 'false' },
    },
    hidden: ['secret-of-azure'],
  },
  SCW: {
    path: 'scaleway',
    body: {
      ...{ scaleway_access_key: 'k', scaleway_secret_key: 'secret-of-scaleway' },
      ...{ scaleway_project_id: 'p', scaleway_organization_id: 'o' },
    },
    env: {
      ...{ SCW_ACCESS_KEY: 'k', SCW_SECRET_KEY: 'secret-of-scaleway', SCW_DEFAULT_PROJECT_ID: 'p' },
      ...{ SCW_DEFAULT_ORGANIZATION_ID: 'o', SCW_DEFAULT_REGION: 'r' },
    },
    hidden: ['secret-of-scaleway'],
  },
}

test('the credentials of each provider become the variables that its tool reads, and of no other provider', async () => {
  const parts = { database, sealer: api.parts.sealer }
  const stranger = await api.newOrganization()
  for (const [vendor, { path: word, body, env, hidden }] of Object.entries(logins) as [string, Json][]) {
    const { body: made, notApplied } = await send('POST', `${base}/${word}/credentials`, {
      name: `login ${vendor}`,
      ...body,
    })
    assert.ok(!/key|secret|azure_app|gcp_cred/.test(notApplied), notApplied)
    assert.ok(!JSON.stringify(made).includes('secret-of'))
    const edited = await send('PUT', `${base}/${word}/credentials/${made.id}`, { name: `login of ${vendor}` })
    assert.ok(!JSON.stringify(edited.body).includes('secret-of'))
    const spec = { cloud_provider: vendor, region: 'r', cloud_provider_credentials: { credentials: { id: made.id } } }
    assert.equal(await loginRefusal(database, organizationId, spec), null)
    const login = await openLogin(parts, organizationId, spec)
    assert.deepEqual(login.reveal(), { env, hidden })
    assert.ok(!JSON.stringify([login]).includes('secret-of'))
    assert.match((await loginRefusal(database, stranger.id, spec))!, /must have/)
    await assert.rejects(openLogin(parts, stranger.id, spec), DeploymentError)
  }
})

test('a login at Google is the key of an account, and nothing that makes the tool look for a login elsewhere', async () => {
  const others = [
    { type: 'external_account', credential_source: { url: 'http://169.254.169.254/' } },
    { type: 'service_account', Type: 'external_account' },
    { type: 'authorized_user' },
    '/etc/passwd',
  ]
  for (const [index, other] of others.entries()) {
    const { body } = await send('POST', `${base}/gcp/credentials`, {
      ...{ name: `other ${index}`, credential_type: 'SERVICE_ACCOUNT_KEY' },
      gcp_credentials: typeof other === 'string' ? other : JSON.stringify(other),
    })
    const info = { credentials: { id: body.id } }
    const spec = { cloud_provider: 'GCP', region: 'r', cloud_provider_credentials: info }
    const opened = openLogin({ database, sealer: api.parts.sealer }, organizationId, spec)
    await assert.rejects(opened, { code: 'login_missing', message: /the key of a service account/ })
  }
})

test('clusters that are being made count for the limit of connected ones', async () => {
  const { settings } = api.parts
  modules.AWS = { ...module, image: 'fake/tool:1' }
  api.parts.settings = {
    ...settings,
    limits: { ...usualLimits, engines: (await readEngines(database, organizationId)) + 1 },
  }
  const deploys: string[] = []
  for (const name of ['one', 'two']) {
    const { body } = await send('POST', `${base}/cluster`, {
      ...{ name: `limited ${name}`, region: 'eu-west-3', cloud_provider: 'AWS' },
      cloud_provider_credentials: { credentials: { id: keys.id }, region: 'eu-west-3' },
    })
    deploys.push(`${base}/cluster/${body.id}/deploy`)
  }
  const answers = [await call('POST', deploys[0]!), await call('POST', deploys[1]!)]
  assert.deepEqual(
    answers.map(({ status }) => status),
    [201, 409],
  )
  assert.equal(answers[1]!.body.code, 'limit_reached')
  api.parts.settings = settings
  modules.AWS = module
})

test('a provider’s message about a refused login is distinguished from every other failure', () => {
  const refused: [string, string][] = [
    ['AWS', 'api error InvalidClientTokenId: The security token included in the request is invalid.'],
    ['AWS', 'api error SignatureDoesNotMatch: The request signature we calculated does not match'],
    ['AWS', 'Error: No valid credential sources found'],
    ['GCP', 'oauth2: "invalid_grant" "Invalid grant: account not found"'],
    ['GCP', 'googleapi: Error 401: Request had invalid authentication credentials.'],
    ['AZURE', 'AADSTS7000215: Invalid client secret provided.'],
    ['SCW', 'scaleway-sdk-go: denied authentication: invalid api key'],
  ]
  for (const [vendor, line] of refused) assert.equal(isRefusedLogin(vendor, ['plan', line]), true, line)
  const others: [string, string][] = [
    ['AWS', 'Error: creating EKS Cluster: VcpuLimitExceeded'],
    ['GCP', 'googleapi: Error 403: Insufficient regional quota'],
    ['AZURE', 'Error: QuotaExceeded'],
    ['SCW', 'Error: quota exceeded'],
    ['ORACLE', 'AADSTS7000215'],
  ]
  for (const [vendor, line] of others) assert.equal(isRefusedLogin(vendor, [line]), false, line)
})
