/**
 * The advisory locks of the database, by what they keep apart: each until its transaction's end, over every replica. The
 * numbers are those of earlier versions, which may run beside this one for a while.
 */
import type { Queryable } from './database.ts'

const keys = {
  migrations: 7301914201,
  /** Claims of deliveries. */
  webhooks: 7301914202,
  /** Whoever makes or removes an organization. */
  organizations: 7301914203,
  /** The operator's token. */
  adminToken: 7301914204,
} as const

/** Waits for its turn. */
export const takeLock = async (tx: Queryable, name: keyof typeof keys): Promise<void> => {
  await tx.query(`select pg_advisory_xact_lock(${keys[name]})`)
}

/** Locks of texts are keyed by hashes, which are apart from the numbers above; the seed is theirs alone. */
const idempotencySeed = 7301914202

/** Takes the lock of an Idempotency-Key; false when somebody else has it. */
export const tryIdempotencyLock = async (tx: Queryable, address: string): Promise<boolean> => {
  const [lock] = await tx.query<{ taken: boolean }>(
    `select pg_try_advisory_xact_lock(hashtextextended($1, ${idempotencySeed})) as taken`,
    [address],
  )
  return lock!.taken
}

/** Waits for the turn of a text. */
export const takeTextLock = async (tx: Queryable, text: string): Promise<void> => {
  await tx.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [text])
}
