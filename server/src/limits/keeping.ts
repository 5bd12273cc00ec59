/**
 * How much is kept of what has ended, set by the operator for all organizations. Whatever runs, is being deployed or is
 * needed by something that is kept stays besides.
 */
export interface Keeping {
  /** Different releases of a service that ran successfully: those that it can be rolled back to, and the current one. */
  releases: number
  /** Deployments of an environment, with their steps and logs. */
  deployments: number
  /** Days after which layers and caches of builds are removed if no build has used them. */
  buildCacheDays: number
  /** Megabytes of layers that builds of one organization left and no image contains, on each engine. */
  buildCacheMb: number
  /** Days after which a copy of a git repository is removed if nothing has used it. */
  mirrorDays: number
  /** Days for which attempts to deliver webhooks are listed. */
  webhookDays: number
  /** Hours for which an answer is repeated for the same idempotency key. */
  idempotencyHours: number
}

export const usualKeeping: Keeping = Object.freeze({
  releases: 10,
  deployments: 100,
  buildCacheDays: 14,
  buildCacheMb: 5120,
  mirrorDays: 30,
  webhookDays: 30,
  idempotencyHours: 24,
})

export const keepingSettings: Readonly<Record<keyof Keeping, string>> = Object.freeze({
  releases: 'SLIPWAY_RELEASES_KEPT',
  deployments: 'SLIPWAY_DEPLOYMENTS_KEPT',
  buildCacheDays: 'SLIPWAY_BUILD_CACHE_DAYS',
  buildCacheMb: 'SLIPWAY_BUILD_CACHE_MB',
  mirrorDays: 'SLIPWAY_MIRROR_DAYS',
  webhookDays: 'SLIPWAY_WEBHOOK_DAYS',
  idempotencyHours: 'SLIPWAY_IDEMPOTENCY_HOURS',
})
