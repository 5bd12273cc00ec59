/** Deletes rows that are older than they are kept, in batches that do not block others. */
import type { Database } from './database.ts'

export const usualAuditDays = 400

/** Rows that one statement deletes. */
const usualBatch = 1000

/**
 * Runs a statement that deletes at most as many rows as its last parameter, and returns one for each, until none is
 * left. Stops between two batches when `signal` aborts.
 */
export const deleteInBatches = async (
  database: Pick<Database, 'query'>,
  statement: string,
  values: readonly unknown[],
  signal: AbortSignal,
  batch: number = usualBatch,
): Promise<void> => {
  for (;;) {
    signal.throwIfAborted()
    const rows = await database.query(statement, [...values, batch])
    if (rows.length < batch) return
  }
}

/** Deletes events older than `days`, the oldest first; 0 keeps all. */
export const deleteOldEvents = async (
  database: Pick<Database, 'query'>,
  days: number,
  signal: AbortSignal,
  batch: number = usualBatch,
): Promise<void> => {
  if (days === 0) return
  await deleteInBatches(
    database,
    `delete from event where id in (select id from event
       where created_at < clock_timestamp() - $1 * interval '1 day' order by created_at limit $2
       for update skip locked) returning 1`,
    [days],
    signal,
    batch,
  )
}
