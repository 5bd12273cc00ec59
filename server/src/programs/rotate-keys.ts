/**
 * `npm run rotate-keys`: a new master key, new data keys, and everything sealed again, while the server is running. If
 * killed or interrupted, it resumes when started again. With `--keep-master` the first key of the file is used: for
 * several machines, whose files the operator has already changed.
 */

import { createLog } from '../lib/log.ts'
import { readSettings } from '../settings/settings.ts'
import { connect } from '../store/database.ts'
import { startPostgres } from '../store/postgres/postgres.ts'
import { checkOwner } from '../wiring/data-directory.ts'
import { rotateKeys } from './key-rotation.ts'

const print = (line: string): void => {
  process.stdout.write(`${line}\n`)
}

/** Opens the database of these settings, and how to close it: a server that was not running is stopped again. */
const openDatabase = async ({ databaseUrl, dataDir }: ReturnType<typeof readSettings>) => {
  const log = createLog('error')
  if (databaseUrl !== undefined) return { database: connect(databaseUrl, log, { max: 4 }), leave: async () => {} }
  const { connectionString, adopted, stop } = await startPostgres({ dataDir, log })
  return { database: connect(connectionString, log, { max: 4 }), leave: adopted ? async () => {} : stop }
}

const refuse = (why: string): never => {
  process.stderr.write(`The rotation has not started: ${why}\n`)
  return process.exit(1)
}

const settings = readSettings()
const isThere = await checkOwner(settings.dataDir).catch((error: Error) => refuse(error.message))
if (!isThere && settings.databaseUrl === undefined) refuse(`there is no data directory ${settings.dataDir}.`)
const { database, leave } = await openDatabase(settings)
try {
  let done = 0
  const { organizations, dataKeysWrapped, texts, broken, resumed } = await rotateKeys(
    database,
    settings.masterKeyFile,
    {
      newMasterKey: !process.argv.includes('--keep-master'),
      onBatch: (count) => {
        done += count
        print(`${done} sealed again ...`)
      },
    },
  )
  if (resumed) print('Resumed a rotation that had not finished.')
  print(`Data keys      ${organizations} new, ${dataKeysWrapped} older ones wrapped with the new master key`)
  for (const [table, count] of Object.entries(texts)) print(`${table.padEnd(15)} ${count} sealed again`)
  if (broken > 0) {
    print(`${broken} values cannot be opened with any key: they were already damaged and are left unchanged.`)
    process.exitCode = 1
  }
  print(`Old keys in ${settings.masterKeyFile} are only needed to read existing backups.`)
} catch (error) {
  process.stderr.write(`The rotation has not finished: ${(error as Error).message}\n`)
  process.exitCode = 1
} finally {
  await database.close()
  await leave()
}
