import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { createLog } from '../lib/log.ts'
import { createLoop, type LoopOptions } from './loop.ts'
import { createWorkRegistry } from './registry.ts'

const scene = (run: LoopOptions['run'], more: Partial<LoopOptions> = {}) => {
  const clock = createFakeClock()
  const work = createWorkRegistry(clock)
  const options = { name: 'tidy', periodMs: 1000, failed: 'not tidied', run, ...more }
  return { clock, work, loop: createLoop({ clock, work, log: createLog('silent') }, options) }
}

test('a turn comes at once, after each period, when woken, and when a turn asks for the next, never later than the period', async () => {
  const at: number[] = []
  let pauses: (number | undefined)[] = []
  const { clock, loop } = scene(async () => {
    at.push(clock.monotonicMs())
    return pauses.shift()
  })
  await clock.advance(2500)
  assert.deepEqual(at.splice(0), [0, 1000, 2000])
  loop.wake()
  await clock.advance(1000)
  assert.deepEqual(at.splice(0), [2500, 3500])
  loop.wake(300)
  loop.wake(700)
  pauses = [50, 5000]
  await clock.advance(1400)
  assert.deepEqual(at.splice(0), [3800, 3850, 4850])
  await loop.stop()
  loop.wake()
  await clock.advance(5000)
  assert.deepEqual(at, [])
  assert.equal(clock.sleeping(), 0)
})

test('what is woken during a turn gets one more turn after it, never a second beside it', async () => {
  let [turns, atOnce, most] = [0, 0, 0]
  let ends = Promise.withResolvers<void>()
  const { clock, loop } = scene(async () => {
    turns += 1
    atOnce += 1
    most = Math.max(most, atOnce)
    await ends.promise
    atOnce -= 1
  })
  await clock.rest()
  for (let times = 0; times < 5; times += 1) loop.wake()
  await clock.rest()
  assert.equal(turns, 1)
  ends.resolve()
  ends = Promise.withResolvers()
  await clock.rest()
  assert.deepEqual([turns, most], [2, 1])
  ends.resolve()
  await clock.advance(999)
  assert.equal(turns, 2)
  await loop.stop()
})

test('a turn that fails comes again after pauses that double up to the longest, is shown with its code only, and stop waits for the turn under way', async () => {
  const at: number[] = []
  let fails = true
  const held = Promise.withResolvers<void>()
  const { clock, loop, work } = scene(
    async (signal) => {
      at.push(clock.monotonicMs())
      if (fails) throw Object.assign(new Error('no route to 10.0.0.7'), { code: 'EHOSTUNREACH' })
      await held.promise
      signal.throwIfAborted()
    },
    { waits: true, backoff: { firstMs: 100, longestMs: 350 } },
  )
  await clock.advance(2000)
  assert.deepEqual(at, [1000, 1100, 1300, 1650, 2000])
  const [{ runs, failures, lastError, lastRunAt } = assert.fail()] = work.read()
  assert.deepEqual([runs, failures, lastError?.code], [5, 5, 'EHOSTUNREACH'])
  assert.deepEqual(lastRunAt, clock.now())
  fails = false
  await clock.advance(350)
  assert.equal(work.read()[0]!.active, 1)
  let stopped = false
  const stopping = loop.stop().then(() => {
    stopped = true
  })
  await clock.rest()
  assert.equal(stopped, false)
  held.resolve()
  await stopping
  // A turn that was cut off by the stop has not failed.
  assert.deepEqual([work.read()[0]!.runs, work.read()[0]!.failures], [6, 5])
})
