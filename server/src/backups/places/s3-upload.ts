/**
 * One upload to an S3 storage: at once if it is small, else in parts, of which few are in memory. Promises that the
 * object is there whole or not at all, and that it is what was written. If this process dies, the parts remain in the
 * storage, where no reader sees them, until `tidy` of a place aborts the upload.
 */
import { createHash } from 'node:crypto'
import type { OutboundResponse } from '../../lib/net/outbound.ts'
import { PlaceError } from './place.ts'
import { retried, type S3Body, type S3Client, type S3Parts, textBody } from './s3-client.ts'
import { codeIn, explainAnswer } from './s3-errors.ts'
import { compareEtag, etagIn, etagOfParts, partBytes, partMark } from './s3-etag.ts'
import { encode, textOf } from './s3-xml.ts'

/** Being filled, and being sent. */
const buffersAtOnce = 3
/** As many as S3 takes. */
const mostParts = 10_000
const abortMs = 30_000

interface PartBuffer {
  size: number
  /** Takes as much as fits, and returns how much that is. */
  add(chunk: Uint8Array): number
  close(): S3Body
}

const createPartBuffer = (bytes: Buffer): PartBuffer => {
  const [md5, sha256] = [createHash('md5'), createHash('sha256')]
  return {
    size: 0,
    add(chunk) {
      const piece = chunk.subarray(0, bytes.length - this.size)
      bytes.set(piece, this.size)
      md5.update(piece)
      sha256.update(piece)
      this.size += piece.length
      return piece.length
    },
    close() {
      return { bytes: bytes.subarray(0, this.size), md5: md5.digest(), sha256: sha256.digest('hex') }
    },
  }
}

/** A few buffers, used again and again. */
const createBuffers = () => {
  const free: Buffer[] = []
  let made = 0
  return {
    take(): Buffer | undefined {
      if (free.length === 0 && made < buffersAtOnce) {
        made += 1
        return Buffer.allocUnsafeSlow(partBytes)
      }
      return free.pop()
    },
    give: (buffer: Buffer) => void free.push(buffer),
  }
}

export interface S3Upload {
  /** Waits while the parts in memory are being sent. */
  write(chunk: Uint8Array): Promise<void>
  /** Resolves to its size when the object is there. */
  end(): Promise<number>
  /** After a failure: ends what is being sent, and removes the parts. Never rejects. */
  abort(): Promise<void>
}

interface Target {
  parts: S3Parts
  client: S3Client
  key: string
}

const start = async ({ parts, client, key }: Target, signal: AbortSignal): Promise<string> => {
  // Repeated, it leaves a second upload without parts behind, which `tidy` aborts.
  const request = { method: 'POST', key, query: { uploads: '' }, headers: partMark, signal } as const
  const { body } = await retried(parts, signal, () => client.askOnce(request))
  const id = textOf(body, 'UploadId')
  if (id === undefined || id === '') throw new PlaceError('refused', 'The storage does not begin an upload in parts.')
  return id
}

/** The size and checksum that the storage has for the object; throws if they are not those of what was sent. */
const confirm = async ({ client, key }: Target, bytes: number, etag: string, signal: AbortSignal): Promise<void> => {
  const { headers } = await client.ask({ method: 'HEAD', key, signal })
  compareEtag(headers, etag)
  if (Number(headers['content-length']) !== bytes)
    throw new PlaceError('damaged', 'The storage has another number of bytes than was sent.')
}

const isConfirmed = async (...asked: Parameters<typeof confirm>): Promise<boolean> => {
  try {
    await confirm(...asked)
    return true
  } catch (error) {
    if (error instanceof PlaceError) return false
    throw error
  }
}

interface Sent {
  id: string
  etags: readonly string[]
  bytes: number
  /** That of the whole object. */
  etag: string
}

