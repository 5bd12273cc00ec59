import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { judgeAnswer } from '../../../test/support/client-types.ts'

const api = await startApi({ idle: true })
const { call } = api

const match = (value: string) => ({ mode: 'MATCH', type: 'PATH', value }) as const
const exclude = (value: string) => ({ mode: 'EXCLUDE', type: 'PATH', value }) as const

const make = async (): Promise<string> => {
  const { id } = await newApplication(api, (await newPlace(api)).environmentId)
  return `/application/${id}/deploymentRestriction`
}

const sent = async (method: string, path: string, body: object | undefined, status: number): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

test('a restriction is made, listed, changed and lifted', async () => {
  const path = await make()
  const made = await sent('POST', path, match('api/'), 201)
  const other = await sent('POST', path, exclude('api/'), 201)
  const list = await sent('GET', path, undefined, 200)
  assert.deepEqual(list.results, [made, other])
  assert.deepEqual(judgeAnswer('getApplicationDeploymentRestrictions', list), [])
  const edited = await sent('PUT', `${path}/${made.id}`, match('web/'), 200)
  assert.deepEqual([edited.id, edited.value, edited.created_at], [made.id, 'web/', made.created_at])
  await sent('DELETE', `${path}/${made.id}`, undefined, 204)
  assert.deepEqual((await sent('GET', path, undefined, 200)).results, [other])
  await sent('DELETE', `${path}/${made.id}`, undefined, 404)
})

test('a repeated restriction is 409, and an invalid beginning of a path is 400', async () => {
  const path = await make()
  await sent('POST', path, match('api/'), 201)
  const { id } = await sent('POST', path, match('web/'), 201)
  await sent('POST', path, match('api/'), 409)
  await sent('PUT', `${path}/${id}`, match('api/'), 409)
  await sent('PUT', `${path}/${id}`, match('web/'), 200)
  for (const value of ['/api/', '', ' ', 'api/*']) await sent('POST', path, match(value), 400)
  await sent('POST', path, { ...match('x'), mode: 'ONLY' }, 400)
})

test('restrictions are in no record of the service, and an edit of it keeps them', async () => {
  const path = await make()
  await sent('POST', path, match('api/'), 201)
  const service = path.replace('/deploymentRestriction', '')
  const edited = await sent('PUT', service, { cpu: 600 }, 200)
  assert.equal('deployment_restrictions' in edited, false)
  assert.equal((await sent('GET', path, undefined, 200)).results.length, 1)
})
