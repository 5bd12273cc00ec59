/**
 * Makes, verifies and removes backups. Promises that each one ends: VERIFIED, UNVERIFIED or FAILED with a reason, within
 * the deadline of its state. If the process dies, the lease of the row ends and another server does the step again; what
 * was half written is never listed.
 */
import { DeploymentError } from '../lib/errors.ts'
import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import { enqueueBackupEvent } from '../webhooks/outbox.ts'
import { expireLeases } from '../work/lease.ts'
import { startTurns } from '../work/turns.ts'
import { workerName } from '../work/worker.ts'
import { checkBackup } from './check.ts'
import { makeDump, removeFiles } from './dump.ts'
import { isLost, mayPass, sentenceOf } from './errors.ts'
import type { BackupParts } from './parts.ts'
import { PlaceError } from './places/place.ts'
import {
  type BackupRow,
  backupChannel,
  backupLeases,
  claimBackups,
  endBackup,
  forgetBackup,
  putOffBackup,
} from './records.ts'

const concurrency = 2
const longestPauseMs = 60_000
/** A server that dies so often while it works on a backup may die of it. */
const mostAttempts = 3
const pauseMs = 30_000
const removalPauseMs = 10 * 60_000

const current = async ({ database }: BackupParts, { id }: BackupRow): Promise<BackupRow> => {
  const [row] = await database.query<BackupRow>(`select ${backupLeases.columns} from backup where id = $1`, [id])
  return row!
}

/** With the event for receivers, in one transaction. */
const finish = (
  { database }: BackupParts,
  row: BackupRow,
  state: 'VERIFIED' | 'UNVERIFIED' | 'FAILED',
  reason: string | null,
): Promise<void> =>
  endBackup(database, row, state, reason, (tx) => {
    const { organizationId, databaseId, id: backupId } = row
    return enqueueBackupEvent(tx, {
      kind: `BACKUP_${state}`,
      organizationId,
      databaseId,
      backupId,
      restoreId: null,
      reason,
    })
  })

/** What does not verify is kept: it may be all that there is. One that cannot even be read is not a backup. */
const verify = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<void> => {
  try {
    const problem = await checkBackup(parts, row, signal)
    await finish(parts, row, problem === null ? 'VERIFIED' : 'UNVERIFIED', problem)
  } catch (error) {
    signal.throwIfAborted()
    if (!isLost(error)) throw error
    await finish(parts, row, 'FAILED', sentenceOf(error))
  }
}

const make = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<void> => {
  if (row.state === 'DELETING') {
    await removeFiles(parts, row, signal).catch((error: unknown) => {
      // A storage goes before its backups only together with its organization.
      if (!(error instanceof PlaceError && error.code === 'missing')) throw error
    })
    await forgetBackup(parts.database, row)
    return
  }
  const isCheck = row.state === 'VERIFYING'
  if (row.leftMs <= 0) throw new DeploymentError('backup_late', 'It did not end within 24 hours.')
  if (row.attempts >= mostAttempts)
    throw new DeploymentError('backup_interrupted', `The server ended ${row.attempts} times in the middle of it.`)
  if (!isCheck) await makeDump(parts, row, signal)
  await removeFiles(parts, row, signal)
  await verify(parts, await current(parts, row), signal)
}

const run = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<void> => {
  const { database, log } = parts
  try {
    await make(parts, row, signal)
  } catch (error) {
    if (signal.aborted || error instanceof LeaseHandedOff) throw error
    const about = { backup: row.id, database: row.databaseId }
    if (row.state === 'DELETING') {
      log.warn({ err: error, ...about }, 'the files of a backup could not be removed; retrying in ten minutes')
      await putOffBackup(database, row, removalPauseMs)
    } else if (mayPass(error) && row.leftMs > 0) {
      log.warn({ err: error, ...about }, 'a backup waits for its engine or its storage')
      await putOffBackup(database, row, pauseMs)
    } else {
      log.warn({ err: error, ...about }, 'a backup failed')
      const { state } = await current(parts, row)
      await finish(parts, row, state === 'VERIFYING' ? 'UNVERIFIED' : 'FAILED', sentenceOf(error))
      await removeFiles(parts, row, signal)
    }
  }
}

/** `alone`: no other server can work on this database, so that leases of a dead process end at once. */
export const startBackups = async (
  parts: BackupParts,
  { alone }: { alone: boolean },
): Promise<{ stop(): Promise<void> }> => {
  if (alone) await expireLeases(parts.database, backupLeases)
  return startTurns<BackupRow>(parts, workerName(), {
    ...{ name: 'backups', concurrency, longestPauseMs, leases: backupLeases, channel: backupChannel },
    about: ({ id, databaseId }) => ({ backup: id, database: databaseId }),
    claim: claimBackups,
    run: (row, signal) => run(parts, row, signal),
    failed: 'a backup was interrupted and waits for its next claim',
  })
}
