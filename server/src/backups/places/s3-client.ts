/**
 * Signed requests to one bucket of an S3-compatible storage, through the client for outgoing requests. Nothing of an
 * answer is trusted: it is limited in size, and only the elements that are expected are read.
 */
import { createHash } from 'node:crypto'
import { signAws } from '../../lib/net/aws-signature.ts'
import type { Outbound, OutboundResponse, OutboundStream } from '../../lib/net/outbound.ts'
import type { Secret } from '../../lib/secret.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { PlaceError } from './place.ts'
import { explainAnswer, explainConnection } from './s3-errors.ts'

export interface S3Settings {
  /** An origin: `https://s3.eu-central-1.amazonaws.com`. */
  endpoint: string
  region: string
  bucket: string
  /** Before every name; empty, or ends with a slash. */
  prefix: string
  accessKeyId: string
  secretAccessKey: Secret<string>
  /** Whether the bucket is the first part of the path instead of the first label of the host. */
  isPathStyle: boolean
}

export interface S3Parts {
  outbound: Pick<Outbound, 'request' | 'open'>
  clock: Pick<Clock, 'now' | 'sleep'>
  /** How often a request is tried; default 5. */
  attempts?: number
}

/** Hashed while it is gathered: a part is too large to hash it at once beside other work. */
export interface S3Body {
  bytes: Buffer
  md5: Buffer
  /** In hexadecimal. */
  sha256: string
}

export interface S3Request {
  method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE'
  /** The whole key; none for requests to the bucket. */
  key?: string
  query?: Record<string, string>
  headers?: Record<string, string>
  body?: S3Body
  signal: AbortSignal
}

export interface S3Client {
  /** Resolves to a 2xx answer; tries again, a few times, if the storage is unreachable or got other bytes. */
  ask(request: S3Request, check?: (answer: OutboundResponse) => void): Promise<OutboundResponse>
  /** A request that must not arrive twice. */
  askOnce(request: S3Request): Promise<OutboundResponse>
  /** A long answer; resolves to a 2xx one, whose body must be read or destroyed. */
  open(request: S3Request, maxBytes: number): Promise<OutboundStream>
}

const usualAttempts = 5
/** For one part, so that a line of half a megabit per second is enough. */
const requestTimeoutMs = 5 * 60_000
/** A list has at most a thousand entries of some two kilobytes. */
const mostAnswerBytes = 4 << 20

/** As the signature wants it: everything but letters, digits and `-._~` encoded. */
const encodePath = (path: string): string =>
  path
    .split('/')
    .map((part) =>
      encodeURIComponent(part).replace(/[!'()*]/g, (each) => `%${each.charCodeAt(0).toString(16).toUpperCase()}`),
    )
    .join('/')

export const urlOf = (
  { endpoint, bucket, isPathStyle }: Pick<S3Settings, 'endpoint' | 'bucket' | 'isPathStyle'>,
  { key = '', query = {} }: Pick<S3Request, 'key' | 'query'>,
): URL => {
  const url = new URL(endpoint)
  if (!isPathStyle) url.hostname = `${bucket}.${url.hostname}`
  url.pathname = isPathStyle ? `/${bucket}${key === '' ? '' : `/${encodePath(key)}`}` : `/${encodePath(key)}`
  url.search = new URLSearchParams(query).toString()
  return url
}

const hashed = (algorithm: string, bytes: Buffer): Buffer => createHash(algorithm).update(bytes).digest()

export const textBody = (text: string): S3Body => {
  const bytes = Buffer.from(text)
  return { bytes, md5: hashed('md5', bytes), sha256: hashed('sha256', bytes).toString('hex') }
}

const nothing = textBody('')

/** With the MD5 of a body, by which the storage notices that other bytes arrived. */
const headersOf = ({ region, accessKeyId, secretAccessKey }: S3Settings, request: S3Request, url: URL, now: Date) => {
  const { method, headers = {}, body = nothing } = request
  const all: Record<string, string> = { ...headers, 'x-amz-content-sha256': body.sha256 }
  if (request.body !== undefined) all['content-md5'] = body.md5.toString('base64')
  const keys = { accessKey: accessKeyId, secretKey: secretAccessKey.reveal() }
  return signAws({ method, url, headers: all, body: '', bodyHash: body.sha256, region, service: 's3' }, keys, now)
}

/** The reason of an abort, or an error of a place. */
const explained = async <T>(work: Promise<T>, signal: AbortSignal): Promise<T> => {
  try {
    return await work
  } catch (error) {
    signal.throwIfAborted()
    throw explainConnection(error)
  }
}

const mayPass = (error: unknown): boolean =>
  error instanceof PlaceError && (error.code === 'unreachable' || error.code === 'damaged')

/** Tries again after a second, then after twice as long each time. */
export const retried = async <T>(
  { clock, attempts = usualAttempts }: Pick<S3Parts, 'clock' | 'attempts'>,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> => {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (!mayPass(error) || attempt === attempts) throw error
    }
    await clock.sleep(1000 * 2 ** (attempt - 1), signal)
  }
}

export const createS3Client = (parts: S3Parts, settings: S3Settings): S3Client => {
  const send = async (request: S3Request, isRepeatable: boolean): Promise<OutboundResponse> => {
    const { method, body, signal } = request
    const url = urlOf(settings, request)
    const headers = headersOf(settings, request, url, parts.clock.now())
    const wanted = { method, url, headers, signal, totalTimeoutMs: requestTimeoutMs, maxResponseBytes: mostAnswerBytes }
    const more = { keepAlive: isRepeatable, ...(body === undefined ? {} : { body: body.bytes }) }
    const answer = await explained(parts.outbound.request({ ...wanted, ...more }), signal)
    if (answer.status < 200 || answer.status > 299) throw explainAnswer(answer)
    if (answer.truncated) throw new PlaceError('refused', 'The storage answers with more than such an answer can have.')
    return answer
  }
  return {
    ask: (request, check) =>
      retried(parts, request.signal, async () => {
        const answer = await send(request, true)
        check?.(answer)
        return answer
      }),
    askOnce: (request) => send(request, false),
    async open(request, maxBytes) {
      const { method, signal } = request
      const url = urlOf(settings, request)
      const headers = headersOf(settings, request, url, parts.clock.now())
      const answer = await explained(parts.outbound.open({ method, url, headers, signal, maxBytes }), signal)
      if (answer.status >= 200 && answer.status <= 299) return answer
      throw explainAnswer({ status: answer.status, body: await startOf(answer.body) })
    },
  }
}

/** The beginning of an answer that says what is wrong; empty if it does not arrive. */
const startOf = async (body: AsyncIterable<Buffer>): Promise<string> => {
  let text = ''
  try {
    for await (const chunk of body) {
      text += chunk.toString()
      if (text.length > 4096) break
    }
  } catch {
    // The status says enough.
  }
  return text
}
