/** An alarm that can only be moved forward. It does not keep the process alive. */
import type { Clock } from './clock.ts'

/** The longest that a timer can wait; a longer one rings after this. */
const longestMs = 2 ** 31 - 1

interface Alarm {
  /** Rings in `inMs`, unless it will ring sooner anyway. */
  set(inMs: number): void
  clear(): void
}

export const createAlarm = (clock: Pick<Clock, 'monotonicMs' | 'sleep'>, ring: () => void): Alarm => {
  let sleeping: AbortController | undefined
  let atMs = Number.POSITIVE_INFINITY
  const forget = (): void => {
    sleeping = undefined
    atMs = Number.POSITIVE_INFINITY
  }
  const clear = (): void => {
    sleeping?.abort()
    forget()
  }
  return {
    clear,
    set(inMs) {
      const waitMs = Math.min(Math.max(0, inMs), longestMs)
      const wantedMs = clock.monotonicMs() + waitMs
      if (wantedMs >= atMs) return
      clear()
      atMs = wantedMs
      const mine = new AbortController()
      sleeping = mine
      const end = (): void => {
        if (sleeping !== mine) return
        // An abort costs more than the whole turn of an idle loop.
        forget()
        ring()
      }
      clock.sleep(waitMs, mine.signal, { ref: false }).then(end, () => {})
    },
  }
}
