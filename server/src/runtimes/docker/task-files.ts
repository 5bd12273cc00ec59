/** Reads files of an execution: single files of a container, running or stopped, never larger than allowed. */
import type { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { extract } from 'tar-stream'
import { type Engine, EngineError, isEngineError } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'

const tooLarge = (path: string, maxBytes: number): DeploymentError =>
  new DeploymentError('file_too_large', `The file ${path} is larger than ${Math.floor(maxBytes / 1024)} KiB.`)

/** The engine answers an archive of the path: one entry for a file. Anything but a file counts as missing. */
const readEntry = async (archive: Readable, path: string, maxBytes: number): Promise<string | null> => {
  const entries = archive.pipe(extract())
  archive.on('error', (error) => entries.destroy(error))
  try {
    for await (const entry of entries) {
      if (entry.header.type !== 'file') return null
      if ((entry.header.size ?? 0) > maxBytes) throw tooLarge(path, maxBytes)
      return (await buffer(entry)).toString('utf8')
    }
    return null
  } finally {
    archive.destroy()
    entries.destroy()
  }
}

/** Links that lead in circles: nothing is there, and the engine says so as a fault of its own. */
const isCircle = (error: unknown): boolean => error instanceof EngineError && /too many links/.test(error.message)

/** Null for a file that is not there. */
export const readFileOf = async (
  engine: Engine,
  containerId: string,
  path: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<string | null> => {
  try {
    const archive = await engine.stream('GET', `/containers/${containerId}/archive`, { query: { path }, signal })
    return await readEntry(archive, path, maxBytes)
  } catch (error) {
    if (isEngineError(error, 404) || isCircle(error)) return null
    throw error
  }
}
