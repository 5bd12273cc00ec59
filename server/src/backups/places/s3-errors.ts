/** What an S3 storage says when it does not do what it was asked, as the error of a place. Pure. */
import { OutboundFailed, OutboundRefused } from '../../lib/net/outbound.ts'
import { PlaceError, type PlaceProblem } from './place.ts'
import { textOf } from './s3-xml.ts'

const wrongKey = 'The storage refuses the access key: check the access key id and the secret access key.'
const notAllowed = 'The storage does not let this access key do that: it must read, write, list and delete objects.'
const wrongRegion = 'The bucket is in another region, or at another endpoint.'
const changed = 'The storage got other bytes than were sent.'
const noRoom = 'The storage is full, or its quota is used up.'

const known: Readonly<Record<string, readonly [PlaceProblem, string]>> = {
  NoSuchKey: ['missing', 'The stored object is not in the bucket.'],
  NoSuchBucket: ['refused', 'The storage has no bucket of this name.'],
  InvalidBucketName: ['refused', 'The storage has no bucket of this name.'],
  InvalidAccessKeyId: ['refused', wrongKey],
  SignatureDoesNotMatch: ['refused', wrongKey],
  AccessDenied: ['refused', notAllowed],
  AllAccessDisabled: ['refused', notAllowed],
  AccountProblem: ['refused', notAllowed],
  InvalidObjectState: ['refused', 'The storage has archived the object: restore it there first.'],
  RequestTimeTooSkewed: ['refused', 'The clock of this server differs too much from that of the storage.'],
  PermanentRedirect: ['refused', wrongRegion],
  TemporaryRedirect: ['refused', wrongRegion],
  AuthorizationHeaderMalformed: ['refused', wrongRegion],
  NoSuchUpload: ['refused', 'The storage has forgotten the upload before it was complete.'],
  PreconditionFailed: ['damaged', 'The stored object was replaced while it was read.'],
  BadDigest: ['damaged', changed],
  InvalidDigest: ['damaged', changed],
  XAmzContentSHA256Mismatch: ['damaged', changed],
  IncompleteBody: ['unreachable', 'The connection to the storage broke.'],
  RequestTimeout: ['unreachable', 'The connection to the storage broke.'],
  QuotaExceeded: ['full', noRoom],
  InsufficientStorage: ['full', noRoom],
  XMinioStorageFull: ['full', noRoom],
  XMinioAdminBucketQuotaExceeded: ['full', noRoom],
  EntityTooLarge: ['full', 'The storage does not take an object of this size.'],
}

/** The word for what went wrong; the answer to a HEAD has none. */
export const codeIn = (body: string): string => {
  const code = body.includes('<Error>') ? (textOf(body, 'Code') ?? '') : ''
  return /^\w{1,60}$/.test(code) ? code : ''
}

export const explainAnswer = ({ status, body }: { status: number; body: string }): PlaceError => {
  const code = codeIn(body)
  if (Object.hasOwn(known, code)) return new PlaceError(...known[code]!)
  const said = code === '' ? `status ${status}` : `status ${status}, ${code}`
  if (status === 404) return new PlaceError(...known.NoSuchKey!)
  if (status === 401 || status === 403) return new PlaceError('refused', notAllowed)
  if (status === 507) return new PlaceError('full', noRoom)
  if (status >= 500 || status === 429 || status === 408)
    return new PlaceError('unreachable', `The storage has a problem at the moment (${said}).`)
  if (status >= 300 && status < 400) return new PlaceError('refused', wrongRegion)
  return new PlaceError('refused', `The storage refuses the request (${said}).`)
}

/** Errors of the connection; all others stay as they are. */
export const explainConnection = (error: unknown): unknown => {
  if (error instanceof OutboundRefused)
    return new PlaceError('refused', `The storage cannot be reached: ${error.message}.`, error)
  if (error instanceof OutboundFailed && error.code === 'too_large')
    return new PlaceError('damaged', 'The storage sends more than is stored.', error)
  if (error instanceof OutboundFailed)
    return new PlaceError('unreachable', `The storage does not answer: ${error.message}.`, error)
  return error
}
