import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cronBody } from '../../../test/cases/job.ts'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { closedValues } from '../../../test/support/closed-values.ts'
import { readRegistryCredentials, readRegistryLogins } from '../../deployments/credentials/registry-credentials.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}/containerRegistry`

let made = 0
const create = async (body: Json, collection = base): Promise<Json> => {
  made += 1
  const answer = await call('POST', collection, { name: `registry ${made}`, ...body })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return answer.body
}

const generic = { kind: 'GENERIC_CR', url: 'https://images.invalid', config: { username: 'bot', password: 'p-canary' } }
const login = async (id: string) => {
  const found = await readRegistryCredentials(api.database, api.parts.sealer, organizationId, id)
  return found === null ? null : [found.url, found.username, found.password?.reveal() ?? null]
}

const newContainer = async (registryId: string): Promise<Json> => {
  const { environmentId } = await newPlace(api)
  made += 1
  const body = { name: `container ${made}`, registry_id: registryId, image_name: 'shop/api', tag: '1', ports: [] }
  const answer = await call('POST', `/environment/${environmentId}/container`, { ...body, healthchecks: {} })
  assert.equal(answer.status, 201, JSON.stringify(answer.body))
  return { ...answer.body, environmentId }
}

const secretNames = ['password', 'secret_access_key', 'scaleway_secret_key', 'json_credentials']

test('every field of every kind is kept and read back, but no secret is ever answered, listed or audited', async () => {
  const open = {
    username: 'u',
    region: 'eu-west-3',
    access_key_id: 'AKIA',
    role_arn: 'arn:aws:iam::1:role/r',
    scaleway_access_key: 'SCW',
    scaleway_project_id: 'project',
    gcp_credentials_type: 'workload_identity_federation',
    project_id: 'p',
    service_account_email: 'a@p.iam.gserviceaccount.com',
    workload_identity_provider_resource: 'projects/1/x',
    token_lifetime_seconds: 3600,
    azure_tenant_id: 't',
    azure_subscription_id: 's',
    azure_application_id: 'a',
    azure_application_object_id: 'o',
  }
  const secrets = Object.fromEntries(secretNames.map((name) => [name, `canary-${name}`]))
  const { results: kinds } = (await call('GET', '/availableContainerRegistry')).body
  const values = closedValues('createContainerRegistry', '/kind')
  assert.deepEqual(
    kinds.map(({ kind }: Json) => kind),
    values,
  )
  const answers: unknown[] = []
  for (const { kind } of kinds) {
    const url = { DOCKER_HUB: 'https://docker.io', GITHUB_CR: 'https://ghcr.io' }[kind as string]
    const body = { kind, description: 'ours', url: url ?? `https://${kind.toLowerCase().replace('_', '-')}.invalid` }
    const one = await create({ ...body, config: { ...open, ...secrets } })
    const read = await call('GET', `${base}/${one.id}`)
    assert.deepEqual(read.body, one)
    assert.deepEqual(
      [one.kind, one.description, one.url, one.config, one.associated_services_count],
      [kind, 'ours', body.url, open, 0],
    )
    answers.push(one, (await call('PUT', `${base}/${one.id}`, { config: secrets })).body)
  }
  answers.push((await call('GET', base)).body)
  const kept = await api.database.query('select spec, name from node')
  const events = await api.database.query('select change from event')
  assert.doesNotMatch(JSON.stringify([answers, kept, events]), /canary/)
})

test('an edit keeps what it leaves out, inside the configuration too', async () => {
  const { id } = await create({ ...generic, description: 'first' })
  const renamed = await call('PUT', `${base}/${id}`, { name: 'renamed' })
  assert.deepEqual(
    [renamed.body.name, renamed.body.description, renamed.body.config],
    ['renamed', 'first', { username: 'bot' }],
  )
  assert.deepEqual(await login(id), ['https://images.invalid', 'bot', 'p-canary'])
  await call('PUT', `${base}/${id}`, { config: { password: 'next' } })
  assert.deepEqual(await login(id), ['https://images.invalid', 'bot', 'next'])
  await call('PUT', `${base}/${id}`, { config: { username: '', password: '' } })
  assert.deepEqual(await login(id), ['https://images.invalid', null, null])
})

test('a kept password is not moved to another host or kind: it must be sent again, or emptied', async () => {
  const { id } = await create(generic)
  for (const change of [{ url: 'https://elsewhere.invalid' }, { kind: 'DOCKER_HUB', url: 'https://docker.io' }]) {
    const refused = await call('PUT', `${base}/${id}`, change)
    assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/config/password'])
  }
  assert.equal((await call('PUT', `${base}/${id}`, { url: 'https://images.invalid/team' })).status, 200)
  const moved = { url: 'https://elsewhere.invalid', config: { password: 'again' } }
  assert.equal((await call('PUT', `${base}/${id}`, moved)).status, 200)
  assert.deepEqual(await login(id), ['https://elsewhere.invalid', 'bot', 'again'])
})

