/** What is known of the backups of this installation by its schedule: one row, for all servers of a database. */
import { readJson } from '../../lib/foreign-text/read-json.ts'
import type { Queryable } from '../../store/database.ts'

export interface OwnBackupState {
  cron: string
  /** RFC 3339, as all times here: when the next one is made; in the past, when one is missing. */
  due: string
  /** When the last one that succeeded was made. */
  madeAt: string | null
  name: string | null
  /** Null if the last try succeeded. */
  failedAt: string | null
  error: string | null
}

export const readOwnBackupState = async (db: Queryable): Promise<OwnBackupState | null> => {
  const [row] = await db.query<{ value: string }>(`select value from installation where name = 'own_backup'`)
  return row === undefined ? null : (readJson(row.value) as OwnBackupState)
}

export const writeOwnBackupState = async (db: Queryable, state: OwnBackupState): Promise<void> => {
  await db.query(
    `insert into installation (name, value) values ('own_backup', $1) on conflict (name) do update set value = excluded.value`,
    [JSON.stringify(state)],
  )
}
