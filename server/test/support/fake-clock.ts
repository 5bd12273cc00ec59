/** A clock that a test moves by hand. */
import type { Clock } from '../../src/lib/time/clock.ts'

interface Sleeper {
  atMs: number
  wake(): void
}

export interface FakeClock extends Clock {
  /** Advances by `ms`: sleepers wake in order, and each can continue before the next one wakes. */
  advance(ms: number): Promise<void>
  /** Lets all code continue that waits for neither the clock nor input or output. */
  rest(): Promise<void>
  /** How many sleep. */
  sleeping(): number
}

export const createFakeClock = (start = new Date('2026-01-01T00:00:00Z')): FakeClock => {
  const sleepers = new Set<Sleeper>()
  let nowMs = 0
  const rest = async (): Promise<void> => {
    for (let turns = 0; turns < 5; turns += 1) await new Promise((resolve) => setImmediate(resolve))
  }
  const next = (untilMs: number): Sleeper | undefined =>
    [...sleepers].filter(({ atMs }) => atMs <= untilMs).sort((a, b) => a.atMs - b.atMs)[0]
  return {
    now: () => new Date(start.getTime() + nowMs),
    monotonicMs: () => nowMs,
    sleep: (ms, signal) =>
      new Promise((resolve, reject) => {
        if (signal?.aborted) return reject(signal.reason)
        const sleeper: Sleeper = { atMs: nowMs + Math.max(0, ms), wake: resolve }
        sleepers.add(sleeper)
        signal?.addEventListener(
          'abort',
          () => {
            if (sleepers.delete(sleeper)) reject(signal.reason)
          },
          { once: true },
        )
      }),
    async advance(ms) {
      const untilMs = nowMs + ms
      await rest()
      for (let sleeper = next(untilMs); sleeper !== undefined; sleeper = next(untilMs)) {
        nowMs = Math.max(nowMs, sleeper.atMs)
        sleepers.delete(sleeper)
        sleeper.wake()
        await rest()
      }
      nowMs = untilMs
    },
    rest,
    sleeping: () => sleepers.size,
  }
}
