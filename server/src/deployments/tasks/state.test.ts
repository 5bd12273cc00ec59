import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask, createTestEngine, type TestEngine, type World } from '../../../test/support/engine.ts'
import { newWorld, settled, start, statusOf } from '../../../test/support/engine-story.ts'
import { until } from '../../../test/support/until.ts'
import type { Runtime } from '../../runtimes/runtime.ts'
import type { DeploymentAction, ServiceRequest } from '../deployments.ts'
import { parseOutputs } from './outputs.ts'

const leave = (text: string) => `write /slipway-output/state.json ${text}`
const tell = (value: object) => `write /slipway-output/slipway-output.json ${JSON.stringify(value)}`
const show = 'show /slipway-input/state.json'

const open = (sealed: string): string => Buffer.from(sealed, 'base64').toString()

const stateOf = async ({ database }: World, id: string) => {
  const [row] = await database.query<{ sealed: string | null; held: string | null; serial: number }>(
    'select sealed, held_by as held, serial::int from task_state where id = $1',
    [id],
  )
  if (row === undefined) return null
  return { text: row.sealed === null ? null : open(row.sealed), isHeld: row.held !== null, serial: row.serial }
}

const outputsOf = ({ database }: World, id: string) =>
  database.query<{ name: string; value: string | null; sealed: string | null }>(
    'select name, value, sealed from service_output where service_id = $1 order by name',
    [id],
  )

const logOf = async ({ database }: World, id: string): Promise<string[]> => {
  const rows = await database.query<{ lines: { text: string }[] }>(
    'select lines from deployment_log where service_id = $1 order by id',
    [id],
  )
  return rows.flatMap(({ lines }) => lines.map(({ text }) => text))
}

const run = async (
  engine: TestEngine,
  world: World,
  id: string,
  action: DeploymentAction = 'DEPLOY',
  more: Partial<ServiceRequest> = {},
): Promise<string> => {
  await ask(engine, world, action, [{ id, ...more }])
  return settled(engine, world, id)
}

const errorOf = async ({ database }: World, id: string): Promise<{ code: string; message: string } | null> => {
  const [row] = await database.query<{ error: { code: string; message: string } | null }>(
    'select error from deployment_service where service_id = $1 order by created_at desc limit 1',
    [id],
  )
  return row?.error ?? null
}

const setSpec = ({ database }: World, id: string, spec: object) =>
  database.query('update node set spec = $2 where id = $1', [id, JSON.stringify(spec)])

/** How often a program of each service really began. */
const countStarts = (runtime: Runtime): Map<string, number> => {
  const counts = new Map<string, number>()
  const { run: real } = runtime
  runtime.run = (task, onLine, signal, once) =>
    real(task, onLine, signal, {
      marked: once?.marked === true,
      mark: async () => {
        await once?.mark()
        counts.set(task.serviceId, 1 + (counts.get(task.serviceId) ?? 0))
      },
    })
  return counts
}

test('what a run leaves, the next one finds, whatever the end of the first; in the database it is sealed', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const first = { state: 'HERE', on: { START: [show, leave('{"serial":4,"word":"first"}')] } }
  const id = await addService(world, first, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  assert.deepEqual(await stateOf(world, id), { text: '{"serial":4,"word":"first"}', isHeld: false, serial: 4 })
  await setSpec(world, id, { state: 'HERE', image: 'fake/crash', on: { START: [show, leave('{"serial":5}')] } })
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  const log = await logOf(world, id)
  assert.ok(log.includes('nothing') && log.includes('{"serial":4,"word":"first"}'))
  assert.deepEqual(await stateOf(world, id), { text: '{"serial":5}', isHeld: false, serial: 5 })
  await setSpec(world, id, { ...first, image: 'fake/slow', tag: '60000', timeoutMs: 300 })
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.equal((await errorOf(world, id))!.code, 'task_timeout')
  assert.deepEqual(await stateOf(world, id), { text: '{"serial":4,"word":"first"}', isHeld: false, serial: 4 })
})

