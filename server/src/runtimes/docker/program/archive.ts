/** The entry at a path of a container's filesystem, running or not, from the engine's archives. */
import type { Readable } from 'node:stream'
import { extract, type Header } from 'tar-stream'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'

interface Found {
  header: Header
  /** The first bytes of a file. */
  head: Buffer
  /** The folder is not empty. */
  hasMore: boolean
}

const readHead = async (entry: AsyncIterable<unknown>, mostBytes: number): Promise<Buffer> => {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of entry) {
    chunks.push(chunk as Buffer)
    size += (chunk as Buffer).length
    if (size >= mostBytes) break
  }
  return Buffer.concat(chunks).subarray(0, mostBytes)
}

const readFound = async (archive: Readable, mostBytes: number): Promise<Found | null> => {
  const entries = extract()
  // A reader that leaves early ends it, which is not a failure.
  entries.on('error', () => {})
  archive.on('error', (error) => entries.destroy(error))
  let found: Found | null = null
  for await (const entry of archive.pipe(entries)) {
    if (found !== null) return { ...found, hasMore: true }
    const isFile = entry.header.type === 'file'
    found = { header: entry.header, head: isFile ? await readHead(entry, mostBytes) : Buffer.alloc(0), hasMore: false }
    if (isFile) return found
    entry.resume()
  }
  return found
}

/** A link is not followed. Null for a missing entry. */
export const findAt = async (
  engine: Pick<Engine, 'stream'>,
  id: string,
  path: string,
  mostBytes: number,
  signal: AbortSignal,
): Promise<Found | null> => {
  let archive: Readable
  try {
    archive = await engine.stream('GET', `/containers/${id}/archive`, { query: { path }, signal })
  } catch (error) {
    if (isEngineError(error, 404)) return null
    throw error
  }
  try {
    return await readFound(archive, mostBytes)
  } finally {
    archive.destroy()
  }
}
