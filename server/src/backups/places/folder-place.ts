/**
 * Backups in a folder of this server. A file is written beside its name, as `.<random>.part`, synced to disk and renamed;
 * so a process that dies leaves such a part, whose name a place does not accept: it is never listed, and is removed by
 * its age.
 */
import { randomBytes } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, opendir, rename, rm, rmdir, stat, statfs } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isDiskFull } from '../../lib/disk-full.ts'
import { checkedName, checkedPrefix, leftoverAfterMs, type Place, PlaceError, type Stored } from './place.ts'

export interface FolderOptions {
  /** Space that stays free on its disk, which others write to as well; 0: none. */
  reserveBytes: number
  now(): Date
}

const codeOf = (error: unknown): string => String((error as { code?: unknown }).code ?? '')

const isMissing = (error: unknown): boolean => ['ENOENT', 'ENOTDIR'].includes(codeOf(error))

const noRoom = 'The disk of the backup folder is full: free some space, or remove backups.'

/** Errors of the disk as those of a place; all others (of the content, of `signal`) stay as they are. */
const explain = (error: unknown): unknown => {
  const code = codeOf(error)
  if (isDiskFull(error) || code === 'EDQUOT') return new PlaceError('full', noRoom, error)
  if (['EACCES', 'EPERM', 'EROFS'].includes(code))
    return new PlaceError('refused', `The server may not write to or read from the backup folder (${code}).`, error)
  if (['EIO', 'ESTALE', 'ENODEV', 'ENXIO', 'ETIMEDOUT', 'EHOSTDOWN'].includes(code))
    return new PlaceError('unreachable', `The disk of the backup folder does not work (${code}).`, error)
  return error
}

const explained = async <T>(work: Promise<T>): Promise<T> => {
  try {
    return await work
  } catch (error) {
    throw explain(error)
  }
}

const syncFolder = async (folder: string): Promise<void> => {
  const handle = await open(folder, constants.O_RDONLY)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** The folder of a file, each new one synced in the folder above it, so that it outlives a loss of power too. */
const makeFolder = async (folder: string): Promise<void> => {
  const first = await mkdir(folder, { recursive: true, mode: 0o700 })
  if (first === undefined) return
  for (let made = folder; made.length >= first.length; made = dirname(made)) await syncFolder(dirname(made))
}

const writeAll = async (handle: FileHandle, chunk: Uint8Array): Promise<void> => {
  for (let done = 0; done < chunk.length; ) {
    const { bytesWritten } = await handle.write(chunk, done, chunk.length - done)
    done += bytesWritten
  }
}

/** A removal of the last file beside it takes the folder away, which is then made again. */
const openPart = async (part: string): Promise<FileHandle> => {
  for (let attempt = 1; ; attempt++) {
    await makeFolder(dirname(part))
    try {
      return await open(part, 'wx', 0o600)
    } catch (error) {
      if (!isMissing(error) || attempt === 5) throw error
    }
  }
}

/** How much is written between two looks at what is free. */
const lookEveryBytes = 64 << 20

const refuseReserve = async (folder: string, reserveBytes: number): Promise<void> => {
  if (reserveBytes === 0) return
  const { bavail, bsize } = await statfs(folder)
  if (bavail * bsize < reserveBytes) throw new PlaceError('full', noRoom)
}

const writePart = async (
  part: string,
  content: AsyncIterable<Uint8Array>,
  { reserveBytes }: FolderOptions,
  signal: AbortSignal,
): Promise<number> => {
  let bytes = 0
  let nextLook = 0
  const handle = await explained(openPart(part))
  try {
    for await (const chunk of content) {
      signal.throwIfAborted()
      if (bytes >= nextLook) {
        await explained(refuseReserve(dirname(part), reserveBytes))
        nextLook = bytes + lookEveryBytes
      }
      await explained(writeAll(handle, chunk))
      bytes += chunk.length
    }
    await explained(handle.sync())
  } finally {
    await handle.close()
  }
  signal.throwIfAborted()
  return bytes
}

const put = async (
  folder: string,
  name: string,
  content: AsyncIterable<Uint8Array>,
  options: FolderOptions,
  signal: AbortSignal,
): Promise<{ bytes: number }> => {
  const file = join(folder, checkedName(name))
  signal.throwIfAborted()
  const part = join(dirname(file), `.${randomBytes(8).toString('hex')}.part`)
  try {
    const bytes = await writePart(part, content, options, signal)
    await explained(rename(part, file))
    await explained(syncFolder(dirname(file)))
    return { bytes }
  } catch (error) {
    await rm(part, { force: true })
    throw error
  }
}

const missing = (cause: unknown): PlaceError =>
  new PlaceError('missing', 'The stored file is not in the backup folder.', cause)

/** Opened when it is read. Fails if the file has become shorter: a disk that lost its end. */
async function* readAll(path: string, size: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  let bytes = 0
  try {
    await using handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    const stream = handle.createReadStream({ autoClose: false, highWaterMark: 256 << 10, signal })
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      bytes += chunk.length
      yield chunk
    }
  } catch (error) {
    signal.throwIfAborted()
    throw isMissing(error) ? missing(error) : explain(error)
  }
  if (bytes !== size) throw new PlaceError('damaged', 'The stored file became shorter while it was read.')
}

