/**
 * A stream of any length, encrypted in chunks with AES-256-GCM (the construction STREAM, as in age): a change, a lost or
 * moved chunk, a lost end and added bytes are all noticed, at the latest where they are. A key is used for one stream.
 *
 * Bytes: the magic, then chunks of `chunkBytes` and their tags; only the last one is shorter. The nonce of a chunk is its
 * number and whether it is the last; what the stream belongs to is authenticated with each.
 */
import { createCipheriv, createDecipheriv } from 'node:crypto'
import { rechunk } from './rechunk.ts'

const magic = Buffer.from('SLIPWAY-BACKUP-1')
export const chunkBytes = 256 << 10
const tagBytes = 16
const nonceBytes = 12

/** The stored bytes cannot be those that were written with this key. `message` is a sentence for users. */
export class DamagedBackup extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'DamagedBackup'
  }
}

const nonceOf = (index: number, isLast: boolean): Buffer => {
  const nonce = Buffer.alloc(nonceBytes)
  nonce.writeBigUInt64BE(BigInt(index), 3)
  nonce[nonceBytes - 1] = isLast ? 1 : 0
  return nonce
}

interface Chunk {
  bytes: Buffer
  index: number
  isLast: boolean
}

/** Chunks of `size`, which is known only when the next one begins: an exact multiple ends with a full one. */
async function* number(source: AsyncIterable<Uint8Array>, size: number): AsyncGenerator<Chunk> {
  let before: Buffer | null = null
  let index = 0
  for await (const bytes of rechunk(source, size)) {
    if (before !== null) yield { bytes: before, index: index++, isLast: false }
    before = bytes
  }
  yield { bytes: before ?? Buffer.alloc(0), index, isLast: true }
}

/** `about`: what the stream belongs to. */
export async function* sealStream(
  key: Uint8Array,
  about: string,
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<Buffer> {
  const aad = Buffer.from(about)
  yield magic
  for await (const { bytes, index, isLast } of number(source, chunkBytes)) {
    const cipher = createCipheriv('aes-256-gcm', key, nonceOf(index, isLast)).setAAD(aad)
    yield Buffer.concat([cipher.update(bytes), cipher.final(), cipher.getAuthTag()])
  }
}

const openChunk = (key: Uint8Array, aad: Buffer, { bytes, index, isLast }: Chunk): Buffer => {
  if (bytes.length < tagBytes) throw new DamagedBackup('The stored backup is damaged: its end is missing.')
  const text = bytes.subarray(0, bytes.length - tagBytes)
  const decipher = createDecipheriv('aes-256-gcm', key, nonceOf(index, isLast), { authTagLength: tagBytes })
  decipher.setAAD(aad).setAuthTag(bytes.subarray(bytes.length - tagBytes))
  try {
    return Buffer.concat([decipher.update(text), decipher.final()])
  } catch (cause) {
    const where = isLast ? 'its end was changed or is missing' : `it was changed at byte ${index * chunkBytes} or after`
    throw new DamagedBackup(`The stored backup is damaged: ${where}.`, cause)
  }
}

async function* withoutMagic(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let start = Buffer.alloc(0)
  let isRead = false
  for await (const chunk of source) {
    if (isRead) {
      yield chunk
      continue
    }
    start = Buffer.concat([start, chunk])
    if (start.length < magic.length) continue
    if (!start.subarray(0, magic.length).equals(magic))
      throw new DamagedBackup('The stored backup is damaged: its beginning was changed.')
    isRead = true
    if (start.length > magic.length) yield start.subarray(magic.length)
  }
  if (!isRead) throw new DamagedBackup('The stored backup is damaged: its end is missing.')
}

/** What was sealed, chunk by chunk: each is authentic, and the stream fails unless it is whole. */
export async function* openStream(
  key: Uint8Array,
  about: string,
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<Buffer> {
  const aad = Buffer.from(about)
  for await (const chunk of number(withoutMagic(source), chunkBytes + tagBytes)) yield openChunk(key, aad, chunk)
}
