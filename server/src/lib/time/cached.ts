import type { Clock } from './clock.ts'

/**
 * `make`, called at most once in `forMs`: all callers in between share its result. A rejection is not kept. With
 * `Infinity` a result is kept for good.
 */
export const cachedFor = <Value>(
  clock: Pick<Clock, 'monotonicMs'>,
  forMs: number,
  make: () => Promise<Value>,
): (() => Promise<Value>) => {
  let kept: { value: Promise<Value>; atMs: number } | undefined
  return () => {
    const nowMs = clock.monotonicMs()
    if (kept !== undefined && nowMs - kept.atMs < forMs) return kept.value
    const fresh = { value: make(), atMs: nowMs }
    kept = fresh
    fresh.value.catch(() => {
      if (kept === fresh) kept = undefined
    })
    return fresh.value
  }
}
