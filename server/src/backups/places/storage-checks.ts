/** When each backup storage was last tried, and what was wrong with it then. */
import type { Queryable } from '../../store/database.ts'
import { timestampSql } from '../../store/tree.ts'
import type { PlaceProblem } from './place.ts'
import type { Trouble } from './try-place.ts'

/** As it is answered. */
export interface LastCheck {
  checked_at: string
  works: boolean
  code: PlaceProblem | null
  message: string | null
}

const recordSql = `jsonb_build_object('checked_at', ${timestampSql('c.checked_at')}, 'works', c.code is null,
  'code', c.code, 'message', c.message)`

/** SQL for the last check of the storage `n`; null if there was none. */
export const lastCheckOfN = `(select ${recordSql} from backup_storage_check c where c.storage_id = n.id)`

/** Keeps what a check, or a backup, has found. Nothing happens if the storage was deleted meanwhile. */
export const noteCheck = async (
  db: Queryable,
  storageId: string,
  trouble: Trouble | null,
): Promise<LastCheck | null> => {
  const [row] = await db.query<{ check: LastCheck }>(
    `insert into backup_storage_check as c (storage_id, code, message)
       select id, $2, $3 from node where id = $1 and kind = 'backup_storage'
     on conflict (storage_id) do update set checked_at = excluded.checked_at, code = excluded.code,
       message = excluded.message
     returning ${recordSql} as check`,
    [storageId, trouble?.code ?? null, trouble?.message ?? null],
  )
  return row?.check ?? null
}
