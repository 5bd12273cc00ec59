/** An alarm that is only ever brought forward. It keeps no process alive. */
import type { Clock } from './clock.ts'

export interface Alarm {
  /** Rings in `inMs`, unless it is to ring sooner already. */
  set(inMs: number): void
  clear(): void
}

export const createAlarm = (clock: Pick<Clock, 'monotonicMs' | 'sleep'>, ring: () => void): Alarm => {
  let sleeping: AbortController | undefined
  let atMs = Number.POSITIVE_INFINITY
  const clear = (): void => {
    sleeping?.abort()
    sleeping = undefined
    atMs = Number.POSITIVE_INFINITY
  }
  return {
    clear,
    set(inMs) {
      const wantedMs = clock.monotonicMs() + inMs
      if (wantedMs >= atMs) return
      clear()
      atMs = wantedMs
      const mine = new AbortController()
      sleeping = mine
      const end = (): void => {
        if (sleeping !== mine) return
        clear()
        ring()
      }
      clock.sleep(inMs, mine.signal, { ref: false }).then(end, () => {})
    },
  }
}