const get = async (folder: string, name: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> => {
  const path = join(folder, checkedName(name))
  signal.throwIfAborted()
  const found = await lstat(path).catch((error: unknown) => {
    throw isMissing(error) ? missing(error) : explain(error)
  })
  if (!found.isFile()) throw missing(undefined)
  return readAll(path, found.size, signal)
}

/** Paths below `folder` of all files, those of unfinished writes too. What goes away meanwhile is left out. */
async function* walk(folder: string, below: string, signal: AbortSignal): AsyncGenerator<string> {
  signal.throwIfAborted()
  const entries = await opendir(join(folder, below)).catch((error: unknown) => {
    if (isMissing(error)) return null
    throw explain(error)
  })
  if (entries === null) return
  for await (const entry of entries) {
    signal.throwIfAborted()
    const path = join(below, entry.name)
    if (entry.isDirectory()) yield* walk(folder, path, signal)
    else if (entry.isFile()) yield path
  }
}

const statIfThere = async (path: string): Promise<{ size: number; mtime: Date } | null> => {
  try {
    return await stat(path)
  } catch (error) {
    if (isMissing(error)) return null
    throw explain(error)
  }
}

const isPart = (path: string): boolean => /(^|\/)\.[0-9a-f]{16}\.part$/.test(path)

async function* list(folder: string, prefix: string, signal: AbortSignal): AsyncGenerator<Stored> {
  const start = checkedPrefix(prefix)
  const above = start.slice(0, start.lastIndexOf('/') + 1)
  for await (const name of walk(folder, above, signal)) {
    if (!name.startsWith(start) || isPart(name)) continue
    const found = await statIfThere(join(folder, name))
    if (found !== null) yield { name, bytes: found.size, at: found.mtime.toISOString() }
  }
}

const remove = async (folder: string, name: string, signal: AbortSignal): Promise<void> => {
  const file = join(folder, checkedName(name))
  signal.throwIfAborted()
  await explained(rm(file, { force: true }))
  // Folders that have become empty go too, up to ours; one that is filled meanwhile stays.
  for (let above = dirname(name); above !== '.'; above = dirname(above)) {
    const isGone = await rmdir(join(folder, above)).then(
      () => true,
      () => false,
    )
    if (!isGone) break
  }
}

const tidy = async (folder: string, signal: AbortSignal, now: () => Date): Promise<void> => {
  for await (const path of walk(folder, '', signal)) {
    if (!isPart(path)) continue
    const found = await statIfThere(join(folder, path))
    const isOld = found !== null && now().getTime() - found.mtime.getTime() > leftoverAfterMs
    if (isOld) await explained(rm(join(folder, path), { force: true }))
  }
}

const usual: FolderOptions = { reserveBytes: 0, now: () => new Date() }

/** `folder` is absolute; it is made with the first file. */
export const createFolderPlace = (folder: string, given: Partial<FolderOptions> = {}): Place => {
  const options = { ...usual, ...given }
  return {
    put: (name, content, signal) => put(folder, name, content, options, signal),
    get: (name, signal) => get(folder, name, signal),
    list: (prefix, signal) => list(folder, prefix, signal),
    remove: (name, signal) => remove(folder, name, signal),
    tidy: (signal) => tidy(folder, signal, options.now),
  }
}
