/** Makes one backup: from the database's own program through compression and encryption into its place. */
import { randomBytes } from 'node:crypto'
import { type Reached, reachDatabase } from './database.ts'
import { writeBackup } from './format/format.ts'
import type { BackupParts } from './parts.ts'
import type { Place } from './places/place.ts'
import {
  aboutBackup,
  type BackupRow,
  beginDump,
  ownPrefixOf,
  placeOfKey,
  prefixOf,
  type Stored,
  saveStored,
  type Tables,
} from './records.ts'
import { runTool } from './run-tool.ts'
import { openStorage } from './storage.ts'
import type { Reports } from './tools/reports.ts'
import { backupToolOf } from './tools/tools.ts'

const tablesOf = (reports: Reports, isExact: boolean): Tables | null => {
  if (reports.isCut()) return null
  const [before, after] = [reports.rows('before'), reports.rows(isExact ? 'before' : 'after')]
  const names = new Set([...before.keys(), ...after.keys()])
  return Object.fromEntries([...names].map((name) => [name, [before.get(name) ?? null, after.get(name) ?? null]]))
}

interface Target {
  place: Place
  object: string
  key: Buffer
}

/** The file becomes whole only once the program has succeeded: an error of either side ends both. */
const stream = async (
  parts: BackupParts,
  row: BackupRow,
  { clusterId, ...reached }: Reached,
  { place, object, key }: Target,
  signal: AbortSignal,
): Promise<Stored> => {
  const [taken, outcome] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  outcome.promise.catch(() => {})
  async function* output(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    yield* bytes
    taken.resolve()
    await outcome.promise
  }
  let storing: Promise<Omit<Stored, 'tables'>> | undefined
  const store = async (bytes: AsyncIterable<Uint8Array>) => {
    const writing = writeBackup(key, aboutBackup(row), output(bytes))
    const { bytes: storedBytes } = await place.put(object, writing.bytes, signal)
    return { ...writing.end(), storedBytes }
  }
  const stdout = async (bytes: AsyncIterable<Uint8Array>): Promise<void> => {
    storing = store(bytes)
    await Promise.race([taken.promise, storing])
  }
  const use = { ...reached, ownerId: row.id, mode: 'dump' as const, timeoutMs: Math.max(1000, row.leftMs) }
  try {
    const reports = await runTool(await parts.clusters.of(clusterId), use, { stdout }, signal)
    outcome.resolve()
    return { ...(await storing!), tables: tablesOf(reports, backupToolOf(row.type).isExact) }
  } catch (error) {
    outcome.reject(error)
    await storing?.catch(() => {})
    throw error
  }
}

/** Rejects with a sentence for users. A killed attempt leaves a file of another name, which `removeOthers` removes. */
export const makeDump = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<void> => {
  const { database, sealer } = parts
  const reached = await reachDatabase(parts, row.databaseId)
  const key = randomBytes(32)
  const sealedKey = await sealer.seal(row.organizationId, placeOfKey(row.id), key.toString('base64'))
  const object = `${ownPrefixOf(row, parts.writer)}${row.fence}`
  const { clusterId, image, memoryMb } = reached
  await beginDump(database, row, { madeBy: parts.writer, object, sealedKey, clusterId, image, memoryMb })
  const stored = await stream(parts, row, reached, { place: await openStorage(parts, row), object, key }, signal)
  await saveStored(database, row, stored)
}

/** All files of a backup that is deleted; else those of our own attempts that were killed. */
export const removeFiles = async (parts: BackupParts, row: BackupRow, signal: AbortSignal): Promise<void> => {
  const place = await openStorage(parts, row)
  const [current] = await parts.database.query<{ object: string | null; isDeleted: boolean }>(
    `select object, state = 'DELETING' as "isDeleted" from backup where id = $1`,
    [row.id],
  )
  const isDeleted = current?.isDeleted === true
  for await (const { name } of place.list(isDeleted ? prefixOf(row) : ownPrefixOf(row, parts.writer), signal))
    if (isDeleted || name !== current?.object) await place.remove(name, signal)
}
