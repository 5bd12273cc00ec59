import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../../test/support/database.ts'
import { addService, ask, createTestEngine, createWorld, type TestEngine } from '../../../test/support/engine.ts'
import { until } from '../../../test/support/until.ts'
import { ApiError } from '../../lib/errors.ts'
import { LeaseHandedOff } from '../../lib/lease-handed-off.ts'
import { parseCron } from '../../lib/time/cron.ts'
import type { Task } from '../../runtimes/runtime.ts'
import type { DeploymentAction, ServiceRequest } from '../deployments.ts'

const world = await createWorld(await testDatabase())
const { database, runtime } = world
const main: TestEngine = createTestEngine(world)
await main.engine.start()
after(async () => {
  await main.engine.stop()
  await runtime.close()
})

const statusOf = async (id: string) => (await main.engine.statuses(database, [id]))[0]

/** Makes a request and waits for its end; returns the state that the service then shows. */
const run = async (action: DeploymentAction, id: string, more: Partial<ServiceRequest> = {}): Promise<string> => {
  const { deploymentId } = await ask(main, world, action, [{ id, ...more }])
  await until(
    async () => {
      const [row] = await database.query('select state from deployment where id = $1', [deploymentId])
      return !['QUEUED', 'RUNNING'].includes(String(row?.state))
    },
    { timeoutMs: 15_000, what: 'the end' },
  )
  return (await statusOf(id))?.state ?? 'DELETED'
}

const logOf = async (id: string): Promise<string[]> => {
  const rows = await database.query<{ lines: { text: string }[] }>(
    'select lines from deployment_log where service_id = $1 order by id',
    [id],
  )
  return rows.flatMap(({ lines }) => lines.map(({ text }) => text))
}

const setSpec = (id: string, spec: object) =>
  database.query('update node set spec = $2 where id = $1', [id, JSON.stringify(spec)])

interface RunRow {
  id: string
  state: string
  error: { code: string } | null
}

const runsOf = (id: string) =>
  database.query<RunRow>('select id, state, error from task_run where service_id = $1 order by started_at', [id])

const makeDue = async (id: string, age: string): Promise<void> => {
  await database.query(`update schedule set next_at = now() - $2::interval where service_id = $1`, [id, age])
  await database.query(`select pg_notify('slipway_schedule', '')`)
}

const events = { START: ['begun'], STOP: ['stopped'], DELETE: ['gone'] }

test('a lifecycle job runs to its end in a deploy, shows EXECUTING meanwhile, and its output is in the log', async () => {
  const id = await addService(world, { on: events, image: 'fake/slow', tag: '300' }, 'job')
  await ask(main, world, 'DEPLOY', [{ id }])
  const runs = async () => {
    const { state, running_state } = (await statusOf(id))!
    return state === 'EXECUTING' && running_state === 'RUNNING'
  }
  await until(runs, { what: 'the execution' })
  await until(async () => (await statusOf(id))!.state === 'DEPLOYED', { what: 'the end' })
  const status = (await statusOf(id))!
  assert.deepEqual([status.service_deployment_status, status.running_state], ['UP_TO_DATE', 'COMPLETED'])
  assert.ok(status.steps!.details.some((step) => step.step_name === 'EXECUTING'))
  assert.ok((await logOf(id)).includes('begun'))
  assert.deepEqual(await runtime.instancesOf(id), [])
})

test('a stop runs what is for a stop, a delete what is for a delete, an uninstall too', async () => {
  const id = await addService(world, { on: events }, 'job')
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  assert.equal(await run('STOP', id), 'STOPPED')
  assert.deepEqual(
    (await logOf(id)).filter((line) => ['begun', 'stopped', 'gone'].includes(line)),
    ['begun', 'stopped'],
  )
  assert.equal(await run('UNINSTALL', id), 'READY')
  assert.deepEqual((await logOf(id)).slice(-3), ['gone', 'Job finished.', 'Uninstalled.'])
  assert.equal((await statusOf(id))!.service_deployment_status, 'NEVER_DEPLOYED')
  await run('DEPLOY', id)
  assert.equal(await run('DELETE', id), 'DELETED')
})

test('a job that fails is run again as often as it may be, then is an error with its last lines', async () => {
  const spec = { on: { START: ['trying with secret-canary'] }, image: 'fake/crash', tag: '3', maxRestarts: 2 }
  const id = await addService(world, spec, 'job')
  assert.equal(await run('DEPLOY', id), 'DEPLOYMENT_ERROR')
  const log = await logOf(id)
  assert.equal(log.filter((line) => line === 'trying with ***').length, 3)
  assert.ok(!log.some((line) => line.includes('secret-canary')))
  assert.match(log.at(-1)!, /exited with code 3/)
  const status = (await statusOf(id))!
  assert.deepEqual([status.service_deployment_status, status.running_state], ['NEVER_DEPLOYED', 'ERROR'])
})

