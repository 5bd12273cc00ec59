/**
 * The loop for background work: a turn whenever it is woken or its period is over, never two at once. A failed turn is
 * logged and retried after a backoff. Nothing is lost if the process dies: a turn reads pending work from the database
 * or the engine.
 */

import type { Log } from '../lib/log.ts'
import { createAlarm } from '../lib/time/alarm.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { WorkRegistry } from './registry.ts'

export interface WorkParts {
  clock: Clock
  log: Log
  work: WorkRegistry
}

/** Pauses after failures in a row: the first, then twice as long each time, up to the longest. */
export interface Backoff {
  firstMs: number
  longestMs: number
}

export const backoffMs = ({ firstMs, longestMs }: Backoff, failures: number): number =>
  Math.min(firstMs * 2 ** Math.min(failures - 1, 30), longestMs)

export interface LoopOptions {
  /** As shown by `/metrics`. */
  name: string
  cluster?: string | undefined
  /** The longest pause between two turns. */
  periodMs: number
  /** Whether the first turn waits for a wake or the period; else it begins at once. */
  waits?: boolean
  /** Without it, a failed turn is retried after the period. */
  backoff?: Backoff
  /** The log message for a failed turn. */
  failed: string
  /** One turn; a returned number is the pause until the next. The signal fires at `stop`. */
  run(signal: AbortSignal): Promise<number | undefined> | Promise<void>
}

export interface Loop {
  /** The next turn begins at once, or in `inMs` at the latest; after the current one. */
  wake(inMs?: number): void
  /** Resolves when the current turn has ended; no other follows. */
  stop(): Promise<void>
}

export const createLoop = ({ clock, log, work }: WorkParts, options: LoopOptions): Loop => {
  const { name, cluster, periodMs, backoff = { firstMs: periodMs, longestMs: periodMs }, failed, run } = options
  const stopping = new AbortController()
  const { signal } = stopping
  let running: Promise<void> | undefined
  let again = false
  let failures = 0
  const report = work.enter(name, { cluster, waiting: () => (again ? 1 : 0) })

  const runOnce = async (): Promise<number> => {
    alarm.clear()
    again = false
    const end = report.begin()
    try {
      const pauseMs = await run(signal)
      failures = 0
      end()
      return Math.min(Math.max(0, pauseMs ?? periodMs), periodMs)
    } catch (error) {
      end(signal.aborted ? undefined : error)
      failures += 1
      if (!signal.aborted) log.warn({ err: error, work: name }, failed)
      return backoffMs(backoff, failures)
    }
  }
  const turns = async (): Promise<void> => {
    // The creator of a loop may need it in its first turn.
    await Promise.resolve()
    let pauseMs = 0
    while (!signal.aborted) {
      pauseMs = await runOnce()
      if (!again) break
    }
    running = undefined
    if (!signal.aborted) alarm.set(pauseMs)
  }
  const wake = (inMs = 0): void => {
    if (signal.aborted) return
    if (inMs > 0) alarm.set(inMs)
    else if (running === undefined) running = turns()
    else again = true
  }
  const alarm = createAlarm(clock, wake)
  if (options.waits) alarm.set(periodMs)
  else wake()

  return {
    wake,
    async stop() {
      stopping.abort(new Error('the server is stopping'))
      alarm.clear()
      await running
      report.leave()
    },
  }
}
