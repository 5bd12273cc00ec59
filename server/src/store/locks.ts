/**
 * The advisory locks of the database, by what they protect: each until its transaction's end, over every replica. The
 * numbers are those of earlier versions, which may run beside this one for a while.
 */
const keys = {
  migrations: 7301914201,
  /** Claims of deliveries. */
  webhooks: 7301914202,
  /** Creating or deleting an organization. */
  organizations: 7301914203,
  /** The operator's token. */
  adminToken: 7301914204,
  /** A backup of this installation. */
  backup: 7301914205,
} as const

/** Waits for its turn. */
export const lockSql = (name: keyof typeof keys): string => `select pg_advisory_xact_lock(${keys[name]})`

/**
 * Waits for the turn of the text `$1`. Locks of texts are keyed by hashes, which do not collide with the numbers
 * above.
 */
export const textLockSql = 'select pg_advisory_xact_lock(hashtextextended($1, 0))'

/** The same without waiting: `taken` is false when another transaction has the lock. */
export const tryTextLockSql = 'select pg_try_advisory_xact_lock(hashtextextended($1, 0)) as taken'

/** The lock of the Idempotency-Key `$1`, with its own seed: `taken` is false when another transaction has it. */
export const idempotencyLockSql = 'select pg_try_advisory_xact_lock(hashtextextended($1, 7301914202)) as taken'

/** Held until the connection ends, not only its transaction: `taken` is false when another one has it. */
export const tryBackupLockSql = `select pg_try_advisory_lock(${keys.backup}) as taken`
