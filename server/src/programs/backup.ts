/**
 * `npm run backup`: one encrypted file with everything of this installation that nothing can make again, while the
 * server runs or not. If it is killed, no backup is there, and the next one removes what it left.
 */
import { parseArgs } from 'node:util'
import { isRecipient, type Lock } from '../backups/self/lock.ts'
import { makeBackup } from '../backups/self/make-backup.ts'
import { nameOf } from '../backups/self/names.ts'
import { settingsInEnvironment } from '../backups/self/own-files.ts'
import { openPlace } from '../backups/self/where.ts'
import { createLog } from '../lib/log.ts'
import { readSettings, type Settings } from '../settings/settings.ts'
import { startPostgres } from '../store/postgres/postgres.ts'
import { checkOwner } from '../wiring/data-directory.ts'
import { askNewPassphrase, givenPassphrase } from './passphrase.ts'

const readValues = () =>
  parseArgs({
    options: { to: { type: 'string' }, recipient: { type: 'string' }, 'no-verify': { type: 'boolean' } },
  }).values

type Values = ReturnType<typeof readValues>

const lockOf = async ({ ownBackups }: Settings, values: Values): Promise<Lock> => {
  if (values.recipient !== undefined) {
    if (!isRecipient(values.recipient))
      throw new Error('--recipient must be a public key of age, which begins with age1')
    return { recipient: values.recipient }
  }
  const passphrase = givenPassphrase()
  if (passphrase !== null) return { passphrase }
  if (ownBackups.recipient !== undefined) return { recipient: ownBackups.recipient }
  return { passphrase: await askNewPassphrase() }
}

/** The database of these settings; one that did not run is stopped again. */
const openDatabase = async ({ databaseUrl, dataDir }: Settings) => {
  if (databaseUrl !== undefined) return { connectionString: databaseUrl, leave: async () => {} }
  const { connectionString, adopted, stop } = await startPostgres({ dataDir, log: createLog('error') })
  return { connectionString, leave: adopted ? async () => {} : stop }
}

const backup = async (): Promise<void> => {
  const values = readValues()
  const settings = readSettings()
  const { dataDir, masterKeyFile, ownBackups } = settings
  const to = values.to ?? ownBackups.to
  if (to === undefined) throw new Error('say where it goes: npm run backup -- --to FOLDER')
  const place = openPlace(to, ownBackups.s3)
  if (!(await checkOwner(dataDir))) throw new Error(`there is no data directory ${dataDir}`)
  const lock = await lockOf(settings, values)
  const stopping = new AbortController()
  process.once('SIGINT', () => stopping.abort(new Error('it was interrupted')))
  process.once('SIGTERM', () => stopping.abort(new Error('it was interrupted')))
  const { connectionString, leave } = await openDatabase(settings)
  try {
    const made = await makeBackup(
      {
        ...{ dataDir, masterKeyFile, connectionString, place, lock, environment: settingsInEnvironment(process.env) },
        ...{ verify: values['no-verify'] !== true, signal: stopping.signal },
      },
      nameOf(new Date(), null),
    )
    const read = values['no-verify'] === true ? 'not read back' : 'read back and compared'
    process.stdout.write(`${made.name}\n`)
    process.stderr.write(
      `Backed up ${made.rows} rows of ${made.tables} tables: ${made.bytes} bytes in ${to}, ${read}.\n`,
    )
  } finally {
    await leave()
  }
}

try {
  await backup()
} catch (error) {
  process.stderr.write(`No backup was made: ${(error as Error).message}.\n`.replace(/\.\.\n$/, '.\n'))
  process.exitCode = 1
}
