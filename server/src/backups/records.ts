/**
 * Backups as rows: claimed by one server at a time, with a deadline for each state. `due_at` is infinite once there is
 * nothing to do. Knows nothing of how a dump is made.
 */
import { newId } from '../lib/ids.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { SealedPlace } from '../store/keys/seal.ts'
import { claimInTurns } from '../work/claim-in-turns.ts'
import { holdLease, type Leased, LeaseLost, type LeaseTable } from '../work/lease.ts'

export const backupStates = ['QUEUED', 'RUNNING', 'VERIFYING', 'VERIFIED', 'UNVERIFIED', 'FAILED'] as const
type BackupState = (typeof backupStates)[number] | 'DELETING'

/** Notified when there is something to do; empty payload. */
export const backupChannel = 'slipway_backup'

export interface BackupRow extends Leased {
  organizationId: string
  databaseId: string
  environmentId: string
  /** Null: a folder of this server. */
  storageId: string | null
  type: string
  state: BackupState
  clusterId: string | null
  image: string | null
  memoryMb: number | null
  object: string | null
  sealedKey: string | null
  sha256: string | null
  tables: Tables | null
  attempts: number
  /** How long the present state may still take, in milliseconds; 0 or less: too late. */
  leftMs: number
}

/** Rows by table: when the dump began and when it ended. */
export type Tables = Record<string, [before: number | null, after: number | null]>

const columns = `id, organization_id as "organizationId", database_id as "databaseId",
  environment_id as "environmentId", storage_id as "storageId", type, state, cluster_id as "clusterId", image, memory_mb as "memoryMb", object,
  sealed_key as "sealedKey", sha256, tables, attempts, fence,
  least(extract(epoch from deadline_at - clock_timestamp()) * 1000, 2e9)::float8 as "leftMs"`

export const backupLeases: LeaseTable<BackupRow> = { name: 'backup', open: `lease_until > '-infinity'`, columns }

/** Of one organization at once: a large database of one delays no other's. */
const perOrganization = 2

export const claimBackups = claimInTurns({
  ...{ table: backupLeases, dueAt: 'due_at', perOrganization, order: 'created_at' },
})

/** Where the key of a backup is sealed. */
export const placeOfKey = (id: string): SealedPlace => ({ table: 'backup', row: id, column: 'sealed_key' })

/** What belongs to a stored file: it opens for no other backup. */
export const aboutBackup = ({ id, organizationId }: Pick<BackupRow, 'id' | 'organizationId'>): string =>
  `${organizationId} ${id}`

/** Backups of one database are below one name, those of one backup begin alike. */
export const prefixOf = ({ id, databaseId }: Pick<BackupRow, 'id' | 'databaseId'>): string =>
  `databases/${databaseId}/${id}`

/** The beginning of the names of the attempts of one control plane. */
export const ownPrefixOf = (row: Pick<BackupRow, 'id' | 'databaseId'>, writer: string): string =>
  `${prefixOf(row)}.${writer.slice(0, 8)}.`

const day = `interval '24 hours'`

interface NewBackup {
  databaseId: string
  name: string
  message: string
  origin: 'REQUEST' | 'SCHEDULE'
  storageId: string | null
}

/** Null if the database, or the storage, no longer exists. The storage is not deleted until the transaction ends. */
export const insertBackup = async (
  tx: Queryable,
  { databaseId, name, message, origin, storageId }: NewBackup,
): Promise<string | null> => {
  const there = `select 1 from node where id = $1 and kind = 'backup_storage' for key share`
  if (storageId !== null && (await tx.query(there, [storageId])).length === 0) return null
  const [row] = await tx.query<{ id: string }>(
    `insert into backup (id, organization_id, database_id, environment_id, database_name, type, version, name, message,
       origin, storage_id, deadline_at)
     select $1, n.organization_id, n.id, n.parent_id, n.name, n.spec ->> 'type', n.spec ->> 'version', $3, $4, $5, $6,
       clock_timestamp() + ${day}
     from node n where n.id = $2 and n.kind = 'database' returning id`,
    [newId(), databaseId, name, message, origin, storageId],
  )
  await tx.query(`select pg_notify('${backupChannel}', '')`)
  return row?.id ?? null
}

