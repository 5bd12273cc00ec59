import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ruleBody } from '../../../test/cases/deployment-rule.ts'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call } = api

const newProject = async () => {
  const { projectId } = await newPlace(api)
  const path = `/project/${projectId}/deploymentRule`
  const add = async (name: string, more: object = {}): Promise<Json> => {
    const answer = await call('POST', path, ruleBody(name, api.clusterId, more))
    assert.equal(answer.status, 201, JSON.stringify(answer.body))
    return answer.body
  }
  const names = async () => (await call('GET', path)).body.results.map(({ name }: Json) => name)
  const environment = async (name: string, more: object = {}): Promise<Json> =>
    (await call('POST', `/project/${projectId}/environment`, { name, ...more })).body
  return { projectId, path, add, names, environment }
}

test('rules have an order of their own that is changed as a whole', async () => {
  const { path, add, names } = await newProject()
  const made = [await add('a'), await add('b'), await add('c')]
  assert.deepEqual(
    made.map(({ priority_index }) => priority_index),
    [0, 1, 2],
  )
  const [a, b, c] = made.map(({ id }) => id)
  const field = 'project_deployment_rule_ids_in_order'
  const ordered = await call('PUT', `${path}/order`, { [field]: [c, a.toUpperCase(), b] })
  assert.deepEqual([ordered.status, ordered.body], [200, ''])
  assert.deepEqual(await names(), ['c', 'a', 'b'])
  for (const ids of [[c, a], [c, a, a], [c, a, b, b], []])
    assert.equal((await call('PUT', `${path}/order`, { [field]: ids })).status, 400)
  await call('DELETE', `${path}/${c}`)
  assert.equal((await call('GET', `${path}/${b}`)).body.priority_index, 1)
  assert.equal((await add('d')).priority_index, 2)
})

test('a new environment gets mode, cluster and schedule of the first rule that its name fits, unless it says otherwise', async () => {
  const { add, environment } = await newProject()
  await add('reviews', { wildcard: 'review-?' })
  await add('all', { wildcard: '*', mode: 'PRODUCTION', timezone: 'Asia/Tokyo', auto_stop: true })
  const review = await environment('REVIEW-1')
  const other = await environment('review-12')
  const named = await environment('review-2', { mode: 'DEVELOPMENT' })
  assert.deepEqual([review.mode, other.mode, named.mode], ['STAGING', 'PRODUCTION', 'DEVELOPMENT'])
  const rule = (await call('GET', `/environment/${other.id}/deploymentRule`)).body
  assert.deepEqual([rule.timezone, rule.auto_stop, rule.weekdays], ['Asia/Tokyo', true, ['MONDAY', 'FRIDAY']])
  assert.ok(!('deployment_rule' in other))
})

test('a rule whose cluster is gone still gives its mode', async () => {
  const { add, environment } = await newProject()
  const { id } = await add('reviews', { wildcard: 'x*' })
  await api.database.query(
    `update node set spec = spec || '{"cluster_id": "00000000-0000-4000-8000-000000000000"}' where id = $1`,
    [id],
  )
  const made = await environment('x1')
  assert.deepEqual([made.mode, made.cluster_id], ['STAGING', api.clusterId])
})

test('an empty wildcard fits no environment, and bad rules are refused with their field', async () => {
  const { path, add, environment } = await newProject()
  await add('none', { wildcard: '' })
  assert.equal((await environment('any')).mode, 'DEVELOPMENT')
  for (const [field, value] of [
    ['timezone', 'Mars/Olympus'],
    ['mode', 'TEST'],
    ['start_time', 'morning'],
    ['weekdays', ['FUNDAY']],
    ['cluster_id', '00000000-0000-4000-8000-000000000000'],
  ] as const) {
    const answer = await call('POST', path, ruleBody('bad', api.clusterId, { [field]: value }))
    assert.equal(answer.status, 400, field)
    assert.match(answer.body.details[0].field, new RegExp(`^/${field}`))
  }
  assert.equal((await call('POST', path, ruleBody('NONE', api.clusterId))).status, 409)
})

test('an environment has one rule under one id, which is changed field by field', async () => {
  const { environment } = await newProject()
  const { id } = await environment('one')
  const path = `/environment/${id}/deploymentRule`
  const before = (await call('GET', path)).body
  const changed = await call('PUT', `${path}/${before.id}`, { auto_stop: true, timezone: 'Europe/Berlin' })
  assert.deepEqual([changed.status, changed.body.weekdays, changed.body.id], [200, before.weekdays, before.id])
  assert.deepEqual((await call('GET', path)).body, changed.body)
  assert.equal((await call('PUT', `${path}/${before.id}`, { timezone: '' })).status, 400)
  assert.equal((await call('PUT', `${path}/${id}`, { auto_stop: true })).status, 404)
  await call('PUT', `/environment/${id}`, { name: 'renamed' })
  assert.equal((await call('GET', path)).body.timezone, 'Europe/Berlin')
})
