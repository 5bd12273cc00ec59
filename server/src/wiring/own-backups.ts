/** Starts the backups of this installation by its schedule, if the settings name a place for them. */
import { isRecipient } from '../backups/self/lock.ts'
import { makeBackup } from '../backups/self/make-backup.ts'
import { settingsInEnvironment } from '../backups/self/own-files.ts'
import { startOwnBackups } from '../backups/self/schedule.ts'
import { openPlace } from '../backups/self/where.ts'
import { readWriter } from '../clusters/lines/writer.ts'
import { systemClock } from '../lib/time/clock.ts'
import type { Settings } from '../settings/settings.ts'
import type { Database } from '../store/database.ts'
import { startPostgres } from '../store/postgres/postgres.ts'
import type { Loop, WorkParts } from '../work/loop.ts'

type Parts = Omit<WorkParts, 'clock'> & { settings: Settings; database: Database }

/** Rejects with one sentence if it could never work. */
export const startScheduledBackups = async ({ settings, database, log, work }: Parts): Promise<Loop | null> => {
  const { dataDir, masterKeyFile, databaseUrl, ownBackups } = settings
  const { to, recipient, cron, keep, s3 } = ownBackups
  if (to === undefined || recipient === undefined) return null
  if (!isRecipient(recipient)) throw new Error('SLIPWAY_BACKUP_RECIPIENT is not a public key of age: check each letter')
  const place = openPlace(to, s3)
  const writer = await readWriter(database, dataDir, databaseUrl !== undefined)
  const environment = settingsInEnvironment(process.env)
  return startOwnBackups({
    ...{ database, clock: systemClock, log, work, cron, keep, writer, place },
    async make(name, signal) {
      const connectionString = databaseUrl ?? (await startPostgres({ dataDir, log })).connectionString
      const lock = { recipient }
      return makeBackup(
        { dataDir, masterKeyFile, connectionString, place, lock, environment, verify: true, signal },
        name,
      )
    },
  })
}
