import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}`

const keys = { access_key_id: 'AKIA', secret_access_key: 'canary-1' }
const role = { role_arn: 'arn:aws:iam::1:role/r' }
const vsphere = { vsphere_user: 'root', vsphere_password: 'canary-2' }
const identity = {
  service_account_email: 'deployer@my-project.iam.gserviceaccount.com',
  workload_identity_provider_resource: 'projects/42/locations/global/workloadIdentityPools/p/providers/q',
}
const scaleway = { scaleway_access_key: 'SCW', scaleway_project_id: 'p', scaleway_organization_id: 'o' }
const azure = { azure_subscription_id: 's', azure_tenant_id: 't' }
const wif = {
  object_type: 'GCP_WORKLOAD_IDENTITY_FEDERATION',
  ...identity,
  project_id: 'my-project',
  token_lifetime_seconds: 3600,
}

/** Provider, the sent fields, the answered fields. */
const forms: [string, Json, Json][] = [
  ['aws', { type: 'AWS_STATIC', ...keys }, { object_type: 'AWS', access_key_id: 'AKIA' }],
  ['aws', keys, { object_type: 'AWS', access_key_id: 'AKIA' }],
  ['aws', { type: 'AWS_ROLE', ...role }, { object_type: 'AWS_ROLE', ...role }],
  ['aws', role, { object_type: 'AWS_ROLE', ...role }],
  [
    'aws',
    { type: 'EKS_ANYWHERE_VSPHERE_STATIC', ...vsphere, ...keys },
    { object_type: 'EKS_ANYWHERE_VSPHERE', vsphere_user: 'root', access_key_id: 'AKIA' },
  ],
  [
    'aws',
    { type: 'EKS_ANYWHERE_VSPHERE_ROLE', ...vsphere, ...role },
    { object_type: 'EKS_ANYWHERE_VSPHERE', vsphere_user: 'root', ...role },
  ],
  ['azure', azure, { object_type: 'AZURE', ...azure, azure_application_id: '', azure_application_object_id: '' }],
  ['gcp', { gcp_credentials: 'canary-3' }, { object_type: 'GCP' }],
  ['gcp', { credential_type: 'SERVICE_ACCOUNT_KEY', gcp_credentials: 'canary-4' }, { object_type: 'GCP' }],
  ['gcp', identity, wif],
  ['gcp', { credential_type: 'WIF', ...identity }, wif],
  ['scaleway', { ...scaleway, scaleway_secret_key: 'canary-5' }, { object_type: 'SCW', ...scaleway }],
  ['onPremise', {}, { object_type: 'OTHER' }],
]

let made = 0
const create = async (provider: string, body: Json): Promise<Json> => {
  made += 1
  const answer = await call('POST', `${base}/${provider}/credentials`, { name: `credentials ${made}`, ...body })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

test('every form of every provider is kept and told apart; an edit keeps what it leaves out; no secret is answered', async () => {
  const answers: unknown[] = []
  for (const [provider, body, expected] of forms) {
    const one = await create(provider, body)
    const { id, name, created_at: _, updated_at: __, type: ___, credential_type: ____, ...rest } = one
    assert.deepEqual(rest, expected)
    const path = `${base}/${provider}/credentials/${id}`
    assert.deepEqual((await call('GET', path)).body, one)
    const edited = await call('PUT', path, { name: `${name} renamed` })
    assert.deepEqual({ ...edited.body, updated_at: '' }, { ...one, name: `${name} renamed`, updated_at: '' })
    answers.push(one, edited.body, (await call('GET', `${base}/${provider}/credentials`)).body)
  }
  const all = (await call('GET', `${base}/credentials`)).body
  assert.equal(all.results.length, forms.length)
  const stored = await api.database.query('select spec from node')
  const events = await api.database.query('select change from event')
  assert.doesNotMatch(JSON.stringify([answers, all, stored, events]), /canary/)
})

test('what a form needs is asked for by name', async () => {
  const refused: [string, Json, string][] = [
    ['aws', {}, '/access_key_id'],
    ['aws', { access_key_id: 'a' }, '/secret_access_key'],
    ['aws', { type: 'AWS_ROLE', ...keys }, '/role_arn'],
    ['aws', { type: 'EKS_ANYWHERE_VSPHERE_ROLE', ...role }, '/vsphere_user'],
    ['aws', { type: 'AWS_MAGIC', ...role }, '/type'],
    ['azure', { azure_tenant_id: 't' }, '/azure_subscription_id'],
    ['gcp', { credential_type: 'WIF', gcp_credentials: '{}' }, '/service_account_email'],
    ['scaleway', scaleway, '/scaleway_secret_key'],
  ]
  for (const [provider, body, field] of refused) {
    const answer = await call('POST', `${base}/${provider}/credentials`, { name: 'refused', ...body })
    assert.deepEqual([answer.status, answer.body.details?.[0]?.field], [400, field], JSON.stringify(body))
  }
})

test('credentials change their form, and fields of the old one go', async () => {
  const { id } = await create('aws', keys)
  const path = `${base}/aws/credentials/${id}`
  const changed = (await call('PUT', path, { type: 'AWS_ROLE', ...role })).body
  assert.deepEqual(
    [changed.object_type, changed.role_arn, changed.access_key_id],
    ['AWS_ROLE', role.role_arn, undefined],
  )
})

test('only an Admin makes, changes or deletes them; the lists are not for who only deploys', async () => {
  const { id } = await create('onPremise', {})
  const collection = `${base}/onPremise/credentials`
  const writer = api.as(await api.newToken(['Write', 'Read', 'Deploy']))
  assert.equal((await writer('POST', collection, { name: 'x' })).status, 403)
  assert.equal((await writer('PUT', `${collection}/${id}`, { name: 'x' })).status, 403)
  assert.equal((await writer('DELETE', `${collection}/${id}`)).status, 403)
  assert.equal((await writer('GET', `${collection}/${id}`)).status, 200)
  const deployer = api.as(await api.newToken(['Deploy']))
  for (const path of [collection, `${collection}/${id}`, `${base}/credentials`])
    assert.equal((await deployer('GET', path)).status, 403)
})

test('credentials of one provider are not found among those of another, nor from another organization', async () => {
  const { id } = await create('aws', keys)
  assert.equal((await call('GET', `${base}/gcp/credentials/${id}`)).status, 404)
  assert.equal((await call('DELETE', `${base}/onPremise/credentials/${id}`)).status, 404)
  const stranger = await api.newOrganization()
  const theirs = api.as(stranger.token)
  assert.equal((await theirs('GET', `/organization/${stranger.id}/aws/credentials/${id}`)).status, 404)
  assert.deepEqual((await theirs('GET', `/organization/${stranger.id}/credentials`)).body, { results: [] })
})

test('names are unique within a provider; credentials that a cluster uses show it and cannot be deleted', async () => {
  const { id, name } = await create('aws', keys)
  const path = `${base}/aws/credentials`
  assert.equal((await call('POST', path, { name: name.toUpperCase(), ...keys })).body.code, 'name_taken')
  const spec = { cloud_provider_credentials: { cloud_provider: 'AWS', credentials: { id, name }, region: 'eu' } }
  await api.database.query('update node set spec = spec || $2::jsonb where id = $1', [
    api.clusterId,
    JSON.stringify(spec),
  ])
  const all = (await call('GET', `${base}/credentials`)).body.results
  const entry = all.find(({ credential }: Json) => credential.id === id)
  assert.deepEqual(entry.clusters, [{ id: api.clusterId, name: 'local', cloud_provider: 'ON_PREMISE' }])
  assert.equal(entry.credential.access_key_id, 'AKIA')
  const refused = await call('DELETE', `${path}/${id}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'credentials_in_use'])
  await api.database.query(`update node set spec = spec - 'cloud_provider_credentials' where id = $1`, [api.clusterId])
  assert.equal((await call('DELETE', `${path}/${id}`)).status, 204)
})
