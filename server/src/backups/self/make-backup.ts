/**
 * A backup of this installation: all rows of one moment, and the files that nothing can make again, encrypted, in one
 * file. Promises that it appears in its place whole or not at all, that it was read back and compared before it is called
 * made, and that the server works meanwhile. Does not know when it is called or what is kept. A process that dies here
 * leaves nothing that is listed as a backup, and no lock: that ends with its connection.
 */
import { createHash } from 'node:crypto'
import { hostname } from 'node:os'
import { version } from '../../lib/version.ts'
import { withSnapshot } from '../../store/copy/rows-out.ts'
import { openSession, type Session } from '../../store/copy/session.ts'
import { migrationNames, newerSlipway } from '../../store/database.ts'
import { readMasterKeys } from '../../store/keys/master-key.ts'
import { tryBackupLockSql } from '../../store/locks.ts'
import type { Place } from '../places/place.ts'
import { writeArchive } from './archive.ts'
import { checkBackup } from './check-backup.ts'
import { type Key, type Lock, lockUp } from './lock.ts'
import type { End } from './manifest.ts'
import { readOwnFiles } from './own-files.ts'

export interface BackupParts {
  dataDir: string
  masterKeyFile: string
  connectionString: string
  place: Place
  lock: Lock
  /** Names of settings that the server has from its environment. */
  environment: readonly string[]
  /** Whether it is read back and compared. */
  verify: boolean
  signal: AbortSignal
}

export interface MadeBackup {
  name: string
  bytes: number
  tables: number
  rows: number
}

export class BackupRunning extends Error {
  constructor() {
    super('another backup of this installation is being made')
    this.name = 'BackupRunning'
  }
}

/** Keys are added to the file before they are used, so a file that is read after the snapshot has all it needs. */
const refuseMissingKeys = async (session: Session, masterKeyFile: string): Promise<void> => {
  const used = await session.query<{ id: string }>('select distinct master_key_id as id from data_key')
  const known = new Set((await readMasterKeys(masterKeyFile))?.map(({ id }) => id))
  if (used.some(({ id }) => !known.has(id)))
    throw new Error(
      `the master key file ${masterKeyFile} lacks a key of this database: its secrets could not be opened`,
    )
}

/** A newer version may have tables that this one does not know, and would leave out. */
const refuseUnknown = (migrations: readonly string[]): void => {
  const known = migrationNames()
  const unknown = migrations.filter((name) => !known.includes(name))
  if (unknown.length > 0) throw newerSlipway(unknown)
}

/** What passes, and its hash. */
async function* hashed(content: AsyncIterable<Uint8Array>, hash: ReturnType<typeof createHash>) {
  for await (const chunk of content) {
    hash.update(chunk)
    yield chunk
  }
}

interface Stored {
  bytes: number
  sha256: string
  key: Key
  end: End
}

const store = (parts: BackupParts, session: Session, name: string): Promise<Stored> =>
  withSnapshot(session, async ({ migrations, tables, rows, sequences }) => {
    const { dataDir, masterKeyFile, place, lock, environment, signal } = parts
    refuseUnknown(migrations)
    await refuseMissingKeys(session, masterKeyFile)
    const beginning = {
      ...{ format: 1 as const, made_at: new Date().toISOString(), slipway: version },
      ...{ data_directory: dataDir, host: hostname(), migrations, tables, environment: [...environment] },
    }
    const files = await readOwnFiles(dataDir, masterKeyFile)
    const archive = writeArchive({ beginning, files, rows, sequences })
    // Its failure is the failure of the stream.
    archive.end.catch(() => {})
    const locked = await lockUp(archive.content, lock)
    const hash = createHash('sha256')
    const { bytes } = await place.put(name, hashed(locked.content, hash), signal)
    return { bytes, sha256: hash.digest('hex'), key: locked.key, end: await archive.end }
  })

/** Reads it back as a restore does; a backup that does not pass is removed again. */
const verify = async ({ place, signal }: BackupParts, name: string, { sha256, key }: Stored): Promise<void> => {
  try {
    await checkBackup({ place, name, key, signal, sha256 })
  } catch (error) {
    await place.remove(name, AbortSignal.timeout(60_000)).catch(() => {})
    throw error
  }
}

/** One at a time of an installation, over all its servers and programs. */
export const makeBackup = async (parts: BackupParts, name: string): Promise<MadeBackup> => {
  const session = await openSession(parts.connectionString)
  try {
    const [lock] = await session.query<{ taken: boolean }>(tryBackupLockSql)
    if (lock?.taken !== true) throw new BackupRunning()
    await parts.place.tidy(parts.signal)
    const stored = await store(parts, session, name)
    if (parts.verify) await verify(parts, name, stored)
    const { tables } = stored.end
    return { name, bytes: stored.bytes, tables: tables.length, rows: tables.reduce((sum, { rows }) => sum + rows, 0) }
  } finally {
    await session.close()
  }
}