test('a job that takes too long is ended', async () => {
  const spec = { on: events, image: 'fake/slow', tag: '60000', timeoutMs: 200 }
  const id = await addService(world, spec, 'job')
  assert.equal(await run('DEPLOY', id), 'DEPLOYMENT_ERROR')
  const [row] = await database.query<{ error: { code: string } }>(
    'select error from deployment_service where service_id = $1',
    [id],
  )
  assert.equal(row!.error.code, 'task_timeout')
})

test('a job that fails at the end of its service keeps it, until it is mended or taken away', async () => {
  const failing = { image: 'fake/crash', tag: '3' }
  const id = await addService(world, { on: { STOP: ['x'], DELETE: ['x'] }, ...failing }, 'job')
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  assert.equal(await run('STOP', id), 'STOP_ERROR')
  assert.equal(await run('DELETE', id), 'DELETE_ERROR')
  await setSpec(id, { on: { START: ['x'] }, ...failing })
  assert.equal(await run('DELETE', id), 'DELETED')
})

test('a forced event runs just that; a job without it is refused', async () => {
  const id = await addService(world, { on: { START: ['begun'], STOP: ['stopped'] } }, 'job')
  assert.equal(await run('DEPLOY', id, { forceEvent: 'STOP' }), 'DEPLOYED')
  const log = await logOf(id)
  assert.ok(log.includes('stopped') && !log.includes('begun'))
  assert.equal(await run('DEPLOY', id, { forceEvent: 'START' }), 'DEPLOYED')
  assert.ok((await logOf(id)).includes('begun'))
  await assert.rejects(run('DEPLOY', id, { forceEvent: 'DELETE' }), (error: unknown) => {
    assert.ok(error instanceof ApiError)
    assert.deepEqual([error.status, error.code], [400, 'event_missing'])
    return true
  })
})

test('a job has nothing to restart', async () => {
  const id = await addService(world, { on: events }, 'job')
  await run('DEPLOY', id)
  await assert.rejects(run('RESTART', id), (error: unknown) => error instanceof ApiError && error.status === 400)
})

test('a cancel ends the execution', async (t) => {
  const ended = t.mock.method(runtime, 'endTask')
  const id = await addService(world, { image: 'fake/slow', tag: '60000', timeoutMs: 60_000 }, 'job')
  await ask(main, world, 'DEPLOY', [{ id }])
  await until(async () => (await statusOf(id))!.state === 'EXECUTING', { what: 'the execution' })
  await database.transaction((tx) => main.engine.cancel(tx, world.ids.environmentId))
  await until(async () => (await statusOf(id))!.state === 'CANCELED', { what: 'the cancel' })
  assert.equal((await statusOf(id))!.running_state, 'STOPPED')
  assert.equal(ended.mock.callCount(), 1)
})

const yearly = '0 0 1 1 *'

/** Due when a test says so: a schedule of minutes would begin a run of its own in some of the tests. */
const cronJob = (more: object = {}) => addService(world, { on: { CRON: ['tick'] }, cron: yearly, ...more }, 'job')

test('a deploy of a cron job runs nothing and registers it; what is due runs once, with its output kept', async () => {
  const id = await cronJob({ cron: '* * * * *' })
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  const [schedule] = await database.query<{ next_at: Date }>('select next_at from schedule where service_id = $1', [id])
  assert.ok(schedule!.next_at.getTime() > Date.now() - 1000 && schedule!.next_at.getTime() <= Date.now() + 60_000)
  await makeDue(id, '1 minute')
  const [done] = await until(
    async () => {
      const rows = await runsOf(id)
      return rows.length > 0 && rows.every(({ state }) => state === 'SUCCEEDED') ? rows : null
    },
    { what: 'the run' },
  )
  assert.equal(done!.error, null)
  assert.deepEqual((await logOf(id)).slice(-2), ['tick', 'Job finished.'])
  await until(async () => (await statusOf(id))!.running_state === 'COMPLETED', { what: 'the state' })
  assert.equal((await statusOf(id))!.state, 'DEPLOYED')
  await run('DELETE', id)
})

test('while a run is in progress the next is left out, and long missed ones are not caught up', async () => {
  const id = await cronJob({ image: 'fake/slow', tag: '500' })
  await run('DEPLOY', id)
  await makeDue(id, '1 second')
  await until(async () => (await runsOf(id)).length === 1, { what: 'the run' })
  const moved = async () => {
    const [row] = await database.query<{ late: boolean }>(
      'select next_at <= now() as late from schedule where service_id = $1',
      [id],
    )
    return row!.late === false
  }
  await makeDue(id, '1 second')
  await until(moved, { what: 'the next moment' })
  await until(async () => (await runsOf(id)).every(({ state }) => state === 'SUCCEEDED'), { what: 'the end' })
  await makeDue(id, '1 hour')
  await until(moved, { what: 'the next moment' })
  assert.equal((await runsOf(id)).length, 1)
  await run('DELETE', id)
})

