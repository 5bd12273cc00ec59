/** Restores as rows: one at a time for each database, claimed by one server, each with a deadline. */
import { newId } from '../lib/ids.ts'
import type { Database, Queryable } from '../store/database.ts'
import { claimInTurns } from '../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../work/lease.ts'
import type { Tables } from './records.ts'

export const restoreStates = ['QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED'] as const

/** Notified when there is something to do; empty payload. */
export const restoreChannel = 'slipway_restore'

export interface RestoreRow extends Leased {
  organizationId: string
  databaseId: string
  backupId: string
  replaces: boolean
  attempts: number
  leftMs: number
}

const columns = `id, organization_id as "organizationId", database_id as "databaseId", backup_id as "backupId", replaces,
  attempts, fence, least(extract(epoch from deadline_at - clock_timestamp()) * 1000, 2e9)::float8 as "leftMs"`

export const restoreLeases: LeaseTable<RestoreRow> = {
  ...{ name: 'database_restore', open: `lease_until > '-infinity'`, columns },
}

const perOrganization = 2

export const claimRestores = claimInTurns({
  ...{ table: restoreLeases, dueAt: 'due_at', perOrganization, order: 'created_at' },
})

/** Null if one is under way for this database. */
export const insertRestore = async (
  tx: Queryable,
  { databaseId, backupId, replaces }: Pick<RestoreRow, 'databaseId' | 'backupId' | 'replaces'>,
): Promise<string | null> => {
  const [row] = await tx.query<{ id: string }>(
    `insert into database_restore (id, organization_id, database_id, backup_id, replaces, deadline_at)
     select $1, n.organization_id, n.id, $3, $4, clock_timestamp() + interval '24 hours' from node n where n.id = $2
     on conflict (database_id) where state in ('QUEUED', 'RUNNING') do nothing returning id`,
    [newId(), databaseId, backupId, replaces],
  )
  await tx.query(`select pg_notify('${restoreChannel}', '')`)
  return row?.id ?? null
}

export const beginRestore = (database: Database, row: RestoreRow): Promise<unknown> =>
  holdLease(database, restoreLeases, row, (tx) =>
    tx.query(`update database_restore set state = 'RUNNING', attempts = attempts + 1 where id = $1`, [row.id]),
  )

export const endRestore = (
  database: Database,
  row: RestoreRow,
  reason: string | null,
  also: (tx: Queryable) => Promise<unknown> = async () => {},
): Promise<unknown> =>
  holdLease(database, restoreLeases, row, async (tx) => {
    await tx.query(
      `update database_restore set state = $2, reason = $3, finished_at = clock_timestamp(), due_at = 'infinity',
         worker = null, lease_until = '-infinity' where id = $1`,
      [row.id, reason === null ? 'SUCCEEDED' : 'FAILED', reason],
    )
    await also(tx)
  })

export const putOffRestore = (database: Database, row: RestoreRow, pauseMs: number): Promise<unknown> =>
  holdLease(database, restoreLeases, row, (tx) =>
    tx.query(
      `update database_restore set due_at = clock_timestamp() + $2 * interval '1 millisecond', attempts = 0,
         worker = null, lease_until = '-infinity' where id = $1`,
      [row.id, pauseMs],
    ),
  )

export interface RestoredBackup {
  id: string
  organizationId: string
  storageId: string | null
  type: string
  object: string | null
  sealedKey: string | null
  sha256: string | null
  tables: Tables | null
}

/** Null if it was deleted, or has no content. */
export const readRestored = async (db: Queryable, row: RestoreRow): Promise<RestoredBackup | null> => {
  const [found] = await db.query<RestoredBackup>(
    `select id, organization_id as "organizationId", storage_id as "storageId", type, object, sealed_key as "sealedKey", sha256, tables from backup
     where id = $1 and organization_id = $2 and state in ('VERIFYING', 'VERIFIED', 'UNVERIFIED')`,
    [row.backupId, row.organizationId],
  )
  return found ?? null
}
