/** The last backup of Slipway itself. */
import { failed, topic, warning } from '../lib/finding.ts'

export interface BackupFacts {
  /** Where backups are written (`SLIPWAY_BACKUP_TO`). */
  to: string | undefined
  /** The last one; null if none is known. */
  last: { at: Date; problem: string | null } | null
}

const backup = topic('backup', 'Backup')
const guide = 'docs/guides/backup.md says how.'
const oldHours = 48
const hourMs = 3_600_000

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