test('a cancel saves what a run had left until then, and frees it', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const spec = { state: 'HERE', image: 'fake/slow', tag: '60000', timeoutMs: 60_000, on: { START: [leave('{"a":1}')] } }
  const id = await addService(world, spec, 'job')
  await ask(engine, world, 'DEPLOY', [{ id }])
  await until(async () => (await stateOf(world, id))?.isHeld, { what: 'the run' })
  await until(async () => (await statusOf(engine, world, id))!.state === 'EXECUTING', { what: 'it' })
  await world.database.transaction((tx) => engine.engine.cancel(tx, world.ids.environmentId))
  assert.equal(await settled(engine, world, id), 'CANCELED')
  assert.deepEqual(await stateOf(world, id), { text: '{"a":1}', isHeld: false, serial: 0 })
})

test('a delete ends a run, saves what that had left, and ends the service with it', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const starting = { START: [leave('{"made":1}')], DELETE: [show] }
  const slow = { state: 'HERE', image: 'fake/slow', tag: '60000', timeoutMs: 60_000, on: starting }
  const id = await addService(world, slow, 'job')
  const seen: string[] = []
  const { run: real } = world.runtime
  world.runtime.run = (task, onLine, ...rest) => {
    // The program at the end of the service ends by itself.
    const mine = seen.push(task.image) === 1 ? task : { ...task, image: 'fake/serve' }
    const listen: typeof onLine = (line) => {
      seen.push(line)
      onLine(line)
    }
    return real(mine, listen, ...rest)
  }
  await ask(engine, world, 'DEPLOY', [{ id }])
  await until(async () => (await stateOf(world, id))?.isHeld, { what: 'the run' })
  await until(async () => (await statusOf(engine, world, id))!.state === 'EXECUTING', { what: 'it' })
  await ask(engine, world, 'DELETE', [{ id }])
  await until(async () => (await statusOf(engine, world, id)) === undefined, { timeoutMs: 15_000, what: 'its end' })
  assert.ok(seen.includes('{"made":1}'), seen.join())
})

test('when a container is gone in the middle of its run the state stays locked, until a person frees it', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const slow = { state: 'HERE', image: 'fake/slow', tag: '60000', timeoutMs: 60_000, on: { START: ['x'], UNLOCK: [] } }
  const id = await addService(world, slow, 'job')
  const { deploymentId, executionId } = await ask(engine, world, 'DEPLOY', [{ id }])
  const begun = async () => (await world.database.query('select 1 from task_state where begun = 1')).length > 0
  await until(begun, { what: 'the run' })
  await world.runtime.endTask(
    { ...world.ids, serviceId: id, taskId: `${deploymentId}-${id.slice(-12)}` },
    AbortSignal.timeout(1000),
  )
  assert.equal(await settled(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.equal((await errorOf(world, id))!.code, 'state_unknown')
  const quick = { state: 'HERE', on: { START: ['x'], PLAN: ['x'], UNLOCK: [] } }
  await setSpec(world, id, quick)
  assert.equal(await run(engine, world, id, 'DEPLOY', { forceEvent: 'PLAN' }), 'DEPLOYMENT_ERROR')
  assert.equal((await errorOf(world, id))!.code, 'state_locked')
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  const locked = (await errorOf(world, id))!
  assert.equal(locked.code, 'state_locked')
  assert.ok(locked.message.includes(executionId) && locked.message.includes('FORCE_UNLOCK'))
  assert.equal(await run(engine, world, id, 'DEPLOY', { forceEvent: 'UNLOCK' }), 'DEPLOYED')
  assert.equal((await statusOf(engine, world, id))!.service_deployment_status, 'NEVER_DEPLOYED')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
})

test('a look ahead changes nothing: no release, no state, no outputs', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const on = { START: [leave('{"serial":1}')], PLAN: ['planned', tell({ A: { value: 1 } })] }
  const id = await addService(world, { state: 'HERE', on }, 'job')
  assert.equal(await run(engine, world, id, 'DEPLOY', { forceEvent: 'PLAN' }), 'DEPLOYED')
  assert.ok((await logOf(world, id)).includes('planned'))
  const status = (await statusOf(engine, world, id))!
  assert.deepEqual([status.service_deployment_status, status.last_deployment_date], ['NEVER_DEPLOYED', undefined])
  assert.deepEqual(await world.database.query('select 1 from release'), [])
  assert.deepEqual(await outputsOf(world, id), [])
  assert.equal(await stateOf(world, id), null)
})

