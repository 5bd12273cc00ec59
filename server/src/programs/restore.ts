/**
 * `npm run restore`: a backup becomes the data directory of this machine. With `--check` it is only read and compared.
 * Starts nothing; killed, it is started again. Prints what comes back by itself, what does not, and what to do next.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { Place } from '../backups/places/place.ts'
import { checkBackup } from '../backups/self/check-backup.ts'
import { isByPassphrase, type Key, parseIdentities } from '../backups/self/lock.ts'
import { pathsInSettings } from '../backups/self/own-files.ts'
import { readServices, reportOf } from '../backups/self/report.ts'
import { type Restored, restoreBackup } from '../backups/self/restore-backup.ts'
import { openOne } from '../backups/self/where.ts'
import { createLog } from '../lib/log.ts'
import { readSettings } from '../settings/settings.ts'
import { connect, migrate } from '../store/database.ts'
import { readFingerprintKey } from '../store/installation.ts'
import { createSealer } from '../store/keys/seal.ts'
import { makeDataDirectory } from '../wiring/data-directory.ts'
import { askPassphrase, givenPassphrase } from './passphrase.ts'

const log = createLog('error')

const readValues = () =>
  parseArgs({
    options: { from: { type: 'string' }, identity: { type: 'string' }, check: { type: 'boolean' } },
  }).values

const keyFor = async (place: Place, name: string, identity: string | undefined, signal: AbortSignal): Promise<Key> => {
  let first: Uint8Array = new Uint8Array()
  for await (const chunk of await place.get(name, signal)) {
    first = chunk
    break
  }
  const byPassphrase = isByPassphrase(first)
  if (byPassphrase === null) throw new Error(`${name} is not a backup of Slipway`)
  if (byPassphrase) return { passphrase: givenPassphrase() ?? (await askPassphrase()) }
  if (identity === undefined)
    throw new Error('it was made for a public key: name the file with its private key, --identity FILE')
  return { identities: parseIdentities(await readFile(identity, 'utf8')) }
}

const finish = async ({ beginning, end, files, connectionString }: Restored, dataDir: string): Promise<void> => {
  const database = connect(connectionString, log, { max: 2 })
  try {
    const migrated = await migrate(database)
    const sealer = await createSealer({ database, masterKeyFile: join(dataDir, 'keys/master') })
    // It opens a value that every installation has sealed.
    await readFingerprintKey(database, sealer)
    const textOf = (name: string): string => files.find((file) => file.name === name)?.bytes.toString('utf8') ?? ''
    const lines = reportOf({
      ...{ beginning, end, migrated, services: await readServices(database), dataDir },
      paths: pathsInSettings(textOf('slipway.env')),
      isFake: textOf('runtime').trim() === 'fake',
    })
    process.stdout.write(lines.map((line) => `${line}\n`).join(''))
  } finally {
    await database.close()
  }
}

const restore = async (): Promise<void> => {
  const values = readValues()
  if (values.from === undefined) throw new Error('say what is restored: npm run restore -- --from FOLDER/NAME')
  const { dataDir, databaseUrl, masterKeyFile, ownBackups } = readSettings()
  const { place, name } = openOne(values.from, ownBackups.s3)
  const { signal } = new AbortController()
  if (values.check === true) {
    const { beginning, end } = await checkBackup({
      place,
      name,
      key: await keyFor(place, name, values.identity, signal),
      signal,
    })
    const rows = end.tables.reduce((sum, table) => sum + table.rows, 0)
    process.stdout.write(`${name} of ${beginning.made_at} is whole: ${rows} rows of ${end.tables.length} tables.\n`)
    return
  }
  if (masterKeyFile !== join(dataDir, 'keys/master'))
    throw new Error('SLIPWAY_MASTER_KEY_FILE is set, but the keys are restored into the data directory: unset it')
  await makeDataDirectory(dataDir)
  const key = await keyFor(place, name, values.identity, signal)
  await restoreBackup({
    ...{ place, name, key, signal, dataDir, databaseUrl, log },
    finish: (restored) => finish(restored, dataDir),
  })
}

try {
  await restore()
} catch (error) {
  process.stderr.write(`Nothing was restored: ${(error as Error).message}.\n`.replace(/\.\.\n$/, '.\n'))
  process.exitCode = 1
}
