/**
 * The data directory: its owner, and whether its services are real or simulated. Each refusal is one sentence that
 * says what to do, before anything is changed.
 */
import { lstat, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { ignoreExisting } from '../lib/placed-folder.ts'
import { userName } from '../lib/system-user.ts'
import { unfinishedRestore } from '../store/unfinished-restore.ts'

type RuntimeName = 'docker' | 'fake'

const markOf = (dataDir: string): string => join(dataDir, 'runtime')

const readIfThere = <T>(reading: Promise<T>): Promise<T | null> =>
  reading.catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return null
    throw error
  })

/** Not `recursive`, which on /proc never returns. */
const makeFolder = async (path: string): Promise<void> => {
  if ((await readIfThere(stat(path))) === null && path !== dirname(path)) {
    await makeFolder(dirname(path))
    await mkdir(path, { mode: 0o700 }).catch(ignoreExisting)
  }
}

/** The first entry that belongs to another user, searched so many folders deep. */
const findForeign = async (folder: string, me: number, depth: number): Promise<string | null> => {
  for (const name of await readdir(folder)) {
    const path = join(folder, name)
    const found = await readIfThere(lstat(path))
    if (found !== null && found.uid !== me) return path
    const inside = found?.isDirectory() === true && depth > 1 ? await findForeign(path, me, depth - 1) : null
    if (inside !== null) return inside
  }
  return null
}

/**
 * False if there is none. Rejects if it, or for users other than root something in it, belongs to another user: a
 * command that stops half-way is worse than one that does not begin.
 */
export const checkOwner = async (dataDir: string, depth = 2): Promise<boolean> => {
  const me = process.getuid?.()
  const folder = await readIfThere(stat(dataDir))
  if (folder === null) return false
  if (!folder.isDirectory()) throw new Error(`${dataDir} is a file: SLIPWAY_DATA_DIR must be a folder.`)
  if (me === undefined) return true
  if (folder.uid !== me) {
    const [owner, mine] = [await userName(folder.uid), await userName(me)]
    throw new Error(`${dataDir} belongs to ${owner} and this is ${mine}: run this command as ${owner}.`)
  }
  const foreign = me === 0 ? null : await findForeign(dataDir, me, depth)
  if (foreign === null) return true
  const { uid } = await lstat(foreign)
  const mine = await userName(me)
  throw new Error(
    `${foreign} belongs to ${await userName(uid)}: stop what runs as that user, then \`sudo chown -R ${mine} ${dataDir}\`.`,
  )
}

/** Directories of earlier versions have no mark; only simulated services left a folder of this name. */
const readMark = async (dataDir: string): Promise<RuntimeName | null> => {
  const text = (await readIfThere(readFile(markOf(dataDir), 'utf8')))?.trim()
  if (text === 'docker' || text === 'fake') return text
  if ((await readIfThere(stat(join(dataDir, 'fake')))) !== null) return 'fake'
  return (await readIfThere(stat(join(dataDir, 'keys')))) === null ? null : 'docker'
}

const wrongRuntime: Record<RuntimeName, string> = {
  fake: 'was started with --fake and what it deployed is simulated: start it with --fake, or set another SLIPWAY_DATA_DIR',
  docker: 'has services that run on an engine: start it without --fake, or set another SLIPWAY_DATA_DIR',
}

/** Whether the services of this directory are simulated; null if nothing was ever started in it. */
export const isFake = async (dataDir: string): Promise<boolean | null> => {
  const mark = await readMark(dataDir)
  return mark === null ? null : mark === 'fake'
}

/** Makes the folder if it is missing; rejects with one sentence if it is not ours. */
export const makeDataDirectory = async (dataDir: string): Promise<void> => {
  await makeFolder(dataDir).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === 'EACCES' ? 'this user may not write there' : (error.code ?? error.message)
    throw new Error(`${dataDir} cannot be created (${why}): set SLIPWAY_DATA_DIR to a folder that can.`)
  })
  await checkOwner(dataDir)
}

/** Makes it ready for a server of this kind, or rejects with one sentence. */
export const openDataDirectory = async (dataDir: string, runtime: RuntimeName): Promise<void> => {
  await makeDataDirectory(dataDir)
  if ((await readIfThere(stat(join(dataDir, unfinishedRestore)))) !== null)
    throw new Error(`a restore into ${dataDir} was not finished: run the same npm run restore again.`)
  const mark = await readMark(dataDir)
  if (mark !== null && mark !== runtime) throw new Error(`${dataDir} ${wrongRuntime[mark]}.`)
  await writeFile(markOf(dataDir), `${runtime}\n`, { mode: 0o600 }).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === 'ENOSPC' ? 'its disk is full' : error.message
    throw new Error(`${dataDir} cannot be written to: ${why}.`)
  })
}