const complete = async (target: Target, sent: Sent, signal: AbortSignal): Promise<void> => {
  const { parts, client, key } = target
  const list = sent.etags.map(
    (etag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>"${encode(etag)}"</ETag></Part>`,
  )
  const xmlns = 'http://s3.amazonaws.com/doc/2006-03-01/'
  const body = textBody(`<CompleteMultipartUpload xmlns="${xmlns}">${list.join('')}</CompleteMultipartUpload>`)
  const request = { method: 'POST', key, query: { uploadId: sent.id }, body, signal } as const
  await retried(parts, signal, async () => {
    try {
      const answer = await client.askOnce(request)
      // The status is sent before the work is done.
      if (codeIn(answer.body) !== '') throw explainAnswer({ ...answer, status: 500 })
    } catch (error) {
      // The answer may have been lost; then the upload is gone, and the object is there.
      const isDone = error instanceof PlaceError && (await isConfirmed(target, sent.bytes, sent.etag, signal))
      if (!isDone) throw error
    }
  })
}

/** What the storage has wrong is not kept there. */
const orRemoved = async ({ client, key }: Target, work: Promise<unknown>): Promise<void> => {
  try {
    await work
  } catch (error) {
    const limit = AbortSignal.timeout(abortMs)
    if (error instanceof PlaceError && error.code === 'damaged')
      await client.ask({ method: 'DELETE', key, signal: limit }).catch(() => {})
    throw error
  }
}

/** The first failure of a part ends those that are being sent beside it. */
const createSending = (signal: AbortSignal) => {
  const failing = new AbortController()
  const running = new Set<Promise<void>>()
  let failure: { error: unknown } | null = null
  const throwFailure = (): void => {
    if (failure !== null) throw failure.error
  }
  return {
    signal: AbortSignal.any([signal, failing.signal]),
    throwFailure,
    begin(work: Promise<void>): void {
      const watched = work
        .catch((error: unknown) => {
          failure ??= { error }
          failing.abort(error)
        })
        .finally(() => running.delete(watched))
      running.add(watched)
    },
    /** Resolves when one more has ended. */
    async one(): Promise<void> {
      throwFailure()
      await Promise.race(running)
      throwFailure()
    },
    async all(): Promise<void> {
      await Promise.all(running)
      throwFailure()
    },
    async stop(): Promise<void> {
      failing.abort(new Error('the upload has failed'))
      await Promise.all(running)
    },
  }
}

export const createS3Upload = (target: Target, signal: AbortSignal): S3Upload => {
  const { client, key } = target
  const buffers = createBuffers()
  const sending = createSending(signal)
  const md5s: Buffer[] = []
  const etags: string[] = []
  let id: string | undefined
  let memory = buffers.take()!
  let filling = createPartBuffer(memory)
  let bytes = 0

  const sendPart = async (number: number, body: S3Body, used: Buffer): Promise<void> => {
    const md5 = body.md5.toString('hex')
    const query = { partNumber: String(number), uploadId: id! }
    const check = ({ headers }: OutboundResponse): void => compareEtag(headers, md5)
    const { headers } = await client.ask({ method: 'PUT', key, query, body, signal: sending.signal }, check)
    const etag = etagIn(headers)
    if (etag === '') throw new PlaceError('refused', 'The storage does not answer with the ETag of a part.')
    etags[number - 1] = etag
    buffers.give(used)
  }
  const sendFilled = async (): Promise<void> => {
    if (md5s.length === mostParts)
      throw new PlaceError('full', 'It is larger than S3 storages take in one object: 156 GB.')
    id ??= await start(target, sending.signal)
    const body = filling.close()
    md5s.push(body.md5)
    sending.begin(sendPart(md5s.length, body, memory))
  }
  const nextBuffer = async (): Promise<void> => {
    let next = buffers.take()
    while (next === undefined) {
      await sending.one()
      next = buffers.take()
    }
    memory = next
    filling = createPartBuffer(memory)
  }
  const endAtOnce = async (): Promise<void> => {
    const body = filling.close()
    const etag = body.md5.toString('hex')
    await client.ask({ method: 'PUT', key, body, signal }, ({ headers }) => compareEtag(headers, etag))
    await confirm(target, bytes, etag, signal)
  }
  const endParts = async (uploadId: string): Promise<void> => {
    await sendFilled()
    await sending.all()
    const etag = etagOfParts(md5s)
    await complete(target, { id: uploadId, etags, bytes, etag }, signal)
    await confirm(target, bytes, etag, signal)
  }
  return {
    async write(chunk) {
      sending.throwFailure()
      for (let at = 0; at < chunk.length; ) {
        if (filling.size === partBytes) {
          await sendFilled()
          await nextBuffer()
        }
        const taken = filling.add(chunk.subarray(at))
        at += taken
        bytes += taken
      }
    },
    async end() {
      await orRemoved(target, id === undefined ? endAtOnce() : endParts(id))
      return bytes
    },
    async abort() {
      await sending.stop()
      if (id === undefined) return
      const limit = AbortSignal.timeout(abortMs)
      await client.ask({ method: 'DELETE', key, query: { uploadId: id }, signal: limit }).catch(() => {})
    },
  }
}
