import assert from 'node:assert/strict'
import { test } from 'node:test'
import { addService, ask } from '../../../test/support/engine.ts'
import { newWorld, settled, start, statusOf } from '../../../test/support/engine-story.ts'
import { createFakeClock } from '../../../test/support/fake-clock.ts'
import { until } from '../../../test/support/until.ts'
import { createClusters } from '../../clusters/clusters.ts'
import { createLog } from '../../lib/log.ts'
import { createWorkRegistry } from '../../work/registry.ts'
import { watchHealth } from './health.ts'

test('while the engine does not answer, running services are UNAVAILABLE but deployed, jobs are left alone, and its return is reported once', async (t) => {
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
  const { database } = world
  const ping = () => (away ? Promise.reject(new Error('away')) : Promise.resolve())
  const clusters = createClusters({ database, runtime: { ...world.runtime, ping } })
  const parts = { database, work: createWorkRegistry(clock), log: createLog('silent'), clock }
  const health = watchHealth(parts, await clusters.of(world.clusterId), () => {
    returns += 1
  })
  t.after(() => health.stop())
  /** The writes of a check take time that the fake clock does not measure. */
  const advance = async (ms: number): Promise<void> => {
    await until(() => clock.sleeping() > 0, { what: 'the end of a look' })
    await clock.advance(ms)
  }
  const runningState = async () => (await statusOf(engine, world, id))!.running_state
  await advance(5000)
  away = true
  await advance(5000)
  assert.equal(await runningState(), 'RUNNING')
  await advance(1000)
  await until(async () => (await runningState()) === 'UNAVAILABLE', { what: 'the mark' })
  const status = (await statusOf(engine, world, id))!
  assert.deepEqual([status.state, status.service_deployment_status], ['DEPLOYED', 'UP_TO_DATE'])
  assert.deepEqual(await statusOf(engine, world, job), before)
  assert.equal(returns, 0)
  away = false
  await advance(10_000)
  assert.equal(returns, 1)
})
