/**
 * Limits the rate at which lines of live logs are sent: for all streams of one organization together, a few lines at
 * each turn of the event loop. Faster output waits, as for a slow reader. Nothing is left behind if the process dies.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Clock } from '../lib/time/clock.ts'

export interface Pace {
  /** Resolves when so many more may be sent, one stream after the other; at once when aborted. */
  take(count: number, signal: AbortSignal): Promise<void>
}

/** `perSecond`, and `atOnce` after a rest. */
export const createPace = (clock: Pick<Clock, 'monotonicMs' | 'sleep'>, perSecond: number, atOnce: number): Pace => {
  let room = atOnce
  let sinceMs = clock.monotonicMs()
  let last: Promise<void> = Promise.resolve()
  const wait = async (count: number, signal: AbortSignal): Promise<void> => {
    if (signal.aborted) return
    const nowMs = clock.monotonicMs()
    room = Math.min(atOnce, room + ((nowMs - sinceMs) / 1000) * perSecond) - count
    sinceMs = nowMs
    if (room >= 0) await nextTurn()
    else await clock.sleep((-room / perSecond) * 1000, signal).catch(() => {})
  }
  return {
    take(count, signal) {
      last = last.then(() => wait(count, signal))
      return last
    },
  }
}