test('addresses fit their kind, and each kind says what it needs', async () => {
  const refusals: [Json, string][] = [
    [{ kind: 'GENERIC_CR' }, '/url'],
    [{ kind: 'GENERIC_CR', url: 'ftp://images.invalid' }, '/url'],
    [{ kind: 'GENERIC_CR', url: 'https://169.254.169.254' }, '/url'],
    [{ kind: 'GENERIC_CR', url: 'https://user:pass@images.invalid' }, '/url'],
    [{ kind: 'GITLAB_CR', url: 'http://gitlab.invalid' }, '/url'],
    [{ kind: 'DOCKER_HUB', url: 'https://evil.invalid' }, '/url'],
    [{ kind: 'DOCKER_HUB', url: 'https://evildocker.io' }, '/url'],
    [
      { kind: 'ECR', url: 'https://e.invalid', config: { access_key_id: 'a', secret_access_key: 's' } },
      '/config/region',
    ],
    [
      { kind: 'ECR', url: 'https://e.invalid', config: { region: 'r', access_key_id: 'a' } },
      '/config/secret_access_key',
    ],
    [{ kind: 'SCALEWAY_CR', url: 'https://s.invalid', config: {} }, '/config/region'],
    [{ kind: 'GCP_ARTIFACT_REGISTRY', url: 'https://g.invalid', config: {} }, '/config/json_credentials'],
    [{ kind: 'AZURE_CR', url: 'https://a.invalid', config: {} }, '/config/azure_tenant_id'],
    [{ kind: 'NONE', url: 'https://a.invalid' }, '/kind'],
    [{ kind: 'DOCKER_HUB', config: { token_lifetime_seconds: 5 } }, '/config/token_lifetime_seconds'],
  ]
  for (const [body, field] of refusals) {
    const answer = await call('POST', base, { name: 'refused', ...body })
    assert.deepEqual([answer.status, answer.body.details?.[0]?.field], [400, field], JSON.stringify(body))
  }
  const defaults = {
    DOCKER_HUB: 'https://docker.io',
    GITHUB_CR: 'https://ghcr.io',
    GITLAB_CR: 'https://registry.gitlab.com',
  }
  for (const [kind, url] of Object.entries(defaults)) assert.equal((await create({ kind })).url, url)
  const role = { kind: 'ECR', url: 'https://e.invalid', config: { region: 'r', role_arn: 'arn' } }
  assert.equal((await create(role)).config.role_arn, 'arn')
})

test('the login for pulls is the one of the kind; what only a cloud provider hands out is named', async () => {
  const scaleway = { region: 'r', scaleway_access_key: 'a', scaleway_secret_key: 's' }
  const one = await create({ kind: 'SCALEWAY_CR', url: 'https://s.invalid', config: scaleway })
  assert.deepEqual(await login(one.id), ['https://s.invalid', 'nologin', 's'])
  const google = { kind: 'GCP_ARTIFACT_REGISTRY', url: 'https://g.invalid' }
  const plain = await create({ ...google, config: { json_credentials: '{"a":1}' } })
  assert.deepEqual(await login(plain.id), ['https://g.invalid', '_json_key', '{"a":1}'])
  const encoded = await create({ ...google, config: { json_credentials: 'eyJhIjoxfQ==' } })
  assert.deepEqual((await login(encoded.id))?.[1], '_json_key_base64')
  const hub = await create({ kind: 'DOCKER_HUB' })
  assert.deepEqual(await login(hub.id), ['https://docker.io', null, null])
  const role = await create({ kind: 'ECR', url: 'https://e.invalid', config: { region: 'r', role_arn: 'arn' } })
  await assert.rejects(login(role.id), (error) => {
    assert.ok(error instanceof DeploymentError && error.code === 'registry_login_missing')
    assert.match(error.message, /AWS/)
    return true
  })
  assert.deepEqual([plain.login.state, hub.login.state, role.login.state], ['CREDENTIALS', 'ANONYMOUS', 'NOT_POSSIBLE'])
  assert.match(role.login.message, /credentials issued by AWS/)
  const principal = { azure_tenant_id: 't', azure_subscription_id: 's', azure_application_id: 'app', password: 'p' }
  const azure = await create({ kind: 'AZURE_CR', url: 'https://a.invalid', config: principal })
  assert.deepEqual([azure.login.state, await login(azure.id)], ['CREDENTIALS', ['https://a.invalid', 'app', 'p']])
  await call('DELETE', `${base}/${hub.id}`)
  assert.equal(await login(hub.id), null)
})

