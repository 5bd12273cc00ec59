import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask } from '../../test/support/engine.ts'
import {
  newWorld,
  openDeployments,
  revisions,
  settled,
  start,
  statusOf,
  targets,
} from '../../test/support/engine-story.ts'
import { until } from '../../test/support/until.ts'
import { DeploymentError } from '../lib/errors.ts'

test('a deployment shows its queued state at once and ends deployed, routed, with its release', async () => {
  const world = await newWorld()
  const id = await addService(world)
  const engine = await start(world)
  const { deploymentId, executionId } = await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(executionId, `${world.ids.environmentId}-1`)
  assert.notEqual((await statusOf(engine, world, id))!.state, 'READY')
  assert.equal(await settled(engine, world, id), 'DEPLOYED')
  assert.deepEqual(await revisions(world, id), [deploymentId])
  assert.equal(targets(world, id).length, 1)
  const status = await statusOf(engine, world, id)
  assert.deepEqual(
    [status!.service_deployment_status, status!.running_state, status!.deployment_request_id],
    ['UP_TO_DATE', 'RUNNING', null],
  )
  assert.deepEqual(
    world.events.map((event) => event.kind),
    ['DEPLOYMENT_STARTED', 'DEPLOYMENT_SUCCESSFUL'],
  )
})

test('deployments of one environment run one at a time, and an equal waiting request is joined', async () => {
  const world = await newWorld()
  const id = await addService(world)
  world.images.set('c1', 'fake/slow:300')
  const engine = await start(world)
  const first = await ask(engine, world, 'DEPLOY', [{ id }])
  await until(async () => (await openDeployments(world)).some((row) => row.state === 'RUNNING'), {
    what: 'a running one',
  })
  const second = await ask(engine, world, 'DEPLOY', [{ id }])
  const third = await ask(engine, world, 'DEPLOY', [{ id }])
  const other = await ask(engine, world, 'DEPLOY', [{ id, commitId: 'c2' }])
  assert.notEqual(second.deploymentId, first.deploymentId)
  assert.equal(third.deploymentId, second.deploymentId)
  assert.notEqual(other.deploymentId, second.deploymentId)
  await until(async () => (await openDeployments(world)).length === 0, {
    timeoutMs: 20_000,
    what: 'the queue to drain',
  })
  const overlaps = await world.database.query(
    `select 1 from deployment a join deployment b on a.environment_id = b.environment_id and a.seq < b.seq
     where b.started_at < a.finished_at`,
  )
  assert.deepEqual(overlaps, [])
  assert.deepEqual(await revisions(world, id), [other.deploymentId])
})

test('a failed build, a version that never gets ready and a crash leave the old version serving, and say why', async () => {
  const world = await newWorld()
  const id = await addService(world, { readyTimeoutMs: 400 })
  const engine = await start(world)
  const { deploymentId } = await ask(engine, world, 'DEPLOY', [{ id }])
  await settled(engine, world, id)
  world.images.set('build', new DeploymentError('build_failed', 'The build failed.', { lines: ['last line'] }))
  world.images.set('deaf', 'fake/never-ready')
  world.images.set('crash', 'fake/crash:3')
  world.images.set('missing', 'fake/refuse')
  const before = JSON.stringify(targets(world, id))
  const cases = {
    build: 'BUILD_ERROR',
    deaf: 'DEPLOYMENT_ERROR',
    crash: 'DEPLOYMENT_ERROR',
    missing: 'DEPLOYMENT_ERROR',
  }
  for (const [head, expected] of Object.entries(cases)) {
    world.head = head
    await ask(engine, world, 'DEPLOY', [{ id }])
    assert.equal(await settled(engine, world, id), expected, head)
    assert.deepEqual(await revisions(world, id), [deploymentId], head)
    assert.equal(JSON.stringify(targets(world, id)), before, head)
    assert.equal(
      (await statusOf(engine, world, id))!.service_deployment_status,
      head === 'never' ? '' : expected.startsWith('BUILD') || expected.startsWith('DEPLOYMENT') ? 'OUT_OF_DATE' : '',
    )
    const [log] = await world.database.query<{ text: string }>(
      `select string_agg(lines::text, ' ') as text from deployment_log where deployment_id =
         (select id from deployment order by seq desc limit 1)`,
    )
    assert.match(log!.text, /"error"/, head)
  }
})

