import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask } from '../../test/engine.ts'
import { newWorld, settled, start, statusOf } from '../../test/engine-story.ts'
import { createFakeClock } from '../../test/fake-clock.ts'
import { until } from '../../test/until.ts'
import { createLog } from '../lib/log.ts'
import { createWorkRegistry } from '../work/registry.ts'
import { keepPulse } from './pulse.ts'

test('while the engine is away what runs is UNAVAILABLE but deployed, jobs are left alone, and its return is told once', async (t) => {
  const world = await newWorld()
  const engine = await start(world)
  const [id, job] = [await addService(world), await addService(world, { on: { START: ['begun'] } }, 'job')]
  await ask(engine, world, 'DEPLOY', [{ id }, { id: job }])
  await settled(engine, world, id)
  await settled(engine, world, job)
  await until(async () => (await statusOf(engine, world, job))!.deployment_requests_count === 0, { what: 'its end' })
  const before = await statusOf(engine, world, job)
  let [returns, away] = [0, false]
  const clock = createFakeClock()
  const runtime = { ping: () => (away ? Promise.reject(new Error('away')) : Promise.resolve()) }
  const parts = { database: world.database, work: createWorkRegistry(clock), log: createLog('silent'), runtime, clock }
  const pulse = keepPulse(parts, () => {
    returns += 1
  })
  t.after(() => pulse.stop())
  const runningState = async () => (await statusOf(engine, world, id))!.running_state
  await clock.advance(5000)
  away = true
  await clock.advance(5000)
  assert.equal(await runningState(), 'RUNNING')
  await clock.advance(5000)
  await until(async () => (await runningState()) === 'UNAVAILABLE', { what: 'the mark' })
  const status = (await statusOf(engine, world, id))!
  assert.deepEqual([status.state, status.service_deployment_status], ['DEPLOYED', 'UP_TO_DATE'])
  assert.deepEqual(await statusOf(engine, world, job), before)
  assert.equal(returns, 0)
  away = false
  await clock.advance(10_000)
  assert.equal(returns, 1)
})
