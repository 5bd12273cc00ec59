import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}`
const clusters = `${base}/cluster`
const writer = api.as(await api.newToken(['Write']))

let made = 0
const own = (more: Json = {}): Json => {
  made += 1
  const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
  return { name: `cluster ${made}`, ...ours, ...more }
}
const create = async (more: Json = {}): Promise<Json> => {
  const answer = await call('POST', clusters, own(more))
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}
const find = async (id: string): Promise<Json> => (await call('GET', `${clusters}/${id}`)).body
const keysOf = async (provider: string, body: Json): Promise<Json> => {
  made += 1
  return (await call('POST', `${base}/${provider}/credentials`, { name: `keys ${made}`, ...body })).body
}
const aws = await keysOf('aws', { access_key_id: 'AKIA', secret_access_key: 'x' })
const cloud = (id: string, more: Json = {}): Json =>
  own({
    cloud_provider: 'AWS',
    kubernetes: 'MANAGED',
    region: 'eu-west-3',
    cloud_provider_credentials: { credentials: { id, name: 'whatever' }, region: 'eu-west-3' },
    ...more,
  })

test('what a request leaves out has its default, and the record has every field that clients read', async () => {
  const { name, id, ...found } = await create()
  assert.equal(name, `cluster ${made}`)
  for (const [field, expected] of Object.entries({
    min_running_nodes: 1,
    max_running_nodes: 1,
    disk_size: 40,
    production: false,
    is_demo: false,
    is_default: false,
    has_access: true,
    features: [],
    secret_manager_accesses: [],
    status: 'READY',
    deployment_status: 'NEVER_DEPLOYED',
    organization: { id: organizationId },
  }))
    assert.deepEqual(found[field], expected, field)
  const managed = await call('POST', clusters, { ...cloud(aws.id), kubernetes: undefined })
  assert.deepEqual([managed.status, managed.body.kubernetes], [201, 'MANAGED'])
  assert.deepEqual(await find(id), { name, id, ...found })
})

const ranges: [string, number, number][] = [
  ['disk_iops', 3000, 16_000],
  ['disk_throughput', 125, 1000],
]
for (const [field, least, most] of ranges)
  test(`${field} is taken from ${least} to ${most} and refused beyond, in creates and in edits`, async () => {
    const { id } = await create()
    for (const value of [least, most]) {
      assert.equal((await create({ [field]: value }))[field], value)
      assert.equal((await call('PUT', `${clusters}/${id}`, { [field]: value })).body[field], value)
    }
    for (const value of [least - 1, most + 1, least + 0.5, `0${least}`, String(most + 1)])
      for (const answer of [
        await call('POST', clusters, own({ [field]: value })),
        await call('PUT', `${clusters}/${id}`, { [field]: value }),
      ])
        assert.deepEqual([answer.status, answer.body.details?.[0].field], [400, `/${field}`], String(value))
  })

test('the request of the demo of existing clients is taken: a cluster of one machine with credentials that are a name', async () => {
  const { id, name } = await keysOf('onPremise', {})
  const credentials = { cloud_provider: 'ON_PREMISE', credentials: { id, name }, region: 'unknown' }
  const demo = await create({ production: false, is_demo: true, features: [], cloud_provider_credentials: credentials })
  assert.deepEqual([demo.is_demo, demo.cloud_provider_credentials], [true, credentials])
  assert.equal((await call('GET', `${clusters}/${demo.id}/installationHelmValues`)).status, 200)
  const twin = await call('POST', clusters, own({ name: demo.name.toUpperCase() }))
  assert.equal(twin.status, 409)
})

test('fewer nodes at most than at least are refused', async () => {
  const { id } = await create({ min_running_nodes: 2, max_running_nodes: 4 })
  const refused = await call('PUT', `${clusters}/${id}`, { max_running_nodes: 1 })
  assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/min_running_nodes'])
})

test('a cloud cluster names credentials of its provider and organization, and only an Admin names them', async () => {
  const scaleway = await keysOf('scaleway', {
    scaleway_access_key: 'a',
    scaleway_secret_key: 's',
    scaleway_project_id: 'p',
    scaleway_organization_id: 'o',
  })
  const without = await call('POST', clusters, cloud(aws.id, { cloud_provider_credentials: undefined }))
  assert.equal(without.status, 400)
  assert.match(without.body.message, /needs credentials of its provider/)
  for (const id of [scaleway.id, api.clusterId, organizationId]) {
    const wrong = await call('POST', clusters, cloud(id))
    assert.deepEqual([wrong.status, wrong.body.details[0].field], [400, '/cloud_provider_credentials/credentials/id'])
  }
  assert.equal((await writer('POST', clusters, cloud(aws.id))).status, 403)
  const { status, body } = await call('POST', clusters, cloud(aws.id))
  assert.equal(status, 201)
  const info = { cloud_provider: 'AWS', credentials: { id: aws.id, name: aws.name }, region: 'eu-west-3' }
  assert.deepEqual(body.cloud_provider_credentials, info)
  assert.deepEqual((await call('GET', `${clusters}/${body.id}/cloudProviderInfo`)).body, info)
  const sentBack = await writer('PUT', `${clusters}/${body.id}`, { cloud_provider_credentials: info, production: true })
  assert.deepEqual([sentBack.status, sentBack.body.production], [200, true])
  const renamed = await call('PUT', `${base}/aws/credentials/${aws.id}`, { name: 'renamed' })
  assert.equal(renamed.status, 200)
  assert.equal((await find(body.id)).cloud_provider_credentials.credentials.name, 'renamed')
  const inUse = await call('DELETE', `${base}/aws/credentials/${aws.id}`)
  assert.equal(inUse.status, 409)
})

test('credentials can be specified later, but not taken from a cloud cluster', async () => {
  const { body } = await call('POST', clusters, cloud(aws.id))
  const path = `${clusters}/${body.id}/cloudProviderInfo`
  const other = await keysOf('aws', { role_arn: 'arn:aws:iam::1:role/r' })
  const answer = await call('POST', path, { cloud_provider: 'AWS', credentials: { id: other.id }, region: 'eu-west-1' })
  assert.deepEqual([answer.status, answer.body.credentials.name, answer.body.region], [201, other.name, 'eu-west-1'])
  assert.equal((await call('POST', path, { region: 'eu-west-1' })).status, 400)
  assert.equal((await call('POST', path, { cloud_provider: 'GCP', credentials: { id: other.id } })).status, 400)
})

const everything = {
  description: 'all of it',
  instance_type: 't3.large',
  ssh_keys: ['ssh-ed25519 AAAA me'],
  disk_size: 100,
  metrics_parameters: {
    enabled: true,
    configuration: {
      kind: 'MANAGED_BY_QOVERY',
      resource_profile: 'LOW',
      high_availability: true,
      cloud_watch_export_config: { enabled: true },
      internal_network_monitoring: { enabled: false },
      alerting: { enabled: true, default_rule_labels: { team: 'shop' }, config_name: 'c' },
    },
  },
  keda: { enabled: true },
  infrastructure_charts_parameters: {
    nginx_parameters: { replica_count: 2, default_ssl_certificate: 'ns/cert' },
    cert_manager_parameters: { kubernetes_namespace: 'certs' },
    metal_lb_parameters: { ip_address_pools: ['10.0.0.1-10.0.0.9'] },
  },
}

test('every part of a description comes back as it was sent, and an edit keeps what it leaves out', async () => {
  const made = await create(everything)
  for (const [field, expected] of Object.entries(everything)) assert.deepEqual(made[field], expected, field)
  const moved = await call('PUT', `${clusters}/${made.id}`, { description: 'other', region: 'elsewhere' })
  assert.deepEqual([moved.status, moved.body.details[0].field], [400, '/region'])
  const { status, body } = await call('PUT', `${clusters}/${made.id}`, { description: 'other', region: made.region })
  assert.equal(status, 200)
  const { updated_at: _, ...kept } = body
  const { updated_at: __, ...before } = made
  assert.deepEqual(kept, { ...before, description: 'other' })
})

test('labels and git tokens that a cluster names must be there', async () => {
  const labels = [{ id: organizationId }]
  const refused = await call('POST', clusters, own({ labels_groups: labels }))
  assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/labels_groups/0/id'])
  const eks = { git_repository: { url: 'https://git.invalid/a/b.git', git_token_id: organizationId } }
  const charts = { eks_anywhere_parameters: { ...eks, yaml_file_path: 'cluster.yaml' } }
  const noToken = await call('POST', clusters, own({ infrastructure_charts_parameters: charts }))
  assert.equal(
    noToken.body.details[0].field,
    '/infrastructure_charts_parameters/eks_anywhere_parameters/git_repository/git_token_id',
  )
})

test('a feature is sent as an id and a value, and answered with its whole entry in the catalog', async () => {
  const listed = (await call('GET', '/aws/clusterFeature')).body.results
  const karpenter = {
    spot_enabled: true,
    disk_size_in_gib: 50,
    default_service_architecture: 'ARM64',
    qovery_node_pools: { requirements: [{ key: 'InstanceFamily', operator: 'In', values: ['t3'] }] },
  }
  const idOf = (title: RegExp): string => listed.find((one: Json) => title.test(one.title)).id
  const unknown = '0b9f4d3e-7a2c-4f4e-9f0e-2d1c3b4a5f60'
  const features = [
    { id: idOf(/address range/i), value: '10.0.0.0/16' },
    { id: idOf(/nodes on demand/i), value: karpenter },
    { id: 'STATIC_IP', value: true },
    { id: unknown, value: 'x' },
  ]
  const { body } = await call('POST', clusters, cloud(aws.id, { features }))
  assert.deepEqual(
    body.features.map(({ id, title, value_object }: Json) => [id, title, value_object]),
    [
      [features[0]!.id, 'Address range', { type: 'STRING', value: '10.0.0.0/16' }],
      [features[1]!.id, 'Nodes on demand', { type: 'KARPENTER', value: karpenter }],
      ['STATIC_IP', 'Static outgoing addresses', { type: 'BOOLEAN', value: true }],
      [unknown, '', { type: 'STRING', value: 'x' }],
    ],
  )
  for (const [value, field] of [
    [{ qovery_node_pools: karpenter.qovery_node_pools, spot_enabled: 'yes' }, '/features/0/value/spot_enabled'],
    [{ some: 'thing' }, '/features/0/value'],
    [
      { nat_gateway_type: { provider: 'gcp', static_ips_enabled: true } },
      '/features/0/value/nat_gateway_type/static_ips_count',
    ],
  ] as const) {
    const refused = await call('POST', clusters, cloud(aws.id, { features: [{ id: unknown, value }] }))
    const fields = refused.body.details.map((one: Json) => one.field)
    assert.ok(refused.status === 400 && fields.includes(field), JSON.stringify(refused.body))
  }
})

test('a cluster that this server cannot run on says so when it is deployed, upgraded or stopped; it can be edited and deleted', async () => {
  const { id } = await create()
  for (const [path, words] of [
    [`${clusters}/${id}/deploy`, /no credentials that this server can use/],
    [`/cluster/${id}/upgrade`, /no credentials that this server can use/],
    [`${clusters}/${id}/stop`, /nothing to stop/],
  ] as const) {
    const { status, body } = await call('POST', path)
    assert.equal(status, 400, path)
    assert.match(body.message, words)
  }
  const status = (await call('GET', `${clusters}/${id}/status`)).body
  assert.deepEqual([status.status, status.is_deployed], ['READY', false])
  assert.equal((await call('GET', `${clusters}/${id}/isReady`)).body.is_ready, false)
  assert.equal((await call('DELETE', `${clusters}/${id}?deleteMode=DELETE_QOVERY_CONFIG`)).status, 204)
  assert.equal((await call('GET', `${clusters}/${id}/status`)).status, 404)
})

test('the local cluster has nothing to deploy, is never stopped or deleted, and shows the resources of its machine', async () => {
  const { clusterId } = api
  const deployed = await call('POST', `${clusters}/${clusterId}/deploy?dry_run=true`)
  assert.deepEqual([deployed.status, deployed.body.status], [201, 'DEPLOYED'])
  assert.equal((await call('POST', `${clusters}/${clusterId}/stop`)).status, 409)
  assert.deepEqual((await call('DELETE', `${clusters}/${clusterId}`)).body.code, 'default_cluster')
  const local = await find(clusterId)
  assert.ok(local.cpu >= 1000 && local.memory > 100)
  assert.deepEqual([local.status, local.deployment_status, local.is_default], ['DEPLOYED', 'UP_TO_DATE', true])
})

test('a cluster with an environment cannot be deleted', async () => {
  const { id } = await create()
  const { projectId } = await newPlace(api)
  const environment = await call('POST', `/project/${projectId}/environment`, { name: 'on it', cluster_id: id })
  assert.equal(environment.status, 201)
  assert.deepEqual((await call('DELETE', `${clusters}/${id}`)).body.code, 'cluster_in_use')
  assert.deepEqual((await call('GET', `/cluster/${id}/environments`)).body.results[0].environment_name, 'on it')
})

test('a lock keeps a cluster from being deployed and deleted until it is taken away or its days are over', async () => {
  const { clusterId } = api
  const locked = await call('POST', `/cluster/${clusterId}/lock`, { reason: 'moving house', ttl_in_days: 2 })
  assert.deepEqual([locked.status, locked.body.reason, locked.body.cluster_id], [200, 'moving house', clusterId])
  assert.equal((await call('POST', `/cluster/${clusterId}/lock`, { reason: 'mine' })).status, 409)
  assert.equal((await call('POST', `${clusters}/${clusterId}/deploy`)).body.code, 'cluster_locked')
  assert.deepEqual((await call('GET', `${base}/lock`)).body.results, [locked.body])
  assert.deepEqual((await call('GET', `${clusters}/${clusterId}/status`)).body.cluster_lock, locked.body)
  assert.equal((await find(clusterId)).lock, undefined)
  await api.database.query(
    `update node set spec = jsonb_set(spec, '{lock,locked_at}', '"2020-01-01T00:00:00Z"') where id = $1`,
    [clusterId],
  )
  assert.deepEqual((await call('GET', `${base}/lock`)).body.results, [])
  assert.equal((await call('POST', `/cluster/${clusterId}/lock`, { reason: 'mine' })).status, 200)
  assert.equal((await call('DELETE', `/cluster/${clusterId}/lock`)).status, 204)
  assert.equal((await call('POST', `${clusters}/${clusterId}/deploy`)).status, 201)
  const events = await api.database.query(
    `select event_type from event where target_id = $1 and event_type in ('LOCK', 'UNLOCK') order by created_at`,
    [clusterId],
  )
  assert.deepEqual(
    events.map((event) => (event as Json).event_type),
    ['LOCK', 'LOCK', 'UNLOCK'],
  )
})

test('advanced settings have their defaults, keep the set that was sent last, and refuse strange keys and types', async () => {
  const { id } = await create()
  const path = `${clusters}/${id}/advancedSettings`
  const defaults = (await call('GET', '/defaultClusterAdvancedSettings')).body
  assert.equal(defaults['loki.log_retention_in_week'], 12)
  assert.deepEqual((await call('GET', path)).body, defaults)
  const one = { 'loki.log_retention_in_week': 3 }
  const other = { 'cloud_provider.container_registry.tags': { team: 'shop' } }
  assert.deepEqual((await call('PUT', path, one)).body, { ...defaults, ...one })
  const { status, body } = await call('PUT', path, other)
  assert.deepEqual([status, body], [201, { ...defaults, ...other }])
  assert.deepEqual((await call('GET', path)).body, body)
  // A setting that would protect nothing here is refused.
  const open = await call('PUT', path, { 'database.redis.allowed_cidrs': ['10.0.0.0/8'] })
  assert.deepEqual([open.status, open.body.details[0].field], [400, '/database.redis.allowed_cidrs'])
  for (const wrong of [{ 'loki.nothing': 1 }, { 'loki.log_retention_in_week': '03' }, { 'loki.deployment_mode': 'x' }])
    assert.equal((await call('PUT', path, wrong)).status, 400, JSON.stringify(wrong))
  assert.equal((await find(id)).advanced_settings, undefined)
})

test('network routes are kept for a cluster elsewhere; those of the local one follow from its services', async () => {
  const { id } = await create()
  const routes = [{ destination: '10.9.0.0/16', target: 'peering-1', description: 'the office' }]
  assert.deepEqual((await call('PUT', `${clusters}/${id}/routingTable`, { routes })).body, { results: routes })
  assert.deepEqual((await call('GET', `${clusters}/${id}/routingTable`)).body, { results: routes })
  assert.equal((await call('PUT', `${clusters}/${api.clusterId}/routingTable`, { routes })).status, 400)
  assert.deepEqual((await find(id)).routes, undefined)
})
