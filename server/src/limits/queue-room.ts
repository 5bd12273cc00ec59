/**
 * Room in the queue: how many deployments of one organization may be queued. Running ones are limited by the workers.
 */
import type { Queryable } from '../store/database.ts'
import { type Limits, limitReached, takeTurns } from './limits.ts'

/** Counts only as far as necessary. */
const countSql = `select count(*)::int as queued from (
  select from deployment where organization_id = $1 and state = 'QUEUED' limit $2) waiting`

export const readQueued = async (db: Queryable, organizationId: string, most = 1_000_000): Promise<number> => {
  const [row] = await db.query<{ queued: number }>(countSql, [organizationId, most])
  return row!.queued
}

/** Throws a 409 if the queue is too long now. Call it last in the transaction that wrote the deployment. */
export const refuseLongQueue = async (
  tx: Queryable,
  { queued: most }: Pick<Limits, 'queued'>,
  organizationId: string,
): Promise<void> => {
  if (most === 0) return
  await takeTurns(tx, organizationId, 'queue')
  if ((await readQueued(tx, organizationId, most + 1)) > most) throw limitReached('queued', most, most + 1)
}
