import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { createLog } from '../lib/log.ts'
import { LeaseLost } from './lease.ts'
import { createWorkRegistry } from './registry.ts'
import { createWorker, type Held, type WorkQueue } from './worker.ts'

const [everyMs, leaseMs] = [4000, 15_000]

interface Job {
  signal: AbortSignal
  ends: PromiseWithResolvers<void>
}

/** A queue in memory, which records until when each lease is held. */
const scene = (more: Partial<WorkQueue<string>> = {}) => {
  const clock = createFakeClock()
  const waiting: string[] = []
  const jobs = new Map<string, Job>()
  const leases = new Map<string, number>()
  const released: string[] = []
  const world = { away: false, ends: new Map<string, Error>() }
  const reach = () => {
    if (world.away) throw new Error('the database is away')
  }
  const run = async (id: string, { signal }: Held): Promise<void> => {
    const ends = Promise.withResolvers<void>()
    jobs.set(id, { signal, ends })
    signal.addEventListener('abort', () => ends.reject(signal.reason))
    await ends.promise
  }
  const queue: WorkQueue<string> = {
    name: 'jobs',
    concurrency: 2,
    periodMs: 5000,
    idOf: (id) => id,
    about: (id) => ({ id }),
    async claim() {
      reach()
      const next = waiting.shift()
      if (next === undefined) return { claimed: [], more: false }
      leases.set(next, clock.monotonicMs() + leaseMs)
      return { claimed: [next], more: true }
    },
    run,
    renew: {
      everyMs,
      leaseMs,
      async renew(ids) {
        reach()
        for (const id of ids) leases.set(id, clock.monotonicMs() + leaseMs)
        return world.ends
      },
    },
    async release(ids) {
      reach()
      released.push(...ids)
    },
    failed: 'a job is left to its next claim',
    ...more,
  }
  const work = createWorkRegistry(clock)
  const worker = createWorker({ clock, work, log: createLog('silent') }, queue)
  return { clock, waiting, jobs, leases, released, world, work, worker }
}

test('so many pieces of work are done at once and no more; the end of one begins the next', async () => {
  const { clock, waiting, jobs, work, worker } = scene()
  waiting.push('a', 'b', 'c')
  worker.wake()
  await clock.rest()
  assert.deepEqual([...jobs.keys()], ['a', 'b'])
  jobs.get('a')!.ends.resolve()
  await clock.rest()
  assert.deepEqual([...jobs.keys()], ['a', 'b', 'c'])
  const figures = work.read().find(({ name }) => name === 'jobs')!
  assert.deepEqual([figures.runs, figures.active, figures.failures], [1, 2, 0])
  await worker.stop()
})

test('leases are renewed, and while they cannot be the work ends before a lease can have run out, never after', async () => {
  const { clock, waiting, jobs, leases, world, worker } = scene()
  waiting.push('a')
  worker.wake()
  await clock.advance(60_000)
  assert.equal(jobs.get('a')!.signal.aborted, false)
  world.away = true
  let abortedMs = 0
  jobs.get('a')!.signal.addEventListener('abort', () => {
    abortedMs = clock.monotonicMs()
  })
  await clock.advance(leaseMs)
  assert.ok(jobs.get('a')!.signal.reason instanceof LeaseLost)
  assert.ok(abortedMs < leases.get('a')!, `aborted at ${abortedMs}, its lease until ${leases.get('a')}`)
  await worker.stop()
})

test('work that a renewal asks to end ends for its reason; what failed here is given back as soon as the database answers', async () => {
  const { clock, waiting, jobs, released, world, work, worker } = scene()
  waiting.push('a', 'b')
  worker.wake()
  await clock.rest()
  const reason = new Error('canceled')
  world.ends.set('a', reason)
  await clock.advance(everyMs)
  assert.equal(jobs.get('a')!.signal.reason, reason)
  world.away = true
  jobs.get('b')!.ends.reject(new Error('no result'))
  await clock.advance(everyMs)
  assert.deepEqual(released, [])
  world.away = false
  await clock.advance(everyMs)
  assert.deepEqual(released, ['a', 'b'])
  const figures = work.read().find(({ name }) => name === 'jobs')!
  // Ending on request is not a failure.
  assert.deepEqual([figures.runs, figures.failures, figures.active], [2, 1, 0])
  await worker.stop()
  assert.deepEqual(released, ['a', 'b'])
})

test('a stop begins nothing more, waits for what is under way, a while only, and gives all of it back', async () => {
  const claiming = Promise.withResolvers<void>()
  let claims = 0
  const { clock, jobs, released, worker } = scene({
    concurrency: 9,
    async claim() {
      claims += 1
      if (claims > 1) await claiming.promise
      return { claimed: claims > 1 ? ['late'] : ['deaf', 'quick'], more: true }
    },
    async run(id, { signal }) {
      const ends = Promise.withResolvers<void>()
      jobs.set(id, { signal, ends })
      if (id !== 'deaf') signal.addEventListener('abort', () => ends.reject(signal.reason))
      await ends.promise
    },
  })
  await clock.rest()
  const stopping = worker.stop()
  claiming.resolve()
  await clock.advance(10_000)
  await stopping
  assert.deepEqual([...jobs.keys()], ['deaf', 'quick'])
  assert.deepEqual(released.sort(), ['deaf', 'late', 'quick'])
  assert.equal(clock.sleeping(), 0)
})

test('work that is claimed again before its former turn has ended here is done as soon as that has ended', async () => {
  const ending = Promise.withResolvers<void>()
  const turns: string[] = []
  const { clock, waiting, world, released, worker } = scene({
    async run(id, { signal }) {
      turns.push(id)
      if (turns.length > 1) return
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      await ending.promise
      throw signal.reason
    },
  })
  waiting.push('a')
  worker.wake()
  await clock.rest()
  world.ends.set('a', new LeaseLost())
  await clock.advance(everyMs)
  world.ends.clear()
  waiting.push('a')
  worker.wake()
  await clock.rest()
  assert.deepEqual(turns, ['a'])
  ending.resolve()
  await clock.rest()
  assert.deepEqual([turns, released], [['a', 'a'], []])
  await worker.stop()
})
