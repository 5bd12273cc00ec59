import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask } from '../../test/engine.ts'
import { newWorld, settled, start, statusOf } from '../../test/engine-story.ts'
import { until } from '../../test/until.ts'
import { createLog } from '../lib/log.ts'
import type { EngineParts } from './engine-parts.ts'
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
  let [beats, returns, away] = [0, 0, false]
  const controller = new AbortController()
  t.after(() => controller.abort())
  const parts = {
    ...world,
    runtime: { ping: () => (away ? Promise.reject(new Error('away')) : Promise.resolve()) },
    clock: {
      async sleep() {
        beats += 1
        await until(() => controller.signal.aborted || beats < 3, { what: 'the next beat' })
      },
    },
    log: createLog('silent'),
  } as unknown as EngineParts
  const beat = async (times: number): Promise<void> => {
    beats -= times
    await until(() => beats === 3, { what: 'the beats' })
  }
  const ended = keepPulse(parts, controller.signal, () => {
    returns += 1
  })
  await until(() => beats === 3, { what: 'the first beats' })
  away = true
  await beat(1)
  assert.equal((await statusOf(engine, world, id))!.running_state, 'RUNNING')
  await beat(1)
  const status = (await statusOf(engine, world, id))!
  assert.deepEqual([status.running_state, status.state], ['UNAVAILABLE', 'DEPLOYED'])
  assert.equal(status.service_deployment_status, 'UP_TO_DATE')
  assert.deepEqual(await statusOf(engine, world, job), before)
  assert.equal(returns, 0)
  away = false
  await beat(2)
  assert.equal(returns, 1)
  controller.abort()
  await ended
})