test('a cron job that asks for it begins its next run beside the last one, or in its place', async () => {
  const slow = { image: 'fake/slow', tag: '60000', timeoutMs: 60_000 }
  const begun = async (id: string, count: number) => {
    await makeDue(id, '1 second')
    await until(async () => (await runsOf(id)).length === count, { what: `run ${count}` })
    return (await runsOf(id)).map(({ state }) => state)
  }
  const beside = await cronJob({ ...slow, overlap: 'Allow' })
  await run('DEPLOY', beside)
  await begun(beside, 1)
  assert.deepEqual(await begun(beside, 2), ['RUNNING', 'RUNNING'])
  await run('DELETE', beside)
  const instead = await cronJob({ ...slow, overlap: 'Replace' })
  await run('DEPLOY', instead)
  await begun(instead, 1)
  const [first] = await runsOf(instead)
  assert.deepEqual(await begun(instead, 2), ['CANCELED', 'RUNNING'])
  const left = () =>
    runtime.stopTask({ ...world.ids, serviceId: instead, taskId: first!.id, outputs: [] }, 0, AbortSignal.timeout(1000))
  await until(async () => (await left()) === null, { what: 'the end of the first one' })
  assert.equal((await statusOf(instead))!.running_state, 'RUNNING')
  await run('DELETE', instead)
})

test('a stop ends the run under way and no other begins; a forced run leaves the clock alone', async () => {
  const id = await cronJob({ image: 'fake/slow', tag: '60000', timeoutMs: 60_000 })
  await run('DEPLOY', id)
  await makeDue(id, '1 second')
  await until(async () => (await statusOf(id))!.running_state === 'RUNNING', { what: 'the run' })
  assert.equal(await run('STOP', id), 'STOPPED')
  assert.deepEqual(
    (await runsOf(id)).map(({ state }) => state),
    ['CANCELED'],
  )
  await makeDue(id, '1 second')
  await until(
    async () =>
      (await database.query('select 1 from schedule where service_id = $1 and next_at > now()', [id])).length > 0,
    { what: 'the next moment' },
  )
  assert.equal((await runsOf(id)).length, 1)
  await setSpec(id, { on: { CRON: ['tick'] }, cron: '0 0 2 1 *' })
  assert.equal(await run('DEPLOY', id, { forceEvent: 'CRON' }), 'DEPLOYED')
  assert.ok((await logOf(id)).includes('tick'))
  const [schedule] = await database.query('select expression from schedule where service_id = $1', [id])
  assert.equal(schedule!.expression, yearly)
  await run('DEPLOY', id)
  const [changed] = await database.query('select expression from schedule where service_id = $1', [id])
  assert.ok(parseCron(String(changed!.expression)) !== null && changed!.expression === '0 0 2 1 *')
  await run('DELETE', id)
  assert.deepEqual(await runsOf(id), [])
})

test('what cannot be deployed can be stopped and deleted all the same', async () => {
  const id = await addService(world, {}, 'helm')
  assert.equal(await run('STOP', id), 'STOPPED')
  assert.equal(await run('DELETE', id), 'DELETED')
})

const tell = (value: object) => `write /slipway-output/slipway-output.json ${JSON.stringify(value)}`

test('a run by the clock is as one of a deploy: tried again, with what it hands on and what it puts out kept', async () => {
  const leave = (text: string) => `write /slipway-output/state.json ${text}`
  const words = ['show /slipway-input/state.json', leave('{"serial":2}'), tell({ A: { value: 'by the clock' } })]
  const spec = { state: 'HERE', image: 'fake/crash', tag: '3', maxRestarts: 1, cron: '* * * * *' }
  const on = { START: [leave('{"serial":1}')], CRON: words }
  const id = await addService(world, { ...spec, on: { CRON: words } }, 'job')
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  const ended = async (count: number) => {
    await makeDue(id, '1 second')
    const rows = await until(
      async () => {
        const all = await runsOf(id)
        return all.length === count && all.every(({ state }) => state !== 'RUNNING') ? all : null
      },
      { what: `run ${count}` },
    )
    return rows.at(-1)!
  }
  const outputs = () => database.query('select name, value from service_output where service_id = $1', [id])
  assert.equal((await ended(1)).error?.code, 'task_failed')
  assert.equal((await logOf(id)).filter((line) => /Restarting the job: attempt 2 of 2/.test(line)).length, 1)
  assert.deepEqual(await outputs(), [])
  await setSpec(id, { ...spec, image: 'fake/serve', on })
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  assert.equal((await ended(2)).state, 'SUCCEEDED')
  assert.ok((await logOf(id)).includes('{"serial":1}'))
  assert.deepEqual(await outputs(), [{ name: 'A', value: 'by the clock' }])
  const [state] = await database.query('select serial::int, held_by from task_state where id = $1', [id])
  assert.deepEqual(state, { serial: 2, held_by: null })
  await run('DELETE', id)
})

