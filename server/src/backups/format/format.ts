/**
 * How a backup is stored: the program's own output, compressed (zstd), then encrypted in chunks (sealed-stream.ts). At
 * most a few chunks are in memory. Does not know where the bytes go, nor what they say.
 */
import { createHash } from 'node:crypto'
import { pipeline, type Transform } from 'node:stream'
import { createZstdCompress, createZstdDecompress } from 'node:zlib'
import { DamagedBackup, openStream, sealStream } from './sealed-stream.ts'

/** What went through so far. */
export interface Measured {
  bytes: number
}

/** The bytes of a stream, counted on their way. */
export async function* measure<Chunk extends Uint8Array>(
  source: AsyncIterable<Chunk>,
  into: Measured,
): AsyncGenerator<Chunk> {
  for await (const chunk of source) {
    into.bytes += chunk.length
    yield chunk
  }
}

/** An error of either side ends both. */
async function* through(source: AsyncIterable<Uint8Array>, transform: Transform): AsyncGenerator<Buffer> {
  pipeline(source, transform, () => {})
  try {
    for await (const chunk of transform) yield chunk as Buffer
  } finally {
    transform.destroy()
  }
}

export interface Written {
  /** What the program wrote. */
  rawBytes: number
  /** The hash of the stored bytes, in hexadecimal. */
  sha256: string
}

/** The stored form of a stream; `end` says what it was once all of it has been read. */
export const writeBackup = (
  key: Uint8Array,
  about: string,
  source: AsyncIterable<Uint8Array>,
): { bytes: AsyncIterable<Uint8Array>; end(): Written } => {
  const raw = { bytes: 0 }
  const hash = createHash('sha256')
  async function* hashed(): AsyncGenerator<Uint8Array> {
    for await (const chunk of sealStream(key, about, through(measure(source, raw), createZstdCompress()))) {
      hash.update(chunk)
      yield chunk
    }
  }
  return { bytes: hashed(), end: () => ({ rawBytes: raw.bytes, sha256: hash.digest('hex') }) }
}

/** The stored bytes, refused at their end if they are not those that were written. */
async function* checked(source: AsyncIterable<Uint8Array>, sha256: string): AsyncGenerator<Uint8Array> {
  const hash = createHash('sha256')
  for await (const chunk of source) {
    hash.update(chunk)
    yield chunk
  }
  if (hash.digest('hex') !== sha256)
    throw new DamagedBackup('The stored backup is damaged: its checksum is not that of what was written.')
}

/** What the program wrote. Fails with `DamagedBackup` at the first byte that is not authentic. */
export const readBackup = (
  key: Uint8Array,
  about: string,
  stored: AsyncIterable<Uint8Array>,
  { sha256 }: Pick<Written, 'sha256'>,
): AsyncIterable<Uint8Array> => through(openStream(key, about, checked(stored, sha256)), createZstdDecompress())
