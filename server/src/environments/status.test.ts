import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'

const api = await startApi({ idle: true })
const { call } = api
const deploymentWords = { 'x-state-vocabulary': 'deployment' }

const listOf = async (environmentId: string) => {
  const { status, body } = await call('GET', `/environment/${environmentId}/application/status`)
  assert.equal(status, 200)
  return body.results as Record<string, unknown>[]
}

test('the statuses of an environment are those of its applications, open requests counted', async () => {
  const { environmentId } = await newPlace(api)
  const waiting = await newApplication(api, environmentId)
  const idle = await newApplication(api, environmentId)
  const elsewhere = await newApplication(api, (await newPlace(api)).environmentId)
  for (const { id } of [waiting, elsewhere]) assert.equal((await call('POST', `/application/${id}/deploy`)).status, 202)
  const listed = new Map((await listOf(environmentId)).map((status) => [status.id, status]))
  assert.deepEqual([...listed.keys()].sort(), [waiting.id, idle.id].sort())
  for (const { id } of [waiting, idle]) {
    const { steps: _, ...alone } = (await call('GET', `/application/${id}/status`, undefined, deploymentWords)).body
    assert.deepEqual(listed.get(id), alone)
  }
  const counts = [waiting, idle].map(({ id }) => listed.get(id)!.deployment_requests_count)
  assert.deepEqual(counts, [1, 0])
  assert.equal(listed.get(waiting.id)!.is_part_last_deployment, true)
})

test('the statuses of an environment are a list for its organization only, be it empty', async () => {
  const { environmentId } = await newPlace(api)
  const other = await api.newOrganization()
  const path = `/environment/${environmentId}/application/status`
  assert.deepEqual(await listOf(environmentId), [])
  assert.equal((await api.as(other.token)('GET', path)).status, 404)
  await newApplication(api, environmentId)
  assert.equal((await listOf(environmentId.toUpperCase())).length, 1)
  assert.equal((await api.as(other.token)('GET', path)).status, 404)
  for (const id of ['not-an-id', '00000000-0000-4000-8000-000000000000'])
    assert.equal((await call('GET', `/environment/${id}/application/status`)).status, 404)
})
