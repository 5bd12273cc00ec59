/** Single files of a container, running or ended, from the engine's archives. */
import type { Readable } from 'node:stream'
import { extract } from 'tar-stream'
import { type Engine, EngineError, isEngineError } from '../../../lib/docker/docker-engine.ts'
import type { OutputFile } from '../../collect-outputs.ts'

/** The engine answers with an archive of the path: one entry for a file. Anything but a file counts as missing. */
const openEntry = async (archive: Readable): Promise<OutputFile | null> => {
  const entries = archive.pipe(extract())
  archive.on('error', (error) => entries.destroy(error))
  const close = (): void => {
    archive.destroy()
    entries.destroy()
  }
  try {
    const { value: entry } = await entries[Symbol.asyncIterator]().next()
    if (entry?.header.type === 'file') return { size: entry.header.size ?? 0, bytes: entry, close }
  } catch (error) {
    close()
    throw error
  }
  close()
  return null
}

/** Circular links: the file does not exist, and the engine reports an error of its own. */
const isCircle = (error: unknown): boolean => error instanceof EngineError && /too many links/.test(error.message)

/** Null for a missing file. */
export const openFileOf = async (
  engine: Engine,
  containerId: string,
  path: string,
  signal: AbortSignal,
): Promise<OutputFile | null> => {
  try {
    return await openEntry(
      await engine.stream('GET', `/containers/${containerId}/archive`, { query: { path }, signal }),
    )
  } catch (error) {
    if (isEngineError(error, 404) || isCircle(error)) return null
    throw error
  }
}
