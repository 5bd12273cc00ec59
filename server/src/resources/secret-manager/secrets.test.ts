import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const clusters = `/organization/${organizationId}/cluster`
const writer = api.as(await api.newToken(['Write']))
const reader = api.as(await api.newToken(['Read']))

let made = 0
const create = async (more: Json = {}): Promise<Json> => {
  made += 1
  const ours = { cloud_provider: 'ON_PREMISE', kubernetes: 'SELF_MANAGED', region: 'on-premise' }
  const answer = await call('POST', clusters, { name: `cluster ${made}`, ...ours, ...more })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const inAws = { name: 'vault', endpoint: { mode: 'AWS_SECRET_MANAGER', region: 'eu-west-3' } }
const keys = { mode: 'AWS_STATIC_CREDENTIALS', region: 'eu-west-3', access_key: 'AKIA' }
const access = { ...inAws, authentication: { ...keys, secret_key: 'canary-1' } }
const google = {
  name: 'google',
  endpoint: { mode: 'GCP_SECRET_MANAGER', region: 'europe-west9', project_id: 'p' },
  authentication: { mode: 'GCP_JSON_CREDENTIALS', json_credentials: 'canary-2' },
}

/** The secrets that a deployment would use: the sealed text of each access, opened. */
const secretsOf = async (clusterId: string): Promise<Record<string, string>> => {
  const rows = await api.database.query<{ id: string; name: string; sealed: Record<string, string> }>(
    `select id, name, sealed from node where parent_id = $1 order by name`,
    [clusterId],
  )
  const opened: Record<string, string> = {}
  for (const { id, name, sealed } of rows)
    for (const [column, text] of Object.entries(sealed))
      opened[name] = (await api.parts.sealer.open(organizationId, { table: 'node', row: id, column }, text)).reveal()
  return opened
}

test('accesses to secret managers get ids, keep them and their secrets through edits, and never answer a secret', async () => {
  const cluster = await create({ secret_manager_accesses: [access, google] })
  const [vault, other] = cluster.secret_manager_accesses
  assert.deepEqual([vault.authentication, other.authentication], [keys, { mode: 'GCP_JSON_CREDENTIALS' }])
  assert.deepEqual(await secretsOf(cluster.id), { vault: 'canary-1', google: 'canary-2' })
  const path = `${clusters}/${cluster.id}`
  const untouched = await call('PUT', path, { description: 'x' })
  assert.deepEqual(untouched.body.secret_manager_accesses, cluster.secret_manager_accesses)

  const authentication = { ...keys, access_key: 'AKIB', secret_key: null }
  const edited = await call('PUT', path, { secret_manager_accesses: [{ ...inAws, id: vault.id, authentication }] })
  const [one, ...rest] = edited.body.secret_manager_accesses
  assert.deepEqual(
    [one.id, one.authentication.access_key, one.created_at, rest],
    [vault.id, 'AKIB', vault.created_at, []],
  )
  assert.deepEqual(await secretsOf(cluster.id), { vault: 'canary-1' })

  const again = { ...inAws, authentication: { ...keys, secret_key: 'canary-3' } }
  assert.equal(
    (await call('PUT', path, { secret_manager_accesses: [again] })).body.secret_manager_accesses[0].id,
    vault.id,
  )
  assert.deepEqual(await secretsOf(cluster.id), { vault: 'canary-3' })
  const shown = JSON.stringify([
    cluster,
    edited.body,
    (await call('GET', clusters)).body,
    (await call('GET', path)).body,
  ])
  assert.doesNotMatch(shown, /canary/)
})

test('two accesses may exchange their names in one edit', async () => {
  const role = { mode: 'AWS_ROLE_ARN', role_arn: 'arn:aws:iam::1:role/r' }
  const named = (name: string, id?: string) => ({
    ...inAws,
    name,
    authentication: role,
    ...(id === undefined ? {} : { id }),
  })
  const { id, secret_manager_accesses: before } = await create({ secret_manager_accesses: [named('a'), named('b')] })
  const swapped = [named('b', before[0].id), named('a', before[1].id)]
  const { status, body } = await call('PUT', `${clusters}/${id}`, { secret_manager_accesses: swapped })
  assert.equal(status, 200, JSON.stringify(body))
  assert.deepEqual(
    body.secret_manager_accesses.map((one: Json) => [one.id, one.name]),
    [
      [before[0].id, 'b'],
      [before[1].id, 'a'],
    ],
  )
})

test('an access that is incomplete, not of this cluster, a duplicate, or whose secret a writer sends is refused', async () => {
  const cluster = await create({ secret_manager_accesses: [access] })
  const other = await create()
  const at = '/secret_manager_accesses/0'
  const { secret_key: _, ...bare } = access.authentication
  const cases: [Json, string][] = [
    [{ ...access, authentication: bare }, `${at}/authentication/secret_key`],
    [{ ...access, authentication: { mode: 'MAGIC' } }, `${at}/authentication/mode`],
    [{ ...google, endpoint: { mode: 'GCP_SECRET_MANAGER', region: 'r' } }, `${at}/endpoint/project_id`],
    [{ ...access, id: cluster.secret_manager_accesses[0].id }, `${at}/id`],
  ]
  for (const [sent, field] of cases) {
    const { status, body } = await call('PUT', `${clusters}/${other.id}`, { secret_manager_accesses: [sent] })
    assert.deepEqual([status, body.details?.[0].field], [400, field], JSON.stringify(body))
  }
  const twice = { secret_manager_accesses: [access, { ...google, name: 'VAULT' }] }
  assert.equal((await call('PUT', `${clusters}/${other.id}`, twice)).status, 400)
  assert.equal((await writer('PUT', `${clusters}/${other.id}`, { secret_manager_accesses: [access] })).status, 403)
  assert.deepEqual((await call('GET', `${clusters}/${other.id}`)).body.secret_manager_accesses, [])
})

test('an access that an external secret refers to is listed with it, and stays until nothing does', async () => {
  const { id, secret_manager_accesses } = await create({ secret_manager_accesses: [access] })
  const { id: accessId } = secret_manager_accesses[0]
  const { projectId, environmentId } = await newPlace(api)
  const body = { value: 'prod/database', is_secret: false, secret_manager_access_id: accessId }
  const inProject = { key: 'WIDE', variable_scope: 'PROJECT', variable_parent_id: projectId }
  const inEnvironment = { key: 'NARROW', variable_scope: 'ENVIRONMENT', variable_parent_id: environmentId }
  const variables: Json[] = []
  for (const place of [inProject, inEnvironment]) {
    const answer = await call('POST', '/variable', { ...body, ...place })
    assert.equal(answer.status, 201, JSON.stringify(answer.body))
    variables.push(answer.body)
  }
  const { results } = (await call('GET', `/secretManagerAccess/${accessId}/associatedServices`)).body
  assert.deepEqual(
    results.map((one: Json) => [one.variable_name, one.external_secret_name, one.project_id, one.environment_id]),
    [
      ['WIDE', 'prod/database', projectId, ''],
      ['NARROW', 'prod/database', projectId, environmentId],
    ],
  )
  const drop = () => call('PUT', `${clusters}/${id}`, { secret_manager_accesses: [] })
  assert.equal((await drop()).body.code, 'secret_manager_access_in_use')
  assert.equal((await call('DELETE', `${clusters}/${id}`)).body.code, 'secret_manager_access_in_use')
  for (const variable of variables) assert.equal((await call('DELETE', `/variable/${variable.id}`)).status, 204)
  assert.deepEqual((await drop()).body.secret_manager_accesses, [])
  assert.equal((await call('GET', `/secretManagerAccess/${accessId}/associatedServices`)).status, 404)
})

const kubeconfig = 'apiVersion: v1\nkind: Config\nclusters: []\nusers:\n- name: me\n  user: {token: canary-4}\n'
const yaml = { 'content-type': 'application/x-yaml' }

test('a kubeconfig is taken as YAML, kept sealed, and shown as it was to an Admin only', async () => {
  const { id } = await create()
  const path = `${clusters}/${id}/kubeconfig`
  assert.deepEqual((await call('GET', path)).body.code, 'no_kubeconfig')
  assert.equal((await call('PUT', path, kubeconfig, yaml)).status, 204)
  const answer = await call('GET', path)
  assert.deepEqual([answer.status, answer.body], [200, kubeconfig])
  assert.equal(answer.headers.get('content-type'), 'application/x-yaml; charset=utf-8')
  const head = await call('HEAD', path)
  assert.deepEqual([head.status, head.body], [200, ''])
  assert.equal((await call('GET', path, undefined, { accept: 'text/html' })).status, 406)
  for (const lesser of [reader, writer]) assert.equal((await lesser('GET', path)).status, 403)
  assert.equal((await call('PUT', path, 'just: text', yaml)).status, 400)
  assert.equal((await call('PUT', `${clusters}/${id}`, '{}', yaml)).status, 415)
  const [row] = await api.database.query<{ text: string }>('select n::text as text from node n where id = $1', [id])
  assert.doesNotMatch(row!.text, /canary/)
  const local = await call('PUT', `${clusters}/${api.clusterId}/kubeconfig`, kubeconfig, yaml)
  assert.equal(local.status, 400)
})

test('the keys of a DNS provider are sealed and never answered; another provider takes their place', async () => {
  const { id } = await create()
  const path = `/cluster/${id}/dnsProvider`
  assert.deepEqual((await call('GET', path)).body, { dns_provider: { provider: 'QOVERY', domain: 'localhost' } })
  const place = { provider: 'ROUTE53', domain: 'shop.test', aws_region: 'eu-west-3' }
  const open = { type: 'STATIC', aws_access_key_id: 'AKIA' }
  const credentials = { ...open, aws_secret_access_key: 'canary-5' }
  const changed = await call('PUT', path, { dns_provider: { ...place, credentials } })
  assert.deepEqual([changed.status, changed.body], [200, { dns_provider: { ...place, credentials: open } }])
  assert.deepEqual((await call('GET', path)).body, changed.body)
  const missing = await call('PUT', path, { dns_provider: { ...place, provider: 'CLOUDFLARE', email: 'a@shop.test' } })
  assert.deepEqual([missing.status, missing.body.details[0].field], [400, '/dns_provider/api_token'])
  await call('PUT', path, { dns_provider: { provider: 'QOVERY', domain: 'shop.test' } })
  const [row] = await api.database.query<{ sealed: Json }>('select sealed from node where id = $1', [id])
  assert.deepEqual(row!.sealed, {})
  assert.equal((await call('PUT', `/cluster/${api.clusterId}/dnsProvider`, changed.body)).status, 400)
})

test('the parameters of a cluster can be read as values for Helm charts', async () => {
  const { id } = await create({
    infrastructure_charts_parameters: {
      nginx_parameters: { replica_count: 2, default_ssl_certificate: 'ns/cert: "x"' },
      metal_lb_parameters: { ip_address_pools: ['10.0.0.1-10.0.0.9'] },
    },
  })
  const { status, body } = await call('GET', `${clusters}/${id}/installationHelmValues`)
  assert.equal(status, 200)
  const [values, access] = String(body).split('kubernetesAccess:\n')
  assert.match(access!, /^ {2}apiVersion: "v1"\n {2}kind: "List"\n/)
  assert.equal(
    values,
    `global:
  clusterId: "${id}"
  organizationId: "${organizationId}"
  cloudProvider: "ON_PREMISE"
  region: "on-premise"
ingress-nginx:
  controller:
    replicaCount: 2
    extraArgs:
      default-ssl-certificate: "ns/cert: \\"x\\""
    service:
      annotations: {}
metallb:
  ipAddressPools:
    - "10.0.0.1-10.0.0.9"
`,
  )
  assert.equal((await call('GET', `${clusters}/${api.clusterId}/installationHelmValues`)).status, 400)
})