/** Changes the row; rejects with `LeaseLost` if it is to be deleted: its next turn does that. */
const change = (database: Database, row: BackupRow, fields: string, values: unknown[] = []): Promise<void> =>
  holdLease(database, backupLeases, row, async (tx) => {
    const sql = `update backup set ${fields}, updated_at = clock_timestamp()
      where id = $1 and state <> 'DELETING' returning 1`
    if ((await tx.query(sql, [row.id, ...values])).length === 0) throw new LeaseLost()
  })

/** An attempt begins: with a new key and a name of its own, so that no other attempt can be taken for it. */
export const beginDump = (
  database: Database,
  row: BackupRow,
  made: { madeBy: string; object: string; sealedKey: string; clusterId: string; image: string; memoryMb: number },
): Promise<void> =>
  change(
    database,
    row,
    `state = 'RUNNING', object = $2, sealed_key = $3, cluster_id = $4, image = $5, memory_mb = $6, made_by = $7,
       attempts = attempts + 1, started_at = coalesce(started_at, clock_timestamp())`,
    [made.object, made.sealedKey, made.clusterId, made.image, made.memoryMb, made.madeBy],
  )

export interface Stored {
  rawBytes: number
  storedBytes: number
  sha256: string
  tables: Tables | null
}

/** The file is in its place; it is verified from now on. */
export const saveStored = (database: Database, row: BackupRow, stored: Stored): Promise<void> =>
  change(
    database,
    row,
    `state = 'VERIFYING', raw_bytes = $2, stored_bytes = $3, sha256 = $4, tables = $5, attempts = 0,
       deadline_at = clock_timestamp() + ${day}`,
    [stored.rawBytes, stored.storedBytes, stored.sha256, JSON.stringify(stored.tables)],
  )

/** An attempt to verify it begins. */
export const beginCheck = (database: Database, row: BackupRow): Promise<void> =>
  change(database, row, 'attempts = attempts + 1')

export const endBackup = (
  database: Database,
  row: BackupRow,
  state: 'VERIFIED' | 'UNVERIFIED' | 'FAILED',
  reason: string | null,
  also: (tx: Queryable) => Promise<unknown> = async () => {},
): Promise<void> =>
  holdLease(database, backupLeases, row, async (tx) => {
    const [ended] = await tx.query(
      `update backup set state = $2, reason = $3, finished_at = clock_timestamp(), updated_at = clock_timestamp(),
         deadline_at = 'infinity', due_at = 'infinity', worker = null, lease_until = '-infinity'
       where id = $1 and state <> 'DELETING' returning 1`,
      [row.id, state, reason],
    )
    // Deleted meanwhile: it is due at once.
    if (ended === undefined)
      await tx.query(`update backup set worker = null, lease_until = '-infinity' where id = $1`, [row.id])
    else await also(tx)
  })

/** Another attempt follows, until the deadline of its state. */
export const putOffBackup = (database: Database, row: BackupRow, pauseMs: number): Promise<unknown> =>
  holdLease(database, backupLeases, row, (tx) =>
    tx.query(
      `update backup set due_at = clock_timestamp() + $2 * interval '1 millisecond', attempts = 0, worker = null,
         lease_until = '-infinity' where id = $1`,
      [row.id, pauseMs],
    ),
  )

/** Its files are gone. */
export const forgetBackup = (database: Database, row: BackupRow): Promise<unknown> =>
  holdLease(database, backupLeases, row, (tx) => tx.query('delete from backup where id = $1', [row.id]))

/** Recorded here, done by a worker: its files first, then the row. */
export const requestRemoval = async (tx: Queryable, ids: readonly string[]): Promise<void> => {
  await tx.query(
    `update backup set state = 'DELETING', reason = null, due_at = clock_timestamp(), deadline_at = 'infinity',
       updated_at = clock_timestamp() where id = any($1) and state <> 'DELETING'`,
    [ids],
  )
  await tx.query(`select pg_notify('${backupChannel}', '')`)
}
