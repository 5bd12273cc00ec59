/**
 * A server without a Docker engine of its own: it serves everything, does not look for an engine, and says what is
 * missing.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { testDatabase } from './support/database.ts'
import { type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const sentence = /^This server has no Docker engine of its own \(SLIPWAY_DOCKER=off\)/

let slipway: Slipway
before(async () => {
  const { connectionString } = await testDatabase()
  slipway = await prepareSlipway({
    env: { DATABASE_URL: connectionString, DOCKER_HOST: '', SLIPWAY_DOCKER: 'off', SLIPWAY_SAMPLE: '' },
  })
  await slipway.start()
})
after(() => slipway.remove())

const must = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const defaultCluster = async (): Promise<Json> => {
  const { id } = await must('GET', '/organization')
  const { results } = await must('GET', `/organization/${id}/cluster`)
  assert.equal(results.length, 1)
  return { ...results[0], path: `/organization/${id}/cluster/${results[0].id}` }
}

test('the default cluster is not deployed and says why, and has no holder', async () => {
  const { path, status, is_default: isDefault } = await defaultCluster()
  assert.deepEqual([isDefault, status], [true, 'READY'])
  const told = await must('GET', `${path}/status`)
  assert.deepEqual([told.status, told.is_deployed], ['READY', false])
  assert.match(told.error_message, sentence)
  assert.deepEqual(await must('GET', `${path}/isReady`), { is_ready: false })
  const refused = await slipway.api('POST', `${path}/deploy`)
  assert.equal(refused.status, 400)
  assert.match(refused.body.message, sentence)
  const metrics = async () => (await fetch(`${slipway.url}/metrics`)).text()
  const looked = async () =>
    /slipway_work_runs_total\{[^}]*work="cluster connections"[^}]*\} [1-9]/.test(await metrics())
  await until(looked, { what: 'the background work to have begun' })
  assert.doesNotMatch(await metrics(), /cluster="local"/)
})

test('a deployment there is refused with the reason, and a service that was never deployed can be deleted', async () => {
  const { id } = await must('GET', '/organization')
  const project = await must('POST', `/organization/${id}/project`, { name: 'shop' })
  const environment = await must('POST', `/project/${project.id}/environment`, { name: 'production' })
  const application = await must('POST', `/environment/${environment.id}/application`, {
    ...{ name: 'web', git_repository: { url: 'https://git.example/shop.git', branch: 'main' } },
    ...{ build_mode: 'DOCKER', healthchecks: {} },
  })
  for (const path of [`/application/${application.id}/deploy`, `/environment/${environment.id}/deploy`]) {
    const { status, body } = await slipway.api('POST', path)
    assert.deepEqual([status, body.code], [400, 'cluster_not_deployable'], path)
    assert.match(body.message, sentence)
  }
  await must('DELETE', `/environment/${environment.id}`)
  const gone = async () => (await slipway.api('GET', `/application/${application.id}/status`)).status === 404
  await until(gone, { what: 'the environment to be deleted' })
})

test('it stops on request, and starts again', async () => {
  await slipway.kill('SIGTERM')
  await slipway.start()
  assert.match((await must('GET', `${(await defaultCluster()).path}/status`)).error_message, sentence)
  assert.doesNotMatch(slipway.output(), /"level":(50|60)/)
})