test('a name is unique in the organization; a registry in use is counted, listed and cannot be deleted', async () => {
  const registry = await create(generic)
  const taken = await call('POST', base, { ...generic, name: registry.name.toUpperCase() })
  assert.deepEqual([taken.status, taken.body.code], [409, 'name_taken'])
  const container = await newContainer(registry.id.toUpperCase())
  const other = await newContainer((await create(generic)).id)
  assert.equal((await call('GET', `${base}/${registry.id}`)).body.associated_services_count, 1)
  const [user, ...more] = (await call('GET', `${base}/${registry.id}/associatedServices`)).body.results
  assert.deepEqual(
    [user.service_id, user.service_type, user.service_name, user.environment_id, more],
    [container.id, 'CONTAINER', container.name, container.environmentId, []],
  )
  const statuses = (await call('GET', `${base}/${registry.id}/container/status`)).body.results
  assert.deepEqual(
    statuses.map((status: Json) => [status.id, status.state, status.service_deployment_status]),
    [[container.id, 'READY', 'NEVER_DEPLOYED']],
  )
  assert.notEqual(other.id, container.id)
  const refused = await call('DELETE', `${base}/${registry.id}`)
  assert.deepEqual([refused.status, refused.body.code], [409, 'container_registry_in_use'])
  await api.database.query('delete from node where id = $1', [container.id])
  assert.equal((await call('DELETE', `${base}/${registry.id}`)).status, 204)
  assert.equal((await call('GET', `${base}/${registry.id}`)).status, 404)
})

test('jobs use a registry too, each under the name of what it is; they are not among the statuses of containers', async () => {
  const { id } = await create(generic)
  const { environmentId } = await newPlace(api)
  for (const [name, schedule] of Object.entries({
    CRON: { cronjob: { scheduled_at: '0 3 * * *' } },
    LIFECYCLE: { on_start: { arguments: ['migrate'] } },
  }))
    assert.equal(
      (await call('POST', `/environment/${environmentId}/job`, cronBody(id, { name, schedule }))).status,
      201,
    )
  const { results } = (await call('GET', `${base}/${id}/associatedServices`)).body
  assert.deepEqual(
    results.map((user: Json) => [user.service_name, user.service_type]),
    [
      ['CRON', 'CRON'],
      ['LIFECYCLE', 'LIFECYCLE'],
    ],
  )
  assert.deepEqual((await call('GET', `${base}/${id}/container/status`)).body, { results: [] })
})

test('a service cannot name a registry of another organization, and their rows do not count as its users', async () => {
  const stranger = await api.newOrganization()
  const theirs = await api.as(stranger.token)('POST', `/organization/${stranger.id}/containerRegistry`, {
    name: 'theirs',
    ...generic,
  })
  const { environmentId } = await newPlace(api)
  const body = { name: 'thief', registry_id: theirs.body.id, image_name: 'a', tag: '1', ports: [], healthchecks: {} }
  const refused = await call('POST', `/environment/${environmentId}/container`, body)
  assert.deepEqual([refused.status, refused.body.details[0].field], [400, '/registry_id'])
  assert.equal(await login(theirs.body.id), null)
  await api.database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values (gen_random_uuid(), $1, 'container', $2, 'service', 'mention', jsonb_build_object('registry_id', $3::text))`,
    [organizationId, environmentId, theirs.body.id],
  )
  const path = `/organization/${stranger.id}/containerRegistry/${theirs.body.id}`
  assert.equal((await api.as(stranger.token)('GET', path)).body.associated_services_count, 0)
  assert.equal((await api.as(stranger.token)('DELETE', path)).status, 204)
})

test('who only deploys does not see registries', async () => {
  const { id } = await create(generic)
  const deployer = api.as(await api.newToken(['Deploy']))
  for (const path of [base, `${base}/${id}`, `${base}/${id}/container/status`])
    assert.equal((await deployer('GET', path)).status, 403)
})

test('the logins that an organization has for the host of an image are its own and no others', async () => {
  const logins = async (of: string, host: string) => {
    const found = await readRegistryLogins(api.database, api.parts.sealer, of, host)
    return found.map(({ origin, login: its }) => [origin.origin, its?.reveal().password ?? null])
  }
  const add = (name: string, more: Json) =>
    call('POST', `/organization/${organizationId}/containerRegistry`, { name, description: 'images', ...more })
  const at = { kind: 'GENERIC_CR', url: 'http://logins.invalid:5000/x' }
  for (const [name, config] of Object.entries({ one: { username: 'a', password: 'first' }, two: {} }))
    assert.equal((await add(`logins ${name}`, { ...at, config })).status, 201)
  assert.equal((await add('logins hub', { kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} })).status, 201)
  assert.deepEqual(await logins(organizationId, 'logins.invalid:5000'), [
    ['http://logins.invalid:5000', 'first'],
    ['http://logins.invalid:5000', null],
  ])
  assert.deepEqual(await logins(organizationId, 'logins.invalid'), [])
  assert.deepEqual(await logins(newId(), 'logins.invalid:5000'), [])
  assert.ok((await logins(organizationId, 'docker.io')).length > 0)
})
