import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call } = api

const newList = async () => {
  const place = await newPlace(api)
  const path = `/project/${place.projectId}/environment`
  await call('POST', path, { name: 'quote " and \\ and ü', mode: 'STAGING' })
  return { ...place, path, etag: async () => (await call('GET', path)).headers.get('etag')! }
}

const ask = (path: string, etag: string) => call('GET', path, undefined, { 'if-none-match': etag })

test('the list answers each environment as the read of one does, oldest first', async () => {
  const { path, environmentId } = await newList()
  const { results } = (await call('GET', path)).body
  const ids = results.map(({ id }: { id: string }) => id)
  assert.deepEqual([ids.length, ids[0]], [2, environmentId])
  for (const [at, id] of ids.entries()) assert.deepEqual(results[at], (await call('GET', `/environment/${id}`)).body)
})

test('the list of a project without environments is empty, and has a tag that a create changes', async () => {
  const { body: project } = await call('POST', `/organization/${api.organizationId}/project`, { name: 'empty one' })
  const path = `/project/${project.id}/environment`
  const first = await call('GET', path)
  assert.deepEqual([first.status, first.body], [200, { results: [] }])
  const etag = first.headers.get('etag')!
  assert.equal((await ask(path, etag)).status, 304)
  assert.equal((await call('POST', path, { name: 'one' })).status, 201)
  assert.equal((await ask(path, etag)).status, 200)
})

test('the tag of the list holds until an answered field changes, be it one of the cluster', async () => {
  const { path, environmentId, etag } = await newList()
  const { body: cluster } = await call('GET', `/organization/${api.organizationId}/cluster/${api.clusterId}`)
  const changes: [string, () => Promise<unknown>][] = [
    ['name', () => call('PUT', `/environment/${environmentId}`, { name: 'renamed' })],
    ['mode', () => call('PUT', `/environment/${environmentId}`, { mode: 'PRODUCTION' })],
    ['cluster', () => call('PUT', `/organization/${api.organizationId}/cluster/${cluster.id}`, { name: 'other' })],
    ['create', () => call('POST', path, { name: 'third' })],
    [
      'remove',
      () =>
        api.database.query(
          `delete from node where parent_id in (select parent_id from node where id = $1) and name = 'third'`,
          [environmentId],
        ),
    ],
  ]
  for (const [what, change] of changes) {
    const before = await etag()
    const same = await ask(path, before)
    assert.deepEqual([same.status, same.body, same.headers.get('etag')], [304, '', before], what)
    const old = (await call('GET', path)).body
    await change()
    const changed = await ask(path, before)
    assert.equal(changed.status, 200, `not noticed: ${what}`)
    assert.notDeepEqual(changed.body, old, what)
    assert.equal(changed.headers.get('etag'), await etag(), what)
    assert.notEqual(changed.headers.get('etag'), before, what)
  }
})

test('a tag opens no list of another organization, nor without a token', async () => {
  const { path, etag } = await newList()
  const other = await api.newOrganization()
  const headers = { 'if-none-match': await etag() }
  assert.equal((await api.as(other.token)('GET', path, undefined, headers)).status, 404)
  assert.equal((await api.as('')('GET', path, undefined, headers)).status, 401)
})

test('an environment takes the cluster that was named, else the default one, never one of elsewhere', async () => {
  const { path } = await newList()
  const named = await call('POST', path, { name: 'named', cluster: api.clusterId.toUpperCase() })
  const unnamed = await call('POST', path, { name: 'unnamed' })
  assert.deepEqual([named.body.cluster_id, unnamed.body.cluster_id], [api.clusterId, api.clusterId])
  const unknown = await call('POST', path, { name: 'x', cluster_id: '00000000-0000-4000-8000-000000000000' })
  assert.deepEqual([unknown.status, unknown.body.details[0].field], [400, '/cluster_id'])
  await api.database.query(`update node set spec = spec || '{"is_default": false}' where id = $1`, [api.clusterId])
  const none = await call('POST', path, { name: 'y' })
  assert.deepEqual([none.status, none.body.details[0].field], [400, '/cluster_id'])
  assert.match(none.body.details[0].message, /no default cluster/)
})
