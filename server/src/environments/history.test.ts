import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newContainer } from '../../test/cases/container.ts'
import { newJob } from '../../test/cases/job.ts'
import { type Json, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { newScene } from '../../test/support/scene.ts'

const api = await startApi()
const { call } = api
const scene = newScene(api)

const read = async (path: string): Promise<Json> => {
  const answer = await call('GET', path)
  assert.equal(answer.status, 200, JSON.stringify(answer.body))
  return answer.body
}

const deploy = async (environmentId: string) => {
  assert.equal((await call('POST', `/environment/${environmentId}/deploy`)).status, 202)
  await scene.settled(environmentId)
}

const isDuration = /^PT\d+S$/

test('a failed deployment lists its stages: those before done, its own failed, those after skipped', async () => {
  const { environmentId } = await newPlace(api)
  const job = await newJob(scene, environmentId, { schedule: { on_start: { arguments: [] } } })
  const container = await newContainer(scene, environmentId, { image_name: 'fake/refuse' })
  const application = await newApplication(api, environmentId)
  await deploy(environmentId)

  const { results } = await read(`/environment/${environmentId}/deploymentHistoryV2`)
  const [entry] = results
  assert.deepEqual([entry.status, entry.action_status, entry.trigger_action], ['DEPLOYMENT_ERROR', 'ERROR', 'DEPLOY'])
  assert.deepEqual(
    entry.stages.map((stage: Json) => [stage.name, stage.status, stage.services[0].identifier.service_id]),
    [
      ['JOB DEFAULT', 'DONE', job.id],
      ['CONTAINER DEFAULT', 'ERROR', container.id],
      ['APPLICATION DEFAULT', 'SKIPPED', application.id],
    ],
  )
  assert.match(entry.total_duration, isDuration)
  for (const { duration, services } of entry.stages)
    for (const text of [duration, services[0].total_duration]) assert.match(text, isDuration)

  const [old] = (await read(`/environment/${environmentId}/deploymentHistory`)).results
  assert.deepEqual([old.containers[0].image_name, old.containers[0].tag], ['fake/refuse', '1.0'])
  assert.deepEqual(old.jobs[0].schedule, { event: 'ON_START', schedule_at: null })
  const [ofJob] = (await read(`/job/${job.id}/deploymentHistory`)).results
  assert.deepEqual([ofJob.status, ofJob.schedule.event], ['DEPLOYED', 'ON_START'])
})

test('histories have pages: the newest first, none twice, an empty one after the last', async () => {
  const { environmentId } = await newPlace(api)
  const application = await newApplication(api, environmentId)
  for (let n = 0; n < 3; n += 1) await deploy(environmentId)
  const executions = [3, 2, 1].map((n) => `${environmentId}-${n}`)
  const paths = [`/environment/${environmentId}`, `/application/${application.id}`]
  for (const path of paths) {
    const pages = await Promise.all(
      [1, 2, 3].map((page) => read(`${path}/deploymentHistoryV2?pageSize=2&page=${page}`)),
    )
    assert.deepEqual(
      pages.map(({ page, page_size }) => [page, page_size]),
      [
        [1, 2],
        [2, 2],
        [3, 2],
      ],
    )
    assert.deepEqual(
      pages.map(({ results }) => results.map((each: Json) => each.identifier.execution_id)),
      [executions.slice(0, 2), executions.slice(2), []],
    )
    assert.equal((await read(`${path}/deploymentHistory?pageSize=2`)).results.length, 2)
  }
})
