/**
 * Sends what waits in the outbox, at least once, the same message id on every attempt. A process that dies here leaves
 * leased rows; whoever lives takes them over when the lease ends. One dead receiver holds up nobody else: attempts run
 * side by side, a few to each receiver.
 */
import { randomUUID } from 'node:crypto'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/outbound.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/seal.ts'
import { attemptDelivery, isAborted, settlementOf } from './attempt.ts'
import { outboxChannel } from './outbox.ts'
import { type ClaimedDelivery, claimDue, disableWebhook, enqueueTest, release, requeue, sweep } from './queue.ts'
import { createSettler } from './settler.ts'

export interface DeliveryParts {
  database: Database
  sealer: Sealer
  outbound: Outbound
  clock: Clock
  log: Log
  /** When to try: seconds before the first attempt, then after each failed one. ±20 % is added. */
  scheduleSeconds?: readonly number[]
  /** How long a row may stay with a worker that does not answer. Must be longer than an attempt (15 s). */
  leaseSeconds?: number
  perWebhook?: number
}

export interface Delivery {
  start(): Promise<void>
  /** Attempts under way are cut off and given back; resolves when none is left. */
  stop(): Promise<void>
  /** Sends an event again; false when it is unknown or just being sent. */
  resend(outboxId: string): Promise<boolean>
  /** The same, by the name that the API knows. */
  deliver(outboxId: string): Promise<boolean>
  /** Queues a test event; the id of its outbox row, null for an unknown webhook. */
  sendTest(webhookId: string): Promise<string | null>
}

/** About three days: at once, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h. */
export const defaultScheduleSeconds = [0, 5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400]

const rowsAtOnce = 256
const longestPauseMs = 10_000
const sweepMs = 3_600_000

/** Runs `turn` again whenever it is woken or its own pause is over; never twice at once. */
const createLoop = (turn: () => Promise<number>) => {
  let timer: NodeJS.Timeout | undefined
  let running: Promise<void> | undefined
  let again = false
  let stopped = false

  const run = async (): Promise<void> => {
    let pauseMs: number
    do {
      again = false
      pauseMs = await turn()
    } while (again && !stopped)
    running = undefined
    if (!stopped) timer = setTimeout(wake, pauseMs)
  }
  const wake = (): void => {
    clearTimeout(timer)
    again = true
    if (!stopped) running ??= run()
  }
  return {
    wake,
    async stop() {
      stopped = true
      clearTimeout(timer)
      await running
    },
  }
}

export const createDelivery = (parts: DeliveryParts): Delivery => {
  const { database, clock, log } = parts
  const schedule = parts.scheduleSeconds ?? defaultScheduleSeconds
  const leaseSeconds = parts.leaseSeconds ?? 30
  const perWebhook = parts.perWebhook ?? 4
  const worker = randomUUID()
  const settle = createSettler(database, worker)
  const ending = new AbortController()
  const underWay = new Set<Promise<void>>()
  let endListening = () => {}
  let sweeper: NodeJS.Timeout | undefined

  const send = async (claimed: ClaimedDelivery): Promise<void> => {
    if (claimed.spec.enabled === false) return settle({ claimed, result: null, settlement: { state: 'DISCARDED' } })
    try {
      const attempt = await attemptDelivery(parts, claimed, ending.signal)
      const settlement = settlementOf(attempt, claimed.attempt, schedule, clock.now(), Math.random())
      if (attempt.result.status === 410) await disableWebhook(database, claimed, 'receiver answered 410')
      await settle({ claimed, result: attempt.result, settlement })
    } catch (error) {
      if (!isAborted(error)) throw error
      await release(database, worker, claimed)
    }
  }
  const track = (claimed: ClaimedDelivery): void => {
    const sending = send(claimed)
      // The lease ends by itself and the event is tried again.
      .catch((error: unknown) => log.error({ err: error, outbox: claimed.id }, 'a webhook delivery was not settled'))
      .finally(() => {
        underWay.delete(sending)
        loop.wake()
      })
    underWay.add(sending)
  }
  const turn = async (): Promise<number> => {
    try {
      const rows = Math.max(rowsAtOnce - underWay.size, 0)
      const { claimed, nextDueMs } = await claimDue(database, worker, { leaseSeconds, perWebhook, rows })
      claimed.forEach(track)
      // What is due and was not taken waits for a place: the end of an attempt wakes us.
      const shortestMs = claimed.length > 0 ? 25 : 250
      return Math.min(Math.max(nextDueMs ?? longestPauseMs, shortestMs), longestPauseMs)
    } catch (error) {
      log.warn({ err: error }, 'the outbox could not be read')
      return 1000
    }
  }
  const loop = createLoop(turn)
  const resend = (outboxId: string): Promise<boolean> => requeue(database, outboxId)

  return {
    async start() {
      endListening = await database.listen(outboxChannel, loop.wake)
      const clean = () => sweep(database).catch((error: unknown) => log.warn({ err: error }, 'old deliveries stay'))
      sweeper = setInterval(clean, sweepMs)
      loop.wake()
    },
    async stop() {
      endListening()
      clearInterval(sweeper)
      await loop.stop()
      ending.abort()
      await Promise.all(underWay)
    },
    resend,
    deliver: resend,
    sendTest: (webhookId) => enqueueTest(database, webhookId),
  }
}
