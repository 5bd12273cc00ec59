/**
 * Loads backups into databases. Promises that each restore ends, with the first line of what failed, and that the login of
 * the database's own record stays valid. If the process dies, another server begins again: what was there before comes
 * back first where the type allows it (PostgreSQL).
 */
import { DeploymentError } from '../lib/errors.ts'
import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import { enqueueBackupEvent } from '../webhooks/outbox.ts'
import { expireLeases } from '../work/lease.ts'
import { startTurns } from '../work/turns.ts'
import { workerName } from '../work/worker.ts'
import { openContent } from './content.ts'
import { type Reached, reachDatabase } from './database.ts'
import { mayPass, sentenceOf } from './errors.ts'
import { judgeLoad } from './judge.ts'
import type { BackupParts } from './parts.ts'
import {
  beginRestore,
  claimRestores,
  endRestore,
  putOffRestore,
  type RestoredBackup,
  type RestoreRow,
  readRestored,
  restoreChannel,
  restoreLeases,
} from './restores.ts'
import { runTool } from './run-tool.ts'

const concurrency = 2
const longestPauseMs = 60_000
const mostAttempts = 3
const pauseMs = 30_000
/** A database that is being deployed. */
const startPauseMs = 3000

/** A damaged file is noticed before anything is replaced by it. */
const readThrough = async (parts: BackupParts, backup: RestoredBackup, signal: AbortSignal): Promise<void> => {
  for await (const _ of await openContent(parts, backup, signal)) signal.throwIfAborted()
}

const load = async (
  parts: BackupParts,
  row: RestoreRow,
  backup: RestoredBackup,
  { clusterId, ...reached }: Reached,
  signal: AbortSignal,
): Promise<string | null> => {
  const mode = row.replaces ? 'load' : 'load-into-empty'
  const use = { ...reached, ownerId: row.id, mode, timeoutMs: Math.max(1000, row.leftMs) } as const
  const stdin = await openContent(parts, backup, signal)
  const reports = await runTool(await parts.clusters.of(clusterId), use, { stdin }, signal)
  return judgeLoad(backup.tables, reports)
}

/** Null if all is there, else why not. */
const restore = async (parts: BackupParts, row: RestoreRow, signal: AbortSignal): Promise<string | null> => {
  const { database } = parts
  if (row.leftMs <= 0) throw new DeploymentError('restore_late', 'It did not end within 24 hours.')
  if (row.attempts >= mostAttempts)
    throw new DeploymentError('restore_interrupted', `The server ended ${row.attempts} times in the middle of it.`)
  const backup = await readRestored(database, row)
  if (backup === null) throw new DeploymentError('no_backup', 'The backup has been deleted.')
  const reached = await reachDatabase(parts, row.databaseId)
  if (reached.type !== backup.type)
    throw new DeploymentError('wrong_type', `The backup is of the type ${backup.type}, the database is not.`)
  await beginRestore(database, row)
  await readThrough(parts, backup, signal)
  return load(parts, row, backup, reached, signal)
}

const isStarting = (error: unknown): boolean => error instanceof DeploymentError && error.code === 'not_running'

/** With the event for receivers, in one transaction. */
const finish = ({ database }: BackupParts, row: RestoreRow, reason: string | null): Promise<unknown> =>
  endRestore(database, row, reason, (tx) => {
    const { organizationId, databaseId, backupId, id: restoreId } = row
    const kind = reason === null ? 'RESTORE_SUCCEEDED' : 'RESTORE_FAILED'
    return enqueueBackupEvent(tx, { kind, organizationId, databaseId, backupId, restoreId, reason })
  })

const run = async (parts: BackupParts, row: RestoreRow, signal: AbortSignal): Promise<void> => {
  const { database, log } = parts
  const about = { restore: row.id, database: row.databaseId }
  try {
    await finish(parts, row, await restore(parts, row, signal))
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const waits = row.leftMs > 0 && (mayPass(error) || isStarting(error))
    if (waits) return void (await putOffRestore(database, row, isStarting(error) ? startPauseMs : pauseMs))
    log.warn({ err: error, ...about }, 'a restore failed')
    await finish(parts, row, sentenceOf(error))
  }
}

/** `alone`: no other server can work on this database, so that leases of a dead process end at once. */
export const startRestores = async (
  parts: BackupParts,
  { alone }: { alone: boolean },
): Promise<{ stop(): Promise<void> }> => {
  if (alone) await expireLeases(parts.database, restoreLeases)
  return startTurns<RestoreRow>(parts, workerName(), {
    ...{ name: 'restores', concurrency, longestPauseMs, leases: restoreLeases, channel: restoreChannel },
    about: ({ id, databaseId }) => ({ restore: id, database: databaseId }),
    claim: claimRestores,
    run: (row, signal) => run(parts, row, signal),
    failed: 'a restore was interrupted and waits for its next claim',
  })
}
