/**
 * Room for Docker engines and Kubernetes clusters: how many one organization may connect. Each has connections, and an
 * engine deployment slots and build threads, of its own in this server.
 */
import type { Queryable } from '../store/database.ts'
import { type Limits, limitReached, takeTurns } from './limits.ts'

const countSql = `select count(*)::int as engines from cluster_engine u join node c on c.id = u.cluster_id
  where c.organization_id = $1`

export const readEngines = async (db: Queryable, organizationId: string): Promise<number> => {
  const [row] = await db.query<{ engines: number }>(countSql, [organizationId])
  return row!.engines
}

/** Throws a 409 if there are too many now. Call it last in the transaction that connected one. */
export const refuseManyEngines = async (
  tx: Queryable,
  { engines: most }: Pick<Limits, 'engines'>,
  organizationId: string,
): Promise<void> => {
  if (most === 0) return
  await takeTurns(tx, organizationId, 'engines')
  const engines = await readEngines(tx, organizationId)
  if (engines > most) throw limitReached('engines', most, engines)
}
