import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { createLog } from '../lib/log.ts'
import { createKeyedQueue, type KeyedQueueOptions } from './keyed-queue.ts'
import { createWorkRegistry } from './registry.ts'

const scene = (run: KeyedQueueOptions['run'], workers = 2) => {
  const clock = createFakeClock()
  const work = createWorkRegistry(clock)
  const backoff = { firstMs: 100, longestMs: 1000 }
  const options = { name: 'mend', workers, backoff, failed: 'not mended', run }
  return { clock, work, queue: createKeyedQueue({ clock, work, log: createLog('silent') }, options) }
}

test('a hundred keys are worked on by so many workers at once, each key once, in the order of their coming', async () => {
  const begun: string[] = []
  let [atOnce, most] = [0, 0]
  const { clock, queue, work } = scene(async (key) => {
    begun.push(key)
    atOnce += 1
    most = Math.max(most, atOnce)
    await clock.sleep(300)
    atOnce -= 1
  }, 10)
  const keys = Array.from({ length: 100 }, (_, index) => `service ${index}`)
  for (const key of [...keys, ...keys]) queue.add(key)
  await clock.rest()
  assert.equal(work.read()[0]!.waiting, 90)
  const settled = queue.settled().then(() => clock.monotonicMs())
  await clock.advance(5000)
  assert.equal(await settled, 3000)
  assert.deepEqual(begun, keys)
  assert.equal(most, 10)
  await queue.settled()
  await queue.stop()
})

test('a key that is added while it is worked on runs once more afterwards, never beside itself', async () => {
  const at: number[] = []
  const { clock, queue } = scene(async () => {
    at.push(clock.monotonicMs())
    await clock.sleep(500)
  })
  queue.add('a')
  await clock.advance(100)
  for (let times = 0; times < 3; times += 1) queue.add('a')
  queue.add('a', 50)
  await clock.advance(5000)
  assert.deepEqual(at, [0, 500])
  await queue.stop()
})

test('many notices within a moment are one run at its end, and the earliest moment counts', async () => {
  const at: number[] = []
  const { clock, queue } = scene(async () => void at.push(clock.monotonicMs()))
  queue.add('a', 300)
  await clock.advance(200)
  queue.add('a', 300)
  await queue.settled()
  await clock.advance(1000)
  assert.deepEqual(at.splice(0), [300])
  queue.add('a', 300)
  queue.add('a', 100)
  await clock.advance(1000)
  assert.deepEqual(at.splice(0), [1300])
  queue.add('a', 300)
  queue.add('a')
  await clock.advance(1000)
  assert.deepEqual(at, [2200])
  await queue.stop()
})

test('a key that fails comes again after pauses of its own, holds up no other, and starts anew once it succeeded', async () => {
  const at: Record<string, number[]> = { bad: [], good: [] }
  let fails = true
  const { clock, queue, work } = scene(async (key) => {
    at[key]!.push(clock.monotonicMs())
    if (key === 'bad' && fails) throw new TypeError('broken')
  }, 1)
  queue.add('bad')
  queue.add('good')
  await queue.settled()
  await clock.advance(2600)
  assert.deepEqual(at, { bad: [0, 100, 300, 700, 1500, 2500], good: [0] })
  assert.deepEqual([work.read()[0]!.failures, work.read()[0]!.lastError?.code], [6, 'TypeError'])
  // A change meanwhile brings the retry forward.
  fails = false
  queue.add('bad')
  await clock.advance(3000)
  assert.deepEqual(at.bad!.splice(0), [0, 100, 300, 700, 1500, 2500, 2600])
  fails = true
  queue.add('bad')
  await clock.advance(150)
  assert.deepEqual(at.bad, [5600, 5700])
  await queue.stop()
})

test('a key may ask for its next time, and stop drops waiting keys, aborts running ones, and waits for their end', async () => {
  const at: number[] = []
  let reason: unknown
  const held = Promise.withResolvers<void>()
  const { clock, queue, work } = scene(async (key, signal) => {
    if (key === 'often') {
      at.push(clock.monotonicMs())
      return 1000
    }
    await held.promise
    reason = signal.reason
    signal.throwIfAborted()
    return undefined
  }, 1)
  queue.add('often')
  await clock.advance(2500)
  assert.deepEqual(at.splice(0), [0, 1000, 2000])
  queue.add('long')
  queue.add('next')
  await clock.rest()
  let stopped = false
  const stopping = queue.stop().then(() => {
    stopped = true
  })
  await clock.advance(5000)
  assert.deepEqual([stopped, at.length, clock.sleeping()], [false, 0, 0])
  held.resolve()
  await stopping
  assert.ok(reason instanceof Error)
  queue.add('late')
  await clock.advance(5000)
  assert.deepEqual([work.read()[0]!.failures, work.read()[0]!.waiting, clock.sleeping()], [0, 0, 0])
})