test('the end of a service runs with the release that changed its state last, also when that one failed', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const on = { START: [leave('{"serial":1}')], DELETE: [show, 'ending'] }
  const id = await addService(world, { state: 'HERE', on, image: 'fake/crash' }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  await setSpec(world, id, { state: 'HERE', on })
  assert.equal(await run(engine, world, id, 'UNINSTALL'), 'DELETE_ERROR')
  assert.deepEqual(
    (await logOf(world, id)).filter((line) => ['{"serial":1}', 'ending'].includes(line)),
    ['{"serial":1}', 'ending'],
  )
  assert.equal(await run(engine, world, id, 'UNINSTALL', { skipEnding: true }), 'READY')
})

test('resources that an uninstall keeps are kept with its state, and destroyed by a later end', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const on = { START: [leave('{"serial":1}')], DELETE: [show, 'ending'] }
  const id = await addService(world, { state: 'HERE', on }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  assert.equal(await run(engine, world, id, 'UNINSTALL', { skipEnding: true }), 'READY')
  assert.ok(!(await logOf(world, id)).includes('ending'))
  assert.notEqual(await stateOf(world, id), null)
  assert.equal(await run(engine, world, id, 'UNINSTALL'), 'READY')
  assert.ok((await logOf(world, id)).includes('ending'))
  assert.equal(await stateOf(world, id), null)
})

test('a service that never left a state has nothing to end', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const id = await addService(world, { state: 'HERE', on: { START: ['x'], DELETE: ['ending'] } }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  assert.equal(await run(engine, world, id, 'UNINSTALL'), 'READY')
  assert.ok(!(await logOf(world, id)).includes('ending'))
})

test('a state that is to be kept elsewhere is not left behind unseen: it is migrated first', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const on = { START: [leave('{"serial":1}')], MIGRATE: [show] }
  const id = await addService(world, { state: 'HERE', on }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  await setSpec(world, id, { state: 'ELSEWHERE', on: { START: ['x'], MIGRATE: [show] } })
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.equal((await errorOf(world, id))!.code, 'state_not_migrated')
  assert.equal(await run(engine, world, id, 'DEPLOY', { forceEvent: 'MIGRATE' }), 'DEPLOYED')
  assert.ok((await logOf(world, id)).includes('{"serial":1}'))
  assert.equal(await stateOf(world, id), null)
  assert.equal(await run(engine, world, id), 'DEPLOYED')
})

test('what was migrated here is ended with its service, by the release that is deployed', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const id = await addService(world, { state: 'ELSEWHERE', on: { START: ['x'] } }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  const on = { MIGRATE: [leave('{"serial":1}')], DELETE: [show, 'ending'] }
  await setSpec(world, id, { state: 'HERE', on })
  assert.equal(await run(engine, world, id, 'DEPLOY', { forceEvent: 'MIGRATE' }), 'DEPLOYED')
  assert.equal((await world.database.query('select 1 from release')).length, 1)
  assert.equal(await run(engine, world, id, 'UNINSTALL'), 'READY')
  assert.deepEqual((await logOf(world, id)).slice(-4), ['{"serial":1}', 'ending', 'Job finished.', 'Uninstalled.'])
})

