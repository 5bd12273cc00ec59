/**
 * Sends pending events of the outbox, at least once, with the same message id on every attempt. A process that dies
 * here leaves leased rows; another one takes them over when the lease ends. A dead receiver does not delay others:
 * attempts run in parallel, a few per receiver.
 */
import { randomUUID } from 'node:crypto'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { createLoop, type WorkParts } from '../work/loop.ts'
import { createWorker, type Held } from '../work/worker.ts'
import { attemptDelivery, settlementOf } from './attempt.ts'
import { outboxChannel } from './outbox.ts'
import {
  type ClaimedDelivery,
  claimDue,
  disableWebhook,
  release,
  requeue,
  type Settled,
  settle,
  sweep,
} from './queue.ts'

// Settles attempts that end at nearly the same time with one statement: the next batch collects while the last one is
// written. Promises that one attempt that cannot be settled does not affect others.
const atOnce = 256

interface Waiting {
  settled: Settled
  resolve(): void
  reject(error: unknown): void
}

/** Returns a function that resolves when its attempt is settled in the database. */
export const createSettler = (database: Database, worker: string): ((settled: Settled) => Promise<void>) => {
  let waiting: Waiting[] = []
  let writing = false

  const writeOne = (one: Waiting): Promise<void> =>
    settle(database, worker, [one.settled]).then(one.resolve, one.reject)

  const writeBatch = async (batch: readonly Waiting[]): Promise<void> => {
    if (batch.length === 1) return writeOne(batch[0]!)
    try {
      await settle(
        database,
        worker,
        batch.map(({ settled }) => settled),
      )
      for (const { resolve } of batch) resolve()
    } catch {
      for (const one of batch) await writeOne(one)
    }
  }
  const writeAll = async (): Promise<void> => {
    writing = true
    while (waiting.length > 0) {
      const batch = waiting.slice(0, atOnce)
      waiting = waiting.slice(atOnce)
      await writeBatch(batch)
    }
    writing = false
  }
  return (settled) =>
    new Promise((resolve, reject) => {
      waiting.push({ settled, resolve, reject })
      if (!writing) void writeAll()
    })
}

export interface DeliveryParts extends WorkParts {
  database: Database
  sealer: Sealer
  outbound: Outbound
  /** Delays in seconds: before the first attempt, then after each failed one. ±20 % is added. */
  scheduleSeconds?: readonly number[]
  /** How long a row is leased to a worker. Must be longer than an attempt (15 s). */
  leaseSeconds?: number
  perWebhook?: number
  /** Days for which attempts are listed. Default 30. */
  keptDays?: number
}

interface Delivery {
  start(): Promise<void>
  /** Aborts and releases attempts in progress; resolves when none is left. */
  stop(): Promise<void>
  /** Sends an event again; false if it is unknown or being sent. */
  deliver(outboxId: string): Promise<boolean>
}

/** About three days: at once, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h. */
const defaultScheduleSeconds = [0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]

const rowsAtOnce = 256
const longestPauseMs = 10_000
const sweepMs = 3_600_000
const usualKeptDays = 30

export const createDelivery = (parts: DeliveryParts): Delivery => {
  const { database, clock } = parts
  const schedule = parts.scheduleSeconds ?? defaultScheduleSeconds
  const leaseSeconds = parts.leaseSeconds ?? 30
  const perWebhook = parts.perWebhook ?? 4
  const worker = randomUUID()
  const settle = createSettler(database, worker)
  const ends: (() => void | Promise<void>)[] = []

  const send = async (claimed: ClaimedDelivery, { signal }: Held): Promise<void> => {
    if (claimed.spec.enabled === false) return settle({ claimed, result: null, settlement: { state: 'DISCARDED' } })
    const attempt = await attemptDelivery(parts, claimed, signal)
    const settlement = settlementOf(attempt, claimed.attempt, schedule, clock.now(), Math.random())
    if (attempt.result.status === 410) await disableWebhook(database, claimed, 'the receiver answered 410')
    await settle({ claimed, result: attempt.result, settlement })
  }
  const claim = async (rows: number) => {
    const { claimed, nextDueMs } = await claimDue(database, worker, { leaseSeconds, perWebhook, rows })
    // Deliveries that are due but were not claimed wait for a free slot: the end of an attempt wakes the worker.
    const shortestMs = claimed.length > 0 ? 25 : 250
    return { claimed, more: false, nextMs: Math.max(nextDueMs ?? longestPauseMs, shortestMs) }
  }
  const releaseAll = async (all: readonly ClaimedDelivery[]): Promise<void> => {
    for (const each of all) await release(database, worker, each)
  }
  const startWorker = () =>
    createWorker<ClaimedDelivery>(parts, {
      name: 'webhooks',
      concurrency: rowsAtOnce,
      periodMs: longestPauseMs,
      idOf: ({ id }) => id,
      about: ({ id }) => ({ outbox: id }),
      claim,
      run: send,
      release: releaseAll,
      // Its lease ends by itself and the event is retried.
      failed: 'the result of a webhook delivery could not be saved',
    })
  const startSweep = () =>
    createLoop(parts, {
      name: 'webhook history',
      periodMs: sweepMs,
      waits: true,
      failed: 'old deliveries could not be deleted',
      run: (signal) => sweep(database, parts.keptDays ?? usualKeptDays, signal),
    })

  return {
    async start() {
      const deliveries = startWorker()
      ends.push(deliveries.stop, startSweep().stop)
      ends.push(await database.listen(outboxChannel, deliveries.wake))
      deliveries.wake()
    },
    async stop() {
      await Promise.all(ends.splice(0).map((end) => end()))
    },
    deliver: (outboxId) => requeue(database, outboxId),
  }
}
