/** Waiting in tests: on a condition with a deadline, never for a time. */
import { setTimeout as pause } from 'node:timers/promises'

export interface UntilOptions {
  /** Default 5000. */
  timeoutMs?: number
  /** What is waited for, as the failure should say it: "the deployment to end". */
  what: string
}

const pollMs = 15
/**
 * How many times longer than usual anything may take: the runner raises it for files that run beside others. A limit that
 * a test measures is multiplied by it too if a busy machine could exceed it.
 */
export const patience = Number(process.env.SLIPWAY_TEST_PATIENCE ?? 1)

/**
 * Asks again and again until `condition` gives something truthy, and returns that. Rejects with `what` when the
 * deadline passes, and at once with the condition's own error when it throws.
 */
export const until = async <T>(
  condition: () => Promise<T> | T,
  { timeoutMs = 5000, what }: UntilOptions,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> => {
  const longestMs = timeoutMs * patience
  const deadline = performance.now() + longestMs
  for (;;) {
    const value = await condition()
    if (value) return value as Exclude<T, undefined | null | false | 0 | ''>
    if (performance.now() >= deadline) throw new Error(`waited ${longestMs} ms in vain for ${what}`)
    await pause(pollMs)
  }
}

/** For a time that the product promises: it is the same on a busy machine. */
export const within = async (
  promisedMs: number,
  condition: () => Promise<unknown> | unknown,
  what: string,
): Promise<void> => {
  const beganMs = performance.now()
  await until(condition, { timeoutMs: promisedMs, what })
  const tookMs = Math.round(performance.now() - beganMs)
  if (tookMs > promisedMs) throw new Error(`${what} took ${tookMs} ms; ${promisedMs} ms are promised`)
}