test('a build that prints what a database cannot hold fails like any other, and its log is kept', async () => {
  const world = await newWorld()
  const id = await addService(world, {})
  const engine = await start(world)
  const lines = ['half \ud83d', 'nul \0', String.raw`literal \u0000" quote`]
  world.images.set('build', new DeploymentError('build_failed', 'It failed: \0 \ud83d', { lines }))
  world.head = 'build'
  await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, world, id), 'BUILD_ERROR')
  const rows = await world.database.query<{ lines: { text: string }[] }>(
    `select lines from deployment_log where step = 'error'`,
  )
  const texts = rows.flatMap((row) => row.lines.map((line) => line.text))
  assert.deepEqual(texts, ['half \ufffd', 'nul ', String.raw`literal \u0000" quote`, 'It failed:  \ufffd'])
})

test('what a failing program printed is kept without the secrets in it', async (t) => {
  const world = await newWorld()
  const id = await addService(world, {})
  const engine = await start(world)
  const lines = ['connecting with secret-canary', Buffer.from('secret-canary').toString('base64')]
  t.mock.method(world.runtime.instances, 'ready', () =>
    Promise.reject(new DeploymentError('crashed', 'It ended.', { lines })),
  )
  await ask(engine, world, 'DEPLOY', [{ id }])
  assert.equal(await settled(engine, world, id), 'DEPLOYMENT_ERROR')
  const [kept] = await world.database.query<{ log: string; error: { lines: string[] } }>(
    `select (select string_agg(lines::text, ' ') from deployment_log) as log, error from deployment_service`,
  )
  assert.deepEqual(kept!.error.lines, ['connecting with ***', '***'])
  assert.match(kept!.log, /connecting with \*\*\*/)
  assert.doesNotMatch(kept!.log, /secret-canary|c2VjcmV0/)
})

test('a first failure stops what has not started, and the untouched service shows what it was', async () => {
  const world = await newWorld()
  const early = await addService(world, { readyTimeoutMs: 300 }, 'terraform')
  const late = await addService(world)
  world.images.set('c1', 'fake/never-ready')
  const engine = await start(world)
  await ask(engine, world, 'DEPLOY', [{ id: early }, { id: late }], { wholeEnvironment: true })
  assert.equal(await settled(engine, world, early), 'DEPLOYMENT_ERROR')
  assert.equal(await settled(engine, world, late), 'READY')
  assert.deepEqual(world.events.map((event) => event.kind).sort(), [
    'DEPLOYMENT_CANCELLED',
    'DEPLOYMENT_FAILURE',
    'DEPLOYMENT_STARTED',
    'DEPLOYMENT_STARTED',
  ])
})

test('stop, restart and delete leave exactly what they should', async () => {
  const world = await newWorld()
  const id = await addService(world, { instances: 2 })
  const engine = await start(world)
  await ask(engine, world, 'DEPLOY', [{ id }])
  await settled(engine, world, id)
  const { deploymentId } = await ask(engine, world, 'RESTART', [{ id }])
  assert.equal(await settled(engine, world, id), 'RESTARTED')
  assert.deepEqual(await revisions(world, id), [deploymentId, deploymentId])
  assert.deepEqual(world.builds, ['c1'])
  await ask(engine, world, 'STOP', [{ id }])
  assert.equal(await settled(engine, world, id), 'STOPPED')
  assert.deepEqual(await revisions(world, id), [])
  assert.deepEqual(
    world.routes.get(id)!.map((route) => route.state),
    ['stopped'],
  )
  await ask(engine, world, 'DELETE', [{ id }])
  assert.equal(await settled(engine, world, id), 'DELETED')
  assert.deepEqual(world.routes.get(id), [])
})