test('named tasks run beside what stays up: each by its own clock, or when it is forced', async () => {
  const daily = '0 0 1 1 *'
  const backup = { on: { CRON: ['dumped'] }, cron: daily, withVolumes: true }
  const prune = { on: { CRON: ['pruned'] }, cron: daily }
  const id = await addService(world, { volume: true, tasks: { backup, prune } }, 'database')
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  const clocks = async () => {
    const rows = await database.query('select name from schedule where service_id = $1 order by name', [id])
    return rows.map(({ name }) => name)
  }
  assert.deepEqual(await clocks(), ['backup', 'prune'])
  const releases = () => database.query('select id from release where service_id = $1', [id])
  const before = [await releases(), (await runtime.instancesOf(id)).map(({ name }) => name)]
  const tasks: Task[] = []
  const { run: runTask } = runtime
  runtime.run = (task, ...more) => {
    tasks.push(task)
    return runTask(task, ...more)
  }
  await database.query(`update schedule set next_at = now() where service_id = $1 and name = 'backup'`, [id])
  await database.query(`select pg_notify('slipway_schedule', '')`)
  await until(async () => (await runsOf(id))[0]?.state === 'SUCCEEDED', { what: 'the backup' })
  const [volume] = tasks[0]!.volumes
  assert.deepEqual([tasks.length, volume?.mountPath, tasks[0]!.arguments], [1, '/data', ['dumped']])
  assert.equal(await run('DEPLOY', id, { forceEvent: 'CRON', task: 'backup' }), 'DEPLOYED')
  assert.deepEqual([tasks.length, tasks[1]!.arguments], [2, ['dumped']])
  runtime.run = runTask
  assert.equal((await statusOf(id))!.running_state, 'RUNNING')
  assert.deepEqual([await releases(), (await runtime.instancesOf(id)).map(({ name }) => name)], before)
  await setSpec(id, { volume: true, tasks: { prune } })
  assert.equal(await run('DEPLOY', id), 'DEPLOYED')
  assert.deepEqual(await clocks(), ['prune'])
  await run('DELETE', id)
})

test('a run continues when the control plane stops: it is handed over, not ended, and the next process joins it', async () => {
  const own = await createWorld(await testDatabase())
  const first = createTestEngine(own)
  await first.engine.start()
  const id = await addService(own, { on: { CRON: ['tick'] }, cron: '0 3 1 1 *', image: 'fake/slow', tag: '700' }, 'job')
  await ask(first, own, 'DEPLOY', [{ id }])
  await until(async () => (await first.engine.statuses(own.database, [id]))[0]!.state === 'DEPLOYED', { what: 'it' })
  const tasks: Task[] = []
  const reasons: unknown[] = []
  const { run: runTask } = own.runtime
  own.runtime.run = (task, onLine, signal) => {
    tasks.push(task)
    signal.addEventListener('abort', () => reasons.push(signal.reason))
    return runTask(task, onLine, signal)
  }
  await own.database.query(`update schedule set next_at = now() - interval '1 second'`)
  await own.database.query(`select pg_notify('slipway_schedule', '')`)
  await until(() => tasks.length === 1, { what: 'the run' })
  await first.engine.stop()
  assert.ok(reasons[0] instanceof LeaseHandedOff)
  const second = createTestEngine(own)
  await second.engine.start()
  const ended = async () => {
    const rows = await own.database.query('select state from task_run')
    return rows.length === 1 && rows[0]!.state === 'SUCCEEDED'
  }
  await until(ended, { timeoutMs: 10_000, what: 'the end' })
  assert.deepEqual(
    tasks.map(({ taskId }) => taskId),
    [tasks[0]!.taskId, tasks[0]!.taskId],
  )
  await second.engine.stop()
  await own.runtime.close()
})

test('two workers that look at the same moment begin one run', async () => {
  const other = createTestEngine(world)
  await other.engine.start()
  const id = await cronJob()
  await run('DEPLOY', id)
  await makeDue(id, '1 second')
  await until(async () => (await runsOf(id)).some(({ state }) => state === 'SUCCEEDED'), { what: 'the run' })
  await run('STOP', id)
  assert.equal((await runsOf(id)).length, 1)
  await run('DELETE', id)
  await other.engine.stop()
})
