/** Runs of cron jobs as their users see them: by hand, with output, ends and a history. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cronBody } from '../../../test/cases/job.ts'
import { type Json, newPlace, startApi } from '../../../test/support/api.ts'
import { hearEvents, hearSocket } from '../../../test/support/streams.ts'
import { until } from '../../../test/support/until.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'

const api = await startApi()
const { call, token, url, organizationId, clusterId } = api
const registry = await call('POST', `/organization/${organizationId}/containerRegistry`, {
  name: 'images',
  kind: 'GENERIC_CR',
  url: 'https://localhost:1',
  config: {},
})

/** A deployed cron job that is due once a year. */
const newCron = async (words: string[], image = 'fake/task', more: object = {}) => {
  const { environmentId } = await newPlace(api)
  const cronjob = { scheduled_at: '0 0 1 1 *', arguments: words }
  const source = { image: { registry_id: registry.body.id, image_name: image, tag: '3' } }
  const body = { name: 'tick', ...cronBody(registry.body.id, { source, schedule: { cronjob }, ...more }) }
  const made = await call('POST', `/environment/${environmentId}/job`, body)
  assert.equal(made.status, 201, JSON.stringify(made.body))
  return { environmentId, id: made.body.id as string, path: `/job/${made.body.id}` }
}

const deploy = async ({ path }: { path: string }) => {
  assert.equal((await call('POST', `${path}/deploy`, {})).status, 202)
  await until(async () => (await call('GET', `${path}/status`)).body.state === 'DEPLOYED', { what: 'the deploy' })
}

const runsOf = async (path: string): Promise<Json[]> => (await call('GET', `${path}/run`)).body.results

const ended = async (path: string, runId: string): Promise<Json> =>
  until(
    async () => {
      const run = (await runsOf(path)).find(({ id }) => id === runId)
      return run !== undefined && run.state !== 'RUNNING' ? run : null
    },
    { what: 'the end of the run' },
  )

/** Audit events of manual runs, newest first. */
const auditOf = async ({ id }: { id: string }): Promise<string[]> => {
  const { events } = (await call('GET', `/organization/${api.organizationId}/events?targetId=${id}`)).body
  return events.map((event: Json) => event.event_type).filter((word: string) => word.includes('FORCE_RUN'))
}

const textsOf = ({ body }: Json): string[] => body.results.map(({ message }: Json) => message)

test('a run by hand prints what is read in its own log, in that of the job, in the streams and in the history', async () => {
  const job = await newCron(['tick tock'])
  await deploy(job)
  const events = await hearEvents(`${url}${job.path}/log/stream`, token)
  const query = `service=${job.id}&environment=${job.environmentId}&limit=200`
  const socket = await hearSocket(`${url}/service/logs?${query}`, token)
  const asked = await call('POST', `${job.path}/run`)
  assert.equal(asked.status, 202, JSON.stringify(asked.body))
  assert.deepEqual([asked.body.state, asked.body.trigger, asked.body.finished_at], ['RUNNING', 'MANUAL', null])
  const run = await ended(job.path, asked.body.id)
  assert.deepEqual([run.state, run.exit_code, run.error, run.is_output_kept], ['SUCCEEDED', 0, null, true])
  assert.equal(typeof run.triggered_by, 'string')
  assert.deepEqual(await auditOf(job), ['FORCE_RUN_SUCCEEDED', 'TRIGGER_FORCE_RUN'])
  const own = textsOf(await call('GET', `${job.path}/run/${run.id}/log`))
  assert.deepEqual([own[0], own.at(-1)], [`Run started by ${run.triggered_by}.`, 'Job finished.'])
  assert.ok(own.includes('tick tock'))
  assert.deepEqual(textsOf(await call('GET', `${job.path}/log?tail=2`)), own.slice(-2))
  await until(() => socket.all.some(({ message }) => message === 'Job finished.'), { what: 'the frames' })
  await until(() => events.all.some(({ message }) => message === 'Job finished.'), { what: 'the events' })
  const frame = socket.all.find(({ message }) => message === 'tick tock')
  assert.deepEqual([frame.pod_name, frame.container_name, typeof frame.created_at], [`run-${run.id}`, 'tick', 'number'])
  const past = new URLSearchParams({
    endpoint: '/loki/api/v1/query_range',
    query: `{qovery_com_service_id="${job.id}",pod="run-${run.id}"} |= "tock"`,
  })
  const { response } = (await call('GET', `/cluster/${clusterId}/logs?${past}`)).body
  assert.equal(JSON.parse(response).data.result[0].values[0][1], 'tick tock')
  events.close()
  socket.close()
})

test('a failed run keeps its output, its exit code and a sentence', async () => {
  const job = await newCron(['about to fail'], 'fake/crash')
  await deploy(job)
  const { body } = await call('POST', `${job.path}/run`)
  const run = await ended(job.path, body.id)
  assert.deepEqual([run.state, run.exit_code, run.error.code], ['FAILED', 3, 'task_failed'])
  assert.match(run.error.message, /exited with code 3/)
  assert.deepEqual(await auditOf(job), ['FORCE_RUN_FAILED', 'TRIGGER_FORCE_RUN'])
  const texts = textsOf(await call('GET', `${job.path}/run/${run.id}/log`))
  assert.ok(texts.includes('about to fail'))
  assert.equal(texts.at(-1), run.error.message)
})