test('outputs are kept after a good end, secrets sealed; the next ones take their place; an end of the service takes them', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const told = { URL: { value: 'http://x' }, KEY: { value: 'hush', sensitive: true }, LIST: { value: [1, 2] } }
  const id = await addService(world, { on: { START: [tell(told)] } }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  const rows = await outputsOf(world, id)
  assert.deepEqual(
    rows.map(({ name, value }) => [name, value]),
    [
      ['KEY', null],
      ['LIST', '[1,2]'],
      ['URL', 'http://x'],
    ],
  )
  assert.equal(open(rows[0]!.sealed!), 'hush')
  const other = `write /qovery-output/qovery-output.json ${JSON.stringify({ URL: { value: 'http://y' } })}`
  await setSpec(world, id, { on: { START: [other] } })
  assert.equal(await run(engine, world, id), 'DEPLOYED')
  assert.deepEqual(await outputsOf(world, id), [{ name: 'URL', value: 'http://y', sealed: null }])
  await setSpec(world, id, { on: { START: [tell({ URL: { value: 'z' } })] }, image: 'fake/crash' })
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.deepEqual(await outputsOf(world, id), [{ name: 'URL', value: 'http://y', sealed: null }])
  assert.equal(await run(engine, world, id, 'UNINSTALL'), 'READY')
  assert.deepEqual(await outputsOf(world, id), [])
})

test('an output file that cannot be meant fails the job in one sentence, and its state is saved all the same', async () => {
  const world = await newWorld()
  const engine = await start(world)
  const bad = 'write /slipway-output/slipway-output.json {"A":'
  const id = await addService(world, { state: 'HERE', on: { START: [leave('{"serial":2}'), bad] } }, 'job')
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.deepEqual(await errorOf(world, id).then((error) => [error!.code, error!.message]), [
    'output_refused',
    'The output file is not JSON.',
  ])
  assert.equal((await stateOf(world, id))!.text, '{"serial":2}')
  const large = `write /slipway-output/slipway-output.json ${'x'.repeat(2 ** 20 + 1)}`
  await setSpec(world, id, { state: 'HERE', on: { START: [leave('{"serial":3}'), large] } })
  assert.equal(await run(engine, world, id), 'DEPLOYMENT_ERROR')
  assert.equal((await errorOf(world, id))!.code, 'file_too_large')
  assert.deepEqual(await stateOf(world, id), { text: '{"serial":3}', isHeld: false, serial: 3 })
  const refused = (value: unknown) => assert.throws(() => parseOutputs(() => JSON.stringify(value)), /output file/)
  refused([])
  refused({ 'a-b': { value: '1' } })
  refused({ A: 'plain' })
  refused({ A: { value: 'x'.repeat(65_537) } })
  refused(Object.fromEntries(Array.from({ length: 101 }, (_, at) => [`A${at}`, { value: '1' }])))
  refused(Object.fromEntries(Array.from({ length: 5 }, (_, at) => [`A${at}`, { value: 'x'.repeat(60_000) }])))
})

test('killed at any call, a run begins once, its state is saved and free, and its outputs are stored', async () => {
  const on = { START: [show, leave('{"serial":7}'), tell({ A: { value: 'told' } })] }
  const spec = { state: 'HERE', image: 'fake/slow', tag: '60', on }
  const world = await newWorld()
  const starts = countStarts(world.runtime)
  let cuts = 0
  for (let calls = 8; calls <= 48; calls += 2) {
    const id = await addService(world, spec, 'job')
    await ask(createTestEngine(world), world, 'DEPLOY', [{ id }])
    const first = await start(world, { callsLeft: calls, lateCut: calls % 4 === 0 })
    const cut = until(() => first.power.off, { timeoutMs: 10_000, what: 'the cut' }).then(() => true)
    if (await Promise.race([cut, settled(first, world, id).then(() => false)])) cuts += 1
    const second = await start(world)
    // A claim in progress at the death may be committed after it: its lease then runs out by itself.
    const state = await settled(second, world, id, 30_000)
    assert.equal(state, 'DEPLOYED', `${calls}: ${JSON.stringify(await errorOf(world, id))}`)
    const kept = await stateOf(world, id)
    assert.deepEqual([starts.get(id), kept], [1, { text: '{"serial":7}', isHeld: false, serial: 7 }], `${calls}`)
    assert.equal((await outputsOf(world, id))[0]!.value, 'told')
    await second.engine.stop()
    // Off, or it has nothing left to do: either way it does nothing more.
    first.power.off = true
  }
  assert.ok(cuts > 10, `${cuts} cuts`)
})
