/**
 * Rate limits as responses state them: per API token, and per address for requests without one. Kept in this process:
 * each replica counts its own, a restart starts afresh.
 */
import type { Allowance } from '../lib/concurrency/limiter.ts'
import { ApiError } from '../lib/errors.ts'

export const allowanceHeaders = (allowance: Allowance): Record<string, string> => ({
  'x-ratelimit-limit': String(allowance.limit),
  'x-ratelimit-remaining': String(allowance.remaining),
  'x-ratelimit-reset': String(allowance.resetSeconds),
})

export const tooManyRequests = (allowance: Allowance): ApiError =>
  new ApiError(429, 'rate_limited', 'Too many requests: wait the number of seconds in the X-RateLimit-Reset header.', {
    headers: { 'retry-after': String(allowance.resetSeconds) },
  })
