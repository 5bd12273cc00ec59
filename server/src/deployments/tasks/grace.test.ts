/** The grace period of a program of a job or of a tool, whatever ends it; checked in the calls to the runtime. */
import assert from 'node:assert/strict'
import { after, beforeEach, test } from 'node:test'
import { newRegistry } from '../../../test/cases/container.ts'
import { terraformBody } from '../../../test/cases/terraform.ts'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { until } from '../../../test/support/until.ts'

const api = await startApi()
const { call, runtime } = api
const endless = '60000'
const image = { registry_id: await newRegistry(api), image_name: 'fake/slow', tag: endless }
const grace = 'deployment.termination_grace_period_seconds'

/** Programs that ignore SIGTERM: each stop waits for its whole grace period, unless a later one ends the program. */
const stops: number[] = []
const { run, stopTask } = runtime
const tasks: { stopGraceMs?: number }[] = []
let ended = new AbortController()
const release = () => ended.abort()
runtime.run = (task, ...rest) => {
  tasks.push(task)
  return run(task, ...rest)
}
runtime.stopTask = async (task, graceMs, signal) => {
  stops.push(graceMs)
  if (graceMs === 0) release()
  if (!ended.signal.aborted) await new Promise((resolve) => ended.signal.addEventListener('abort', resolve))
  return stopTask(task, graceMs, signal)
}
after(release)
beforeEach(() => {
  stops.length = 0
  tasks.length = 0
  ended = new AbortController()
})

const ok = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

/** A service whose program may take 30 s to end. */
const create = async (path: string, body: object): Promise<{ environmentId: string; path: string }> => {
  const { environmentId } = await newPlace(api)
  const { id } = await ok('POST', `/environment/${environmentId}/${path}`, body)
  await ok('PUT', `/${path}/${id}/advancedSettings`, { [grace]: 30 })
  return { environmentId, path: `/${path}/${id}` }
}

const job = (schedule: object, more: object = {}) =>
  create('job', { name: 'work', source: { image }, healthchecks: {}, schedule, ...more })

const stateIs = ({ environmentId }: { environmentId: string }, state: string) =>
  until(async () => (await ok('GET', `/environment/${environmentId}/status`)).state === state, { what: state })

const begins = () => until(() => tasks.length > 0, { what: 'the program' })

test('a cancel asks a job and a tool to end within their grace; a forced one ends them at once, also after a plain one', async () => {
  api.source.image = `fake/slow:${endless}`
  for (const service of [await job({ on_start: {} }), await create('terraform', terraformBody('infra'))]) {
    stops.length = 0
    tasks.length = 0
    ended = new AbortController()
    const cancel = (body?: object) => ok('POST', `/environment/${service.environmentId}/cancelDeployment`, body)
    await ok('POST', `${service.path}/deploy`, {})
    await begins()
    await cancel()
    await until(() => stops.length === 1, { what: 'the stop' })
    assert.deepEqual(stops, [30_000])
    await cancel({ force_cancel: true })
    await stateIs(service, 'CANCELED')
    assert.deepEqual(stops, [30_000, 0])
  }
})

test('a stop asks the run of a cron job to end within its grace, and what takes too long has it too', async () => {
  const service = await job({ cronjob: { scheduled_at: '0 3 * * *' } }, { max_duration_seconds: 3600 })
  await ok('POST', `${service.path}/deploy`, {})
  await stateIs(service, 'DEPLOYED')
  await ok('POST', `${service.path}/run`, {})
  await begins()
  assert.equal(tasks[0]!.stopGraceMs, 30_000)
  await ok('POST', `${service.path}/stop`)
  await until(() => stops.length === 1, { what: 'the stop' })
  release()
  await stateIs(service, 'STOPPED')
  assert.deepEqual(stops, [30_000])
})

test('a delete asks programs of a job or a tool to end within their grace period, even if another server began them', async () => {
  api.source.image = `fake/slow:${endless}`
  const isGone = ({ path }: { path: string }) =>
    until(async () => (await call('GET', path)).status === 404, { timeoutMs: 15_000, what: `the end of ${path}` })
  const cron = () => job({ cronjob: { scheduled_at: '0 3 * * *' } }, { max_duration_seconds: 3600 })
  const begun = {
    'a run of a cron job that was asked for': async () => {
      const service = await cron()
      await ok('POST', `${service.path}/deploy`, {})
      await stateIs(service, 'DEPLOYED')
      await ok('POST', `${service.path}/run`, {})
      return service
    },
    'a job by hand': async () => {
      const service = await cron()
      await ok('POST', `${service.path}/deploy?forceEvent=CRON`, {})
      return service
    },
    'a tool': async () => {
      const service = await create('terraform', terraformBody('infra'))
      await ok('POST', `${service.path}/deploy`, {})
      return service
    },
  }
  for (const [what, begin] of Object.entries(begun)) {
    stops.length = 0
    tasks.length = 0
    ended = new AbortController()
    const service = await begin()
    await begins()
    await ok('DELETE', service.path)
    await until(() => stops.length > 0, { what: `the stop of ${what}` })
    assert.equal(stops[0], 30_000, what)
    api.source.image = 'fake/serve'
    release()
    await isGone(service)
    api.source.image = `fake/slow:${endless}`
  }
})
