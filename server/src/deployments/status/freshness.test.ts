import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'
import type { Queryable } from '../../store/database.ts'

const api = await startApi()
const { call, database } = api

/** An environment of as many deployed services, all up to date. */
const deployed = async (count: number) => {
  const place = await newPlace(api)
  for (let n = 0; n < count; n++) await newApplication(api, place.environmentId)
  assert.equal((await call('POST', `/environment/${place.environmentId}/deploy`)).status, 202)
  await until(async () => (await freshness(place.environmentId)).every((word) => word === 'UP_TO_DATE'), {
    what: `${count} deployed services`,
    timeoutMs: 30_000,
  })
  return place
}

const freshness = async (environmentId: string): Promise<string[]> => {
  const { applications } = (await call('GET', `/environment/${environmentId}/statuses`)).body
  return applications.map((one: { service_deployment_status: string }) => one.service_deployment_status)
}

/** The statuses of one read, and the number of its statements. */
const read = async (environmentId: string) => {
  const statements: string[] = []
  const counting: Queryable = {
    query: (text, values) => {
      statements.push(text)
      return database.query(text, values)
    },
  }
  const found = await api.parts.deployments.environmentStatuses(counting, environmentId)
  return { words: new Set(found.map(({ status }) => status.service_deployment_status)), statements: statements.length }
}

test('a variable that twenty services see makes all of them out of date at the next read, in four statements', async () => {
  const [few, many] = [await deployed(2), await deployed(20)]
  for (const { projectId, environmentId } of [few, many]) {
    const body = { key: 'GREETING', value: 'changed' }
    assert.equal((await call('POST', `/project/${projectId}/environmentVariable`, body)).status, 201)
    assert.deepEqual(await read(environmentId), { words: new Set(['OUT_OF_DATE']), statements: 4 })
    // It is stored: the next reader only reads.
    assert.deepEqual(await read(environmentId), { words: new Set(['OUT_OF_DATE']), statements: 1 })
  }
})

test('a request that follows a change sees it, and one that takes it back', async () => {
  const { environmentId } = await deployed(3)
  const path = `/environment/${environmentId}/environmentVariable`
  const { body } = await call('POST', path, { key: 'COLOR', value: 'red' })
  assert.deepEqual(await freshness(environmentId), ['OUT_OF_DATE', 'OUT_OF_DATE', 'OUT_OF_DATE'])
  assert.equal((await call('DELETE', `${path}/${body.id}`)).status, 204)
  assert.deepEqual(await freshness(environmentId), ['UP_TO_DATE', 'UP_TO_DATE', 'UP_TO_DATE'])
})

test('a fingerprint of a service that changed meanwhile is not kept', async () => {
  const { environmentId } = await deployed(2)
  const path = `/environment/${environmentId}/environmentVariable`
  const { body } = await call('POST', path, { key: 'COLOR', value: 'red' })
  let changed = false
  const racing: Queryable = {
    async query(text, values) {
      // The variable is deleted after it was read, before the result is stored.
      if (text.includes('set wanted_hash') && !changed) {
        changed = true
        assert.equal((await call('DELETE', `${path}/${body.id}`)).status, 204)
      }
      return database.query(text, values)
    },
  }
  await api.parts.deployments.environmentStatuses(racing, environmentId)
  assert.ok(changed)
  assert.deepEqual(await freshness(environmentId), ['UP_TO_DATE', 'UP_TO_DATE'])
})
