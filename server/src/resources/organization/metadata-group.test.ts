import assert from 'node:assert/strict'
import { test } from 'node:test'
import { applicationBody, type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call, organizationId } = api
const labels = `/organization/${organizationId}/labelsGroups`
const annotations = `/organization/${organizationId}/annotationsGroups`

test('a group of labels is made, read, listed, changed in part and deleted', async () => {
  const body = {
    name: 'cost',
    labels: [
      { key: 'team', value: 'shop', propagate_to_cloud_provider: true },
      { key: 'example.org/tier', value: '', propagate_to_cloud_provider: false },
    ],
  }
  const { status, body: made } = await call('POST', labels, body)
  const { id, created_at: _, updated_at: __, ...rest } = made
  assert.deepEqual([status, rest], [201, { ...body, associated_items_count: 0 }])
  assert.deepEqual((await call('GET', `${labels}/${id}`)).body, made)
  assert.deepEqual((await call('GET', labels)).body, { results: [made] })
  const renamed = (await call('PUT', `${labels}/${id}`, { name: 'costs' })).body
  assert.deepEqual([renamed.name, renamed.labels], ['costs', body.labels])
  const replaced = (await call('PUT', `${labels}/${id}`, { labels: [{ key: 'a', value: 'b' }] })).body
  assert.deepEqual(replaced.labels, [{ key: 'a', value: 'b', propagate_to_cloud_provider: false }])
  assert.equal((await call('POST', labels, { ...body, name: 'COSTS' })).body.code, 'name_taken')
  assert.equal((await call('DELETE', `${labels}/${id}`)).status, 204)
  assert.equal((await call('GET', `${labels}/${id}`)).status, 404)
})

test('a group of annotations keeps its scopes; any text is a value', async () => {
  const body = {
    name: 'ingress',
    annotations: [{ key: 'nginx.ingress.kubernetes.io/rewrite-target', value: '/ $1 {"any": "text"}\n' }],
    scopes: ['INGRESS', 'GATEWAY_API_ROUTES'],
  }
  const { body: made } = await call('POST', annotations, body)
  assert.deepEqual([made.annotations, made.scopes], [body.annotations, body.scopes])
  const edited = (await call('PUT', `${annotations}/${made.id}`, { scopes: ['PODS'] })).body
  assert.deepEqual([edited.annotations, edited.scopes], [body.annotations, ['PODS']])
  const unknown = await call('PUT', `${annotations}/${made.id}`, { scopes: ['NODES'] })
  assert.deepEqual([unknown.status, unknown.body.details[0].field], [400, '/scopes/0'])
})

test('keys and values that Kubernetes would refuse are refused by name', async () => {
  const refused: [Json, string][] = [
    [{ key: '', value: 'v' }, '/labels/0/key'],
    [{ key: '-a', value: 'v' }, '/labels/0/key'],
    [{ key: 'a b', value: 'v' }, '/labels/0/key'],
    [{ key: 'a'.repeat(64), value: 'v' }, '/labels/0/key'],
    [{ key: 'Upper.example/a', value: 'v' }, '/labels/0/key'],
    [{ key: 'a/b/c', value: 'v' }, '/labels/0/key'],
    [{ key: '/a', value: 'v' }, '/labels/0/key'],
    [{ key: 'example.org/', value: 'v' }, '/labels/0/key'],
    [{ key: 'a', value: '-v' }, '/labels/0/value'],
    [{ key: 'a', value: 'v v' }, '/labels/0/value'],
    [{ key: 'a', value: 'v'.repeat(64) }, '/labels/0/value'],
  ]
  for (const [pair, field] of refused) {
    const answer = await call('POST', labels, { name: 'refused', labels: [pair] })
    assert.deepEqual([answer.status, answer.body.details?.[0]?.field], [400, field], JSON.stringify(pair))
  }
  const twice = [
    { key: 'a', value: '1' },
    { key: 'a', value: '2' },
  ]
  assert.equal((await call('POST', labels, { name: 'refused', labels: twice })).body.details[0].field, '/labels/1/key')
})

test('a group that a service or a cluster names is counted, listed and cannot be deleted', async () => {
  const { id } = (await call('POST', labels, { name: 'used', labels: [{ key: 'a', value: 'b' }] })).body
  const { projectId, environmentId } = await newPlace(api)
  const { id: applicationId } = await newApplication(api, environmentId, { labels_groups: [{ id: id.toUpperCase() }] })
  const clusterPath = `/organization/${organizationId}/cluster/${api.clusterId}`
  assert.equal((await call('PUT', clusterPath, { labels_groups: [{ id }] })).status, 200)
  assert.equal((await call('GET', `${labels}/${id}`)).body.associated_items_count, 2)
  const { results } = (await call('GET', `${labels}/${id}/associatedItems`)).body
  const byType = Object.fromEntries(results.map((item: Json) => [item.item_type, item]))
  assert.deepEqual(byType.CLUSTER, {
    item_id: api.clusterId,
    item_name: 'local',
    item_type: 'CLUSTER',
    cluster_id: api.clusterId,
    cluster_name: 'local',
  })
  const { item_id, project_id, environment_id, cluster_name } = byType.APPLICATION
  assert.deepEqual(
    [item_id, project_id, environment_id, cluster_name],
    [applicationId, projectId, environmentId, 'local'],
  )
  assert.deepEqual((await call('DELETE', `${labels}/${id}`)).body.code, 'labels_group_in_use')
  await call('PUT', clusterPath, { labels_groups: [] })
  assert.equal((await call('PUT', `/application/${applicationId}`, { labels_groups: [] })).status, 200)
  assert.equal((await call('DELETE', `${labels}/${id}`)).status, 204)
})

test('a service cannot name a group of another organization', async () => {
  const stranger = await api.newOrganization()
  const { environmentId } = await newPlace(api)
  for (const field of ['labels', 'annotations']) {
    const path = `/organization/${stranger.id}/${field}Groups`
    const { id } = (await api.as(stranger.token)('POST', path, { name: 'theirs', [field]: [], scopes: [] })).body
    const body = applicationBody('thief', { [`${field}_groups`]: [{ id }] })
    const refused = await call('POST', `/environment/${environmentId}/application`, body)
    assert.deepEqual([refused.status, refused.body.details[0].field], [400, `/${field}_groups/0/id`])
  }
})
