/** When a request is repeated because its service's settings ask for it. The words are Envoy's. */

import { words } from '../../lib/words.ts'
import type { RetryPolicy } from '../policy.ts'

export const retryTriggers = words(
  '5xx gateway-error retriable-status-codes retriable-4xx reset connect-failure refused-stream',
)

export const retriesStatus = ({ on, statuses }: RetryPolicy, status: number): boolean =>
  (on.includes('5xx') && status >= 500) ||
  (on.includes('gateway-error') && status >= 502 && status <= 504) ||
  (on.includes('retriable-4xx') && status === 409) ||
  ((on.includes('retriable-status-codes') || on.length === 0) && statuses.includes(status))

/** A connection that broke, or an attempt that took too long. */
export const retriesLoss = ({ on }: RetryPolicy): boolean =>
  on.includes('reset') || on.includes('5xx') || on.includes('gateway-error')

const firstPauseMs = 25
const longestPauseMs = 250

export const retryPauseMs = (retried: number): number => Math.min(longestPauseMs, firstPauseMs * 2 ** retried)