test('output is readable while the run is in progress, and a second manual run waits for it', async () => {
  const job = await newCron(['x'])
  await deploy(job)
  const [told, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const { run: runTask } = api.runtime
  api.runtime.run = async (_task, onLine) => {
    onLine('half way')
    told.resolve()
    await going.promise
    throw new DeploymentError('task_gone', 'The container was removed before the run finished.')
  }
  const { body } = await call('POST', `${job.path}/run`)
  await told.promise
  await until(async () => textsOf(await call('GET', `${job.path}/run/${body.id}/log`)).includes('half way'), {
    what: 'the line',
  })
  const second = await call('POST', `${job.path}/run`)
  assert.deepEqual([second.status, second.body.code], [409, 'run_in_progress'])
  going.resolve()
  api.runtime.run = runTask
  const run = await ended(job.path, body.id)
  assert.deepEqual([run.state, run.exit_code, run.error.code], ['FAILED', null, 'task_gone'])
})

test('the history keeps as many runs as the settings say, and goes with the job', async () => {
  const job = await newCron(['x'])
  const limits = { 'cronjob.success_jobs_history_limit': 2, 'cronjob.failed_jobs_history_limit': 0 }
  const settings = (await call('GET', `${job.path}/advancedSettings`)).body
  assert.equal((await call('PUT', `${job.path}/advancedSettings`, { ...settings, ...limits })).status, 201)
  await deploy(job)
  const ids: string[] = []
  for (let count = 0; count < 3; count += 1) {
    const { body } = await call('POST', `${job.path}/run`)
    ids.unshift(body.id)
    await ended(job.path, body.id)
  }
  assert.deepEqual(
    (await runsOf(job.path)).map(({ id }) => id),
    ids.slice(0, 2),
  )
  const kept = await api.database.query('select distinct run_id as id from deployment_log where service_id = $1', [
    job.id,
  ])
  assert.deepEqual(kept.flatMap(({ id }) => id ?? []).sort(), ids.slice(0, 2).sort())
  assert.equal((await call('GET', `${job.path}/run/${ids[2]}/log`)).status, 404)
  assert.equal((await call('DELETE', job.path)).status, 204)
  const left = () => api.database.query('select 1 from task_run where service_id = $1', [job.id])
  await until(async () => (await left()).length === 0, { what: 'the end of its runs' })
})

test('a program that prints without end costs its last 256 KB', async () => {
  const job = await newCron(['x'])
  await deploy(job)
  const { run: runTask } = api.runtime
  api.runtime.run = async (task, onLine, signal, once) => {
    for (let count = 0; count < 1200; count += 1) onLine(`${count} ${'x'.repeat(1000)}`)
    return runTask(task, onLine, signal, once)
  }
  const { body } = await call('POST', `${job.path}/run`)
  await ended(job.path, body.id)
  api.runtime.run = runTask
  const texts = textsOf(await call('GET', `${job.path}/run/${body.id}/log`))
  const bytes = texts.reduce((sum, text) => sum + text.length, 0)
  assert.ok(
    texts.some((text) => text.startsWith('1199 ')),
    'the last line',
  )
  assert.ok(!texts.some((text) => text.startsWith('0 ')), 'the first line')
  assert.ok(bytes > 100_000 && bytes < 450_000, `${bytes} bytes`)
})

test('what has no deployed schedule cannot be run by hand, and says why', async () => {
  const job = await newCron(['x'])
  const early = await call('POST', `${job.path}/run`)
  assert.deepEqual([early.status, early.body.code], [409, 'not_deployed'])
  const { environmentId } = await newPlace(api)
  const schedule = { on_start: { arguments: ['migrate'] } }
  const lifecycle = await call('POST', `/environment/${environmentId}/job`, {
    name: 'once',
    ...cronBody(registry.body.id, { schedule }),
  })
  const refused = await call('POST', `/job/${lifecycle.body.id}/run`)
  assert.equal(refused.status, 400)
  assert.match(refused.body.message, /no schedule/)
  const other = await api.newOrganization()
  assert.equal((await api.as(other.token)('POST', `${job.path}/run`)).status, 404)
  assert.equal((await api.as(await api.newToken(['Read']))('POST', `${job.path}/run`)).status, 403)
})

test('a scheduled run that replaces another one is shown at once, although the job keeps running', async () => {
  const job = await newCron(['x'])
  const settings = (await call('GET', `${job.path}/advancedSettings`)).body
  const policy = { ...settings, 'cronjob.concurrency_policy': 'Replace' }
  assert.equal((await call('PUT', `${job.path}/advancedSettings`, policy)).status, 201)
  await deploy(job)
  const told: string[] = []
  const end = await api.parts.streams.changes.subscribe(null, (environmentId) => void told.push(environmentId))
  const { run: runTask } = api.runtime
  api.runtime.run = (_task, _onLine, signal) =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  const first = (await call('POST', `${job.path}/run`)).body.id
  await until(async () => (await call('GET', `${job.path}/status`)).body.running_state === 'RUNNING', {
    what: 'it runs',
  })
  // Notices come in order: all that were sent before this one have come with it.
  const marker = newId()
  await api.database.query(`select pg_notify('slipway_status', $1)`, [marker])
  await until(() => told.includes(marker), { what: 'the marker' })
  told.length = 0
  await api.database.query(`update schedule set next_at = clock_timestamp() where service_id = $1`, [job.id])
  await api.database.query(`select pg_notify('slipway_schedule', '')`)
  await until(() => told.includes(job.environmentId), { what: 'to be told' })
  const states = (await runsOf(job.path)).map(({ id, state }) => [id === first, state])
  assert.deepEqual(states, [
    [false, 'RUNNING'],
    [true, 'CANCELED'],
  ])
  api.runtime.run = runTask
  assert.equal((await call('DELETE', job.path)).status, 204)
  end()
})
