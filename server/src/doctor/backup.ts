/** The last backup of Slipway itself. */
import { readOwnBackupState } from '../backups/self/state.ts'
import { failed, topic, warning } from '../lib/finding.ts'
import type { Queryable } from '../store/database.ts'

export interface BackupFacts {
  /** Where backups are written (`SLIPWAY_BACKUP_TO`). */
  to: string | undefined
  /** The last one; null: there is none; undefined: only a running server knows. */
  last: { at: Date; problem: string | null } | null | undefined
}

const backup = topic('backup', 'Backup')
const guide = 'docs/guides/backup.md says how.'
const oldHours = 48
const hourMs = 3_600_000

export const readLastBackup = async (db: Queryable): Promise<BackupFacts['last']> => {
  const state = await readOwnBackupState(db)
  if (state?.failedAt != null) return { at: new Date(state.failedAt), problem: state.error ?? 'for no known reason.' }
  return state?.madeAt == null ? null : { at: new Date(state.madeAt), problem: null }
}

export const judgeBackup = ({ to, last }: BackupFacts, now: Date) => {
  if (to === undefined || to === '')
    return backup.judge(
      [
        warning(
          'No backup is configured: if this machine is lost, everything has to be created again.',
          `Back up the data directory, and the volumes of services: ${guide}`,
        ),
      ],
      '',
    )
  if (last === undefined) return backup.skipped('Only a running server knows when the last backup was made.')
  if (last === null)
    return backup.judge(
      [warning('Backups are configured, but none has been made yet.', `Make one, and restore it once: ${guide}`)],
      '',
    )
  if (last.problem !== null)
    return backup.judge(
      [failed(`The last backup failed: ${last.problem}`, `Correct it and make another one: ${guide}`)],
      '',
    )
  const hours = Math.floor((now.getTime() - last.at.getTime()) / hourMs)
  if (hours > oldHours)
    return backup.judge([warning(`The last backup is ${hours} hours old.`, `Look at its schedule: ${guide}`)], '')
  return backup.ok(`The last backup is ${hours === 0 ? 'less than an hour' : `${hours} hours`} old.`)
}
