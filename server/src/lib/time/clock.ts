import { setTimeout as delay } from 'node:timers/promises'

/** Time as a dependency: deadlines use `monotonicMs`, records use `now`. Tests inject their own. */
export interface Clock {
  now(): Date
  /** Milliseconds on a clock that never jumps; only differences mean something. */
  monotonicMs(): number
  /**
   * Resolves after `ms`; rejects with the signal's reason when aborted. With `ref: false` it does not keep the process
   * alive.
   */
  sleep(ms: number, signal?: AbortSignal, options?: { ref?: boolean }): Promise<void>
}

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
  sleep: async (ms, signal, { ref = true } = {}) => {
    try {
      await delay(ms, undefined, { signal, ref })
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    }
  },
}
