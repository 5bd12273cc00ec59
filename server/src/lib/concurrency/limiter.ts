/** Token buckets by key, in this process. */
import type { Clock } from '../time/clock.ts'

interface Bucket {
  tokens: number
  atMs: number
}

export interface Allowance {
  limit: number
  remaining: number
  /** Whole seconds until the next request is admitted; 0 if it is admitted now. */
  resetSeconds: number
  admitted: boolean
}

export interface Limiter {
  take(key: string): Allowance
  /** Puts back one that `take` took. */
  give(key: string): void
}

const usualBuckets = 50_000

/**
 * A bucket of `perMinute` that fills evenly; 0 disables the limit. With more than `most` keys the oldest one is forgotten,
 * and begins with a full bucket.
 */
export const createLimiter = (perMinute: number, clock: Pick<Clock, 'monotonicMs'>, most = usualBuckets): Limiter => {
  const buckets = new Map<string, Bucket>()
  const perMs = perMinute / 60_000
  const read = (key: string): Bucket => {
    const now = clock.monotonicMs()
    let bucket = buckets.get(key)
    if (bucket === undefined) {
      const [oldest] = buckets.size < most ? [] : buckets.keys()
      if (oldest !== undefined) buckets.delete(oldest)
      bucket = { tokens: perMinute, atMs: now }
      buckets.set(key, bucket)
    }
    bucket.tokens = Math.min(perMinute, bucket.tokens + (now - bucket.atMs) * perMs)
    bucket.atMs = now
    return bucket
  }
  return {
    take(key) {
      if (perMinute === 0) return { limit: 0, remaining: 0, resetSeconds: 0, admitted: true }
      const bucket = read(key)
      const admitted = bucket.tokens >= 1
      if (admitted) bucket.tokens -= 1
      const waitMs = bucket.tokens >= 1 ? 0 : (1 - bucket.tokens) / perMs
      const resetSeconds = Math.max(admitted ? 0 : 1, Math.ceil(waitMs / 1000))
      return { limit: perMinute, remaining: Math.floor(bucket.tokens), resetSeconds, admitted }
    },
    give(key) {
      if (perMinute === 0) return
      const bucket = read(key)
      bucket.tokens = Math.min(perMinute, bucket.tokens + 1)
    },
  }
}