test('a cancel ends in CANCELED or, too late, in DEPLOYED, never in both, whatever its moment', async () => {
  const world = await newWorld()
  const id = await addService(world)
  const engine = await start(world)
  world.images.set('c1', 'fake/slow:40')
  const began = performance.now()
  await ask(engine, world, 'DEPLOY', [{ id }])
  await settled(engine, world, id)
  // Up to twice the time of a deployment that is not canceled, on however busy a machine.
  const stepMs = (2 * (performance.now() - began)) / 30
  const seen = new Set<string>()
  for (let round = 0; round < 30; round += 1) {
    world.images.set(`r${round}`, 'fake/slow:40')
    world.head = `r${round}`
    const { deploymentId } = await ask(engine, world, 'DEPLOY', [{ id }])
    const started = performance.now()
    await until(() => performance.now() - started >= round * stepMs, { what: 'the moment of the cancel' })
    await world.database.transaction((tx) => engine.engine.cancel(tx, world.ids.environmentId)).catch(() => {})
    const state = await settled(engine, world, id)
    seen.add(state)
    assert.ok(['CANCELED', 'DEPLOYED'].includes(state), state)
    await until(async () => (await openDeployments(world)).length === 0, { what: 'the deployment to end' })
    const [row] = await world.database.query(`select state from deployment where id = $1`, [deploymentId])
    assert.equal(row!.state, state === 'DEPLOYED' ? 'SUCCEEDED' : 'CANCELED')
    const present = await revisions(world, id)
    assert.equal(present.length, 1)
    assert.equal(present[0] === deploymentId, state === 'DEPLOYED')
    assert.equal(targets(world, id).length, 1)
  }
  assert.equal(seen.size, 2, [...seen].join())
})

test('a cancel ends within its 15 s even when what it aborts never ends', async () => {
  const world = await newWorld()
  const id = await addService(world)
  world.images.set('c1', 'hang')
  const engine = await start(world)
  await ask(engine, world, 'DEPLOY', [{ id }])
  await until(async () => (await statusOf(engine, world, id))!.state === 'BUILDING', { what: 'the build' })
  const beganMs = performance.now()
  await world.database.transaction((tx) => engine.engine.cancel(tx, world.ids.environmentId))
  assert.equal(await settled(engine, world, id, 15_000), 'CANCELED')
  const tookMs = performance.now() - beganMs
  assert.ok(tookMs <= 15_000, `${tookMs} ms`)
})

test('a worker that lost its lease writes nothing more', async () => {
  const world = await newWorld()
  const id = await addService(world)
  world.images.set('c1', 'fake/slow:1500')
  const engine = await start(world)
  const { deploymentId } = await ask(engine, world, 'DEPLOY', [{ id }])
  // Before it creates the instance, the worker checks its lease once more and would begin nothing.
  await until(async () => (await world.runtime.instancesOf(id)).length === 1, { what: 'the instance' })
  await world.database.query(`update deployment set fence = fence + 1, worker = 'another' where id = $1`, [
    deploymentId,
  ])
  await until(async () => (await world.runtime.instancesOf(id))[0]?.state === 'running', { what: 'a running instance' })
  await engine.engine.stop()
  engine.power.off = true
  const [row] = await world.database.query('select state, worker from deployment where id = $1', [deploymentId])
  assert.deepEqual(row, { state: 'RUNNING', worker: 'another' })
  const next = await start(world)
  assert.equal(await settled(next, world, id), 'DEPLOYED')
})

test('what was removed or left over behind our back is put right', async () => {
  const world = await newWorld()
  const id = await addService(world)
  const engine = await start(world)
  const { deploymentId } = await ask(engine, world, 'DEPLOY', [{ id }])
  await settled(engine, world, id)
  await world.runtime.instances.retire({ ...world.ids, serviceId: id }, null, 0, AbortSignal.timeout(5000))
  await until(async () => (await revisions(world, id)).length === 1, { timeoutMs: 10_000, what: 'a new instance' })
  assert.deepEqual(await revisions(world, id), [deploymentId])
})
