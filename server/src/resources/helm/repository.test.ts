import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { closedValues } from '../../../test/support/closed-values.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const base = `/organization/${organizationId}/helmRepository`
const charts = { name: 'charts', kind: 'HTTPS', url: 'https://charts.invalid', skip_tls_verification: true }

test('every field is kept and read back, and no secret is ever answered', async () => {
  const open = { username: 'u', region: 'r', access_key_id: 'a', role_arn: 'arn', scaleway_access_key: 's' }
  const secrets = { password: 'canary-1', secret_access_key: 'canary-2', scaleway_secret_key: 'canary-3' }
  const { results: kinds } = (await call('GET', '/availableHelmRepository')).body
  const values = closedValues('createHelmRepository', '/kind')
  assert.deepEqual(
    kinds.map(({ kind }: Json) => kind),
    values,
  )
  for (const { kind } of kinds) {
    const url = { HTTPS: 'https://h.invalid', OCI_DOCKER_HUB: 'oci://docker.io', OCI_GITHUB_CR: 'oci://ghcr.io' }[
      kind as string
    ]
    const body = {
      name: kind,
      kind,
      description: 'd',
      url: url ?? 'oci://h.invalid/charts',
      skip_tls_verification: true,
    }
    const made = await call('POST', base, { ...body, config: { ...open, ...secrets } })
    assert.equal(made.status, 201, JSON.stringify(made.body))
    const { id, created_at: _, updated_at: __, ...rest } = made.body
    assert.deepEqual(rest, { ...body, config: open, associated_services_count: 0 })
    assert.deepEqual((await call('GET', `${base}/${id}`)).body, made.body)
    const edited = await call('PUT', `${base}/${id}`, { description: 'e' })
    assert.deepEqual([edited.body.description, edited.body.config, edited.body.url], ['e', open, body.url])
  }
  const all = [(await call('GET', base)).body, await api.database.query('select spec from node')]
  assert.doesNotMatch(JSON.stringify(all), /canary/)
})

test('addresses fit their kind; a kept password does not move to another host', async () => {
  const refusals: Json[] = [
    { kind: 'HTTPS', url: 'oci://charts.invalid' },
    { kind: 'OCI_GENERIC_CR', url: 'http://charts.invalid' },
    { kind: 'OCI_GENERIC_CR', url: 'oci://169.254.169.254' },
    { kind: 'HTTPS' },
  ]
  for (const body of refusals) {
    const answer = await call('POST', base, { name: 'refused', ...body, config: {} })
    assert.deepEqual([answer.status, answer.body.details[0].field], [400, '/url'], JSON.stringify(body))
  }
  const { id } = (await call('POST', base, { ...charts, config: { username: 'u', password: 'p' } })).body
  const moved = await call('PUT', `${base}/${id}`, { url: 'https://elsewhere.invalid' })
  assert.deepEqual([moved.status, moved.body.details[0].field], [400, '/config/password'])
})

test('names are unique; a repository in use is counted and cannot be deleted', async () => {
  const { id } = (await call('POST', base, { ...charts, name: 'used' })).body
  assert.equal((await call('POST', base, { ...charts, name: 'USED' })).body.code, 'name_taken')
  const { environmentId } = await newPlace(api)
  const [service] = await api.database.query<{ id: string }>(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name, spec)
     values (gen_random_uuid(), $1, 'helm', $2, 'service', 'h', $3) returning id`,
    [
      organizationId,
      environmentId,
      JSON.stringify({ source: { helm_repository: { repository: id, chart_name: 'c' } } }),
    ],
  )
  assert.equal((await call('GET', `${base}/${id}`)).body.associated_services_count, 1)
  const [user] = (await call('GET', `${base}/${id}/associatedServices`)).body.results
  assert.deepEqual([user.service_id, user.service_type], [service!.id, 'HELM'])
  assert.equal((await call('DELETE', `${base}/${id}`)).body.code, 'helm_repository_in_use')
  await api.database.query('delete from node where id = $1', [service!.id])
  assert.equal((await call('DELETE', `${base}/${id}`)).status, 204)
})
