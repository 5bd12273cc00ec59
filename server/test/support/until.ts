/** Waiting in tests: on a condition with a deadline, never for a time. */
import { setTimeout as pause } from 'node:timers/promises'

export interface UntilOptions {
  /** Default 5000. */
  timeoutMs?: number
  /** What is waited for, as it should stand in the failure: "the deployment to end". */
  what: string
}

const pollMs = 15

/**
 * Asks again and again until `condition` gives something truthy, and returns that. Rejects with `what` when the
 * deadline passes, and at once with the condition's own error when it throws.
 */
export const until = async <T>(
  condition: () => Promise<T> | T,
  { timeoutMs = 5000, what }: UntilOptions,
): Promise<Exclude<T, undefined | null | false | 0 | ''>> => {
  const deadline = performance.now() + timeoutMs
  for (;;) {
    const value = await condition()
    if (value) return value as Exclude<T, undefined | null | false | 0 | ''>
    if (performance.now() >= deadline) throw new Error(`waited ${timeoutMs} ms in vain for ${what}`)
    await pause(pollMs)
  }
}
