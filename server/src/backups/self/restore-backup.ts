/**
 * A backup becomes a data directory and a database again. Promises that both are filled whole or not at all, that only
 * what is empty is filled, and that a restore whose process was killed can simply be started again: until it is over, a
 * file says so in the data directory, and no server starts on it. Does not start a server, and touches no engine.
 */
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { newId } from '../../lib/ids.ts'
import type { Log } from '../../lib/log.ts'
import { readIfThere, replaceWhole } from '../../lib/whole-file.ts'
import { isEmptyDatabase, openRowsIn, type RowsIn } from '../../store/copy/rows-in.ts'
import { openSession, type Session } from '../../store/copy/session.ts'
import { migrationNames, newerSlipway } from '../../store/database.ts'
import { removePostgres, startPostgres } from '../../store/postgres/postgres.ts'
import { unfinishedRestore } from '../../store/unfinished-restore.ts'
import { type OneBackup, readBackup } from './check-backup.ts'
import type { Beginning, End } from './manifest.ts'
import { type OwnFile, writeOwnFiles } from './own-files.ts'

export interface RestoreParts extends OneBackup {
  /** It is there, empty, and ours; or a restore into it was not finished. */
  dataDir: string
  /** Absent: the database of the data directory. */
  databaseUrl: string | undefined
  log: Log
  /** Called when the rows and files are there: the newer migrations, checks and the report. */
  finish(restored: Restored): Promise<void>
}

export interface Restored {
  beginning: Beginning
  end: End
  files: OwnFile[]
  connectionString: string
}

const markOf = (dataDir: string): string => join(dataDir, unfinishedRestore)

/** Everything that a restore has made in it; nothing else can be there. */
const clear = async (dataDir: string, log: Log): Promise<void> => {
  await removePostgres({ dataDir, log })
  for (const name of await readdir(dataDir))
    if (name !== unfinishedRestore) await rm(join(dataDir, name), { recursive: true, force: true })
}

/** The word of this restore: a killed one of the same backup is continued under the same. */
const claim = async (dataDir: string, backupName: string, log: Log): Promise<string> => {
  const before = (await readIfThere(markOf(dataDir)))?.trim()
  if (before === undefined) {
    const [other] = await readdir(dataDir)
    if (other !== undefined)
      throw new Error(
        `${dataDir} is not empty (it has ${other}): a restore needs an empty data directory. Move it away, or set SLIPWAY_DATA_DIR to another folder`,
      )
  }
  const word = before?.startsWith(`${backupName} `) ? before : `${backupName} ${newId()}`
  if (word !== before) await replaceWhole(markOf(dataDir), `${word}\n`)
  await clear(dataDir, log)
  return word
}

/** Its migrations would be missing here. */
export const refuseNewer = ({ migrations, slipway }: Pick<Beginning, 'migrations' | 'slipway'>): void => {
  const known = new Set(migrationNames())
  const unknown = migrations.filter((name) => !known.has(name))
  if (unknown.length > 0)
    throw new Error(
      `it was made by Slipway ${slipway}, which is newer: restore it with that version (${newerSlipway(unknown).message})`,
    )
}

interface Filled {
  beginning: Beginning
  end: End
  files: OwnFile[]
}

/** All parts into one transaction, which is committed when the last part says that all of them were as listed. */
const fill = async (session: Session, backup: OneBackup, restoreId: string): Promise<Filled> => {
  const files: OwnFile[] = []
  let beginning: Beginning | undefined
  let rowsIn: RowsIn | undefined
  let end: End | undefined
  await session.query('begin')
  for await (const part of readBackup(backup)) {
    if (part.kind === 'beginning') {
      beginning = part.beginning
      refuseNewer(beginning)
      rowsIn = await openRowsIn(session, beginning.migrations)
    } else if (part.kind === 'file') files.push(part)
    else if (part.kind === 'table') await rowsIn!.load(part.table, part.rows)
    else end = part.end
  }
  await rowsIn!.setSequences(end!.sequences)
  await rowsIn!.bind()
  await session.query(
    `insert into installation (name, value) values ('restored', $1) on conflict (name) do update set value = excluded.value`,
    [restoreId],
  )
  await session.query('commit')
  return { beginning: beginning!, end: end!, files }
}

const isOfThisRestore = async (session: Session, restoreId: string): Promise<boolean> => {
  const [there] = await session.query(`select to_regclass('installation') as found`)
  if (there?.found === null) return false
  const found = await session.query(`select 1 from installation where name = 'restored' and value = $1`, [restoreId])
  return found.length > 0
}

/** The rows that a killed restore has committed are those of this backup: only its files are read again. */
const readAgain = async (backup: OneBackup): Promise<Filled> => {
  const files: OwnFile[] = []
  let beginning: Beginning | undefined
  let end: End | undefined
  for await (const part of readBackup(backup)) {
    if (part.kind === 'beginning') beginning = part.beginning
    else if (part.kind === 'file') files.push(part)
    else if (part.kind === 'end') end = part.end
    else for await (const _ of part.rows);
  }
  return { beginning: beginning!, end: end!, files }
}

const fillDatabase = async (connectionString: string, backup: OneBackup, restoreId: string): Promise<Filled> => {
  const session = await openSession(connectionString)
  try {
    if (await isEmptyDatabase(session)) return await fill(session, backup, restoreId)
    if (await isOfThisRestore(session, restoreId)) return await readAgain(backup)
    throw new Error('the database of DATABASE_URL is not empty: a restore needs an empty one')
  } finally {
    await session.close()
  }
}

export const restoreBackup = async (parts: RestoreParts): Promise<void> => {
  const { dataDir, databaseUrl, log, finish } = parts
  const restoreId = await claim(dataDir, parts.name, log)
  try {
    const started = databaseUrl === undefined ? await startPostgres({ dataDir, log }) : null
    const connectionString = databaseUrl ?? started!.connectionString
    const filled = await fillDatabase(connectionString, parts, restoreId)
    await writeOwnFiles(dataDir, filled.files, databaseUrl)
    await finish({ ...filled, connectionString })
    await started?.stop()
  } catch (error) {
    // A database of the operator may have the rows already: then the same restore can be started again.
    await clear(dataDir, log).catch(() => {})
    if (databaseUrl === undefined) await rm(markOf(dataDir), { force: true })
    throw error
  }
  await rm(markOf(dataDir), { force: true })
}
