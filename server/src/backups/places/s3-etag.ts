/**
 * ETags as checksums. The ETag of an object that was sent at once is its MD5; that of one that was sent in parts is the
 * MD5 of their MD5s, and their number. A storage that encrypts with a key of others has ETags of another form or says so; there
 * only sizes are compared, and what the storage itself checks when it gets a body with its MD5.
 */
import { createHash } from 'node:crypto'
import { PlaceError } from './place.ts'

/** All parts but the last have this size, which some storages require. */
export const partBytes = 16 << 20

/** The header that an upload in parts of this size is marked with: other tools may copy objects in parts of theirs. */
export const partMark = { 'x-amz-meta-slipway-part-bytes': String(partBytes) }

type Headers = Readonly<Record<string, string>>

export const etagIn = (headers: Headers): string => (headers.etag ?? '').replace(/^W\//, '').replaceAll('"', '')

const isEncrypted = (headers: Headers): boolean =>
  (headers['x-amz-server-side-encryption'] ?? '').startsWith('aws:') ||
  headers['x-amz-server-side-encryption-customer-algorithm'] !== undefined

const damaged = (): PlaceError => new PlaceError('damaged', 'The checksum of the storage is not that of what was sent.')

/** Throws for an ETag that is a checksum, and another one than `expected`. */
export const compareEtag = (headers: Headers, expected: string): void => {
  const etag = etagIn(headers)
  if (etag === expected || isEncrypted(headers)) return
  if (/^[0-9a-f]{32}(-\d+)?$/.test(etag) && etag.includes('-') === expected.includes('-')) throw damaged()
}

/** The ETag of an object that was sent in these parts. */
export const etagOfParts = (md5s: readonly Buffer[]): string =>
  `${createHash('md5').update(Buffer.concat(md5s)).digest('hex')}-${md5s.length}`

/** Computes the ETag of an object while it is read. */
export interface EtagCheck {
  update(chunk: Uint8Array): void
  /** Throws if it is another one than the storage says. */
  end(): void
}

const unchecked: EtagCheck = { update() {}, end() {} }

const wholeCheck = (headers: Headers): EtagCheck => {
  const hash = createHash('md5')
  return {
    update: (chunk) => void hash.update(chunk),
    end: () => compareEtag(headers, hash.digest('hex')),
  }
}

const partsCheck = (headers: Headers): EtagCheck => {
  const md5s: Buffer[] = []
  let hash = createHash('md5')
  let size = 0
  const close = (): void => {
    md5s.push(hash.digest())
    hash = createHash('md5')
    size = 0
  }
  return {
    update(chunk) {
      for (let at = 0; at < chunk.length; ) {
        const piece = chunk.subarray(at, at + partBytes - size)
        hash.update(piece)
        at += piece.length
        size += piece.length
        if (size === partBytes) close()
      }
    },
    end() {
      if (size > 0) close()
      compareEtag(headers, etagOfParts(md5s))
    },
  }
}

/** For an object of this size, whose head says this. */
export const etagCheckOf = (headers: Headers, bytes: number): EtagCheck => {
  const [, count] = etagIn(headers).split('-')
  if (count === undefined) return wholeCheck(headers)
  const isOurs = headers[Object.keys(partMark)[0]!] === String(partBytes)
  return isOurs && Number(count) === Math.ceil(bytes / partBytes) ? partsCheck(headers) : unchecked
}
