/** How long the audit log keeps its events. */
import type { Database } from './database.ts'

export const usualAuditDays = 400

/** Events that one statement deletes: few enough not to block others. */
const batch = 1000

/** Deletes events older than `days`, the oldest first; 0 keeps all. Stops between two batches when `signal` aborts. */
export const deleteOldEvents = async (
  database: Pick<Database, 'query'>,
  days: number,
  signal: AbortSignal,
  size: number = batch,
): Promise<void> => {
  if (days === 0) return
  for (;;) {
    signal.throwIfAborted()
    const rows = await database.query(
      `delete from event where id in (select id from event
         where created_at < clock_timestamp() - $1 * interval '1 day' order by created_at limit $2
         for update skip locked) returning 1`,
      [days, size],
    )
    if (rows.length < size) return
  }
}
