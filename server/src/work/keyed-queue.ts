/**
 * A queue of keys in memory. Promises that a key is never worked on twice at once, however often it is added; that one
 * added while it is worked on runs once more afterwards; and that a failed one is retried after its own backoff, which
 * does not delay others. It is lost with the process: its user must find pending work again at the next start.
 */
import { createAlarm } from '../lib/time/alarm.ts'
import { type Backoff, backoffMs, type WorkParts } from './loop.ts'

export interface KeyedQueueOptions {
  /** As shown by `/metrics`. */
  name: string
  cluster?: string | undefined
  /** Keys worked on at once. */
  workers: number
  backoff: Backoff
  /** The log message for a key that failed. */
  failed: string
  /**
   * Works on one key. A returned number is when it is due again, in ms: it did not fail, but is not done. The signal
   * fires at `stop`.
   */
  run(key: string, signal: AbortSignal): Promise<number | undefined> | Promise<void>
}

interface KeyedQueue {
  /**
   * Makes a key due, at once or in `inMs`. A key that is due sooner stays so; one that waits for its backoff is moved
   * forward, because it changed meanwhile.
   */
  add(key: string, inMs?: number): void
  /** Resolves when no key is due or being worked on; does not wait for those that become due later. */
  settled(): Promise<void>
  /** Drops waiting keys, and resolves when work in progress has ended. */
  stop(): Promise<void>
}

export const createKeyedQueue = ({ clock, log, work }: WorkParts, options: KeyedQueueOptions): KeyedQueue => {
  const { name, cluster, workers, backoff, failed, run } = options
  const stopping = new AbortController()
  const { signal } = stopping
  /** In the order in which they became due. */
  const due = new Set<string>()
  const active = new Set<string>()
  /** Became due while they were worked on. */
  const again = new Set<string>()
  /** When the others become due. */
  const later = new Map<string, number>()
  const failures = new Map<string, number>()
  let settling = Promise.withResolvers<void>()
  const report = work.enter(name, { cluster, waiting: () => due.size + again.size + later.size })

  /** The pause until a key is due again; undefined if it is done. */
  const runOnce = async (key: string): Promise<number | undefined> => {
    const end = report.begin()
    try {
      const pauseMs = await run(key, signal)
      failures.delete(key)
      end()
      return pauseMs ?? undefined
    } catch (error) {
      end(signal.aborted ? undefined : error)
      if (signal.aborted) return undefined
      const count = (failures.get(key) ?? 0) + 1
      failures.set(key, count)
      log.warn({ err: error, work: name, key }, failed)
      return backoffMs(backoff, count)
    }
  }
  const begin = async (key: string): Promise<void> => {
    due.delete(key)
    active.add(key)
    const pauseMs = await runOnce(key)
    active.delete(key)
    if (again.delete(key)) due.add(key)
    else if (pauseMs !== undefined) add(key, pauseMs)
    pump()
  }
  const pump = (): void => {
    for (const key of due) {
      if (active.size >= workers) break
      void begin(key)
    }
    if (active.size > 0 || due.size > 0) return
    settling.resolve()
    settling = Promise.withResolvers<void>()
  }
  const add = (key: string, inMs = 0): void => {
    if (signal.aborted || due.has(key) || again.has(key)) return
    const atMs = clock.monotonicMs() + inMs
    if (inMs > 0) {
      if (atMs >= (later.get(key) ?? Number.POSITIVE_INFINITY)) return
      later.set(key, atMs)
      alarm.set(inMs)
      return
    }
    later.delete(key)
    if (active.has(key)) again.add(key)
    else {
      due.add(key)
      // Notifications that come together find the key due, not in progress.
      queueMicrotask(pump)
    }
  }
  const alarm = createAlarm(clock, () => {
    const nowMs = clock.monotonicMs()
    let nextMs = Number.POSITIVE_INFINITY
    // A timer may fire slightly early.
    for (const [key, atMs] of [...later]) {
      if (atMs - nowMs < 1) add(key)
      else nextMs = Math.min(nextMs, atMs - nowMs)
    }
    if (nextMs < Number.POSITIVE_INFINITY) alarm.set(nextMs)
  })
  const settled = (): Promise<void> => (active.size + due.size === 0 ? Promise.resolve() : settling.promise)

  return {
    add,
    settled,
    async stop() {
      stopping.abort(new Error('the server is stopping'))
      alarm.clear()
      for (const keys of [due, again, later]) keys.clear()
      await settled()
      report.leave()
    },
  }
}
