/**
 * A registry on loopback that the engine pulls from. Promises to answer only for tickets: a name of 128 random bits for
 * one pull, invalid when the pull ends; for each it serves the manifest that we fetched, and its blobs, fetched by our
 * own client as the engine reads them. Stores no bytes. Knows no registries, logins or organizations.
 */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { RegistryError, refuseStatus } from '../lib/docker/registry-session.ts'
import { OutboundFailed } from '../lib/net/outbound.ts'
import type { OutboundStream } from '../lib/net/outbound-stream.ts'
import { type Blobs, ImageRefused, type Manifest } from './manifest.ts'

export interface Offer {
  manifest: Manifest
  blobs: Blobs
  open(digest: string, from: number, signal: AbortSignal): Promise<OutboundStream>
}

export interface Ticket {
  /** `127.0.0.1:port/…`: the address that the engine pulls. */
  repository: string
  /** Fires with the upstream failure if the engine need not retry. */
  failed: AbortSignal
  /** Whether it was requested at all. */
  wasAsked(): boolean
  /** The blobs that the engine got completely and whose digests match. */
  served: ReadonlySet<string>
  end(): void
}

export interface PullThrough {
  /** `127.0.0.1:port` */
  address: string
  /** Part of the temporary names on the engine, to find those of a process that died. */
  mark: string
  offer(offer: Offer): Ticket
  close(): Promise<void>
}

interface Open extends Offer {
  control: AbortController
  asked: boolean
  served: Set<string>
  /** Blobs in progress. */
  streams: number
  failures: number
}

/** More than any engine fetches at once. */
const maxStreams = 32
/** The engine retries by itself, with increasing pauses. */
const maxFailures = 3

const refuse = (response: ServerResponse, status: number, code: string): void => {
  if (response.headersSent) return void response.destroy()
  const body = JSON.stringify({ errors: [{ code, message: 'not here' }] })
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length }).end(body)
}

const notHere = (response: ServerResponse, code = 'BLOB_UNKNOWN'): void => refuse(response, 404, code)

/** The first requested byte: 0 for everything, null for an unsupported range or one beyond the end. */
export const rangeStart = (header: string | undefined, size: number): number | null => {
  if (header === undefined) return 0
  const [, first, last] = /^bytes=(\d{1,15})-(\d{1,15})?$/.exec(header) ?? []
  if (first === undefined || Number(first) >= size) return null
  return last === undefined || Number(last) === size - 1 ? Number(first) : null
}

const sendManifest = ({ manifest }: Open, method: string, digest: string, response: ServerResponse): void => {
  if (digest !== manifest.digest) {
    notHere(response, 'MANIFEST_UNKNOWN')
    return
  }
  response.writeHead(200, {
    'content-type': manifest.mediaType,
    'content-length': manifest.bytes.length,
    'docker-content-digest': digest,
  })
  response.end(method === 'HEAD' ? undefined : manifest.bytes)
}

const headBlob = (response: ServerResponse, digest: string, size: number, from: number): void => {
  response.writeHead(from === 0 ? 200 : 206, {
    'content-type': 'application/octet-stream',
    'content-length': size - from,
    'docker-content-digest': digest,
    'accept-ranges': 'bytes',
    ...(from === 0 ? {} : { 'content-range': `bytes ${from}-${size - 1}/${size}` }),
  })
}

const wrong = (what: string) => new ImageRefused('image_refused', `its registry sent ${what}`)

/** Where the response begins: a registry may send everything though less was requested. */
const startOf = (answer: OutboundStream, from: number): number => {
  const { status, headers } = answer
  refuseStatus(answer)
  if (status !== 206) return 0
  if (!(headers['content-range'] ?? '').startsWith(`bytes ${from}-`))
    throw wrong('a different part of a layer than requested')
  return from
}

/** Exactly so many bytes, or an error; `onEnd` gets their digest. */
const exactly = (bytes: number, onEnd: (digest: string) => void) =>
  async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    const hash = createHash('sha256')
    let left = bytes
    for await (const chunk of source) {
      left -= chunk.length
      if (left < 0) throw wrong('more than its manifest says')
      hash.update(chunk)
      if (left === 0) onEnd(`sha256:${hash.digest('hex')}`)
      yield chunk
    }
    if (left > 0) throw wrong('less than its manifest says')
  }

const streamBlob = async (open: Open, digest: string, asked: number, response: ServerResponse): Promise<void> => {
  const size = open.blobs.get(digest)!
  const left = new AbortController()
  response.once('close', () => left.abort(new Error('the engine disconnected')))
  const signal = AbortSignal.any([left.signal, open.control.signal])
  try {
    const upstream = await open.open(digest, asked, signal)
    try {
      const from = startOf(upstream, asked)
      headBlob(response, digest, size, from)
      const note = (read: string) => void (read === digest && open.served.add(digest))
      await pipeline(upstream.body, exactly(size - from, note), response, { signal })
    } finally {
      upstream.body.destroy()
    }
  } catch (error) {
    if (!isEndOfEngine(error)) fail(open, error)
    refuse(response, 503, 'UNAVAILABLE')
  }
}

/** It is not the registry's fault if the engine disconnects. */
const isEndOfEngine = (error: unknown): boolean => {
  const { name, code } = error as { name?: string; code?: string }
  return name === 'AbortError' || code === 'ERR_STREAM_PREMATURE_CLOSE' || code === 'aborted'
}

/** Transient failures are retried; others end the pull with their reason. */
const fail = (open: Open, error: unknown): void => {
  const passing =
    (error instanceof OutboundFailed && error.code === 'connection') ||
    (error instanceof RegistryError && error.code === 'failed')
  open.failures += 1
  if (!passing || open.failures >= maxFailures) open.control.abort(error)
}

const answerBlob = (open: Open, request: IncomingMessage, digest: string, response: ServerResponse): unknown => {
  const size = open.blobs.get(digest)
  if (size === undefined) return notHere(response)
  const from = rangeStart(request.headers.range, size)
  if (from === null) return refuse(response, 416, 'RANGE_INVALID')
  if (request.method === 'HEAD') {
    headBlob(response, digest, size, from)
    return response.end()
  }
  if (open.streams >= maxStreams) return refuse(response, 503, 'UNAVAILABLE')
  open.streams += 1
  return streamBlob(open, digest, from, response).finally(() => {
    open.streams -= 1
  })
}

/** Only these three kinds of requests exist; any other path is unknown. */
const pathPattern = /^\/v2\/([0-9a-z-]+\/[0-9a-f]{32})\/(manifests|blobs)\/(sha256:[0-9a-f]{64})$/

const answer = (offers: ReadonlyMap<string, Open>, request: IncomingMessage, response: ServerResponse): unknown => {
  const { method = '', url = '' } = request
  response.setHeader('docker-distribution-api-version', 'registry/2.0')
  if (method !== 'GET' && method !== 'HEAD') return refuse(response, 405, 'UNSUPPORTED')
  if (url === '/v2/') return response.writeHead(200, { 'content-type': 'application/json' }).end('{}')
  const [, name = '', what, digest = ''] = pathPattern.exec(url) ?? []
  const open = offers.get(name)
  if (open === undefined || open.control.signal.aborted) return notHere(response, 'NAME_UNKNOWN')
  open.asked = true
  return what === 'manifests'
    ? sendManifest(open, method, digest, response)
    : answerBlob(open, request, digest, response)
}

const listen = async (server: Server): Promise<string> => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

export const startPullThrough = async (mark: string): Promise<PullThrough> => {
  const offers = new Map<string, Open>()
  const server = createServer((request, response) => {
    response.on('error', () => {})
    answer(offers, request, response)
  })
  const address = await listen(server)
  server.unref()
  return {
    address,
    mark,
    offer(offer) {
      const name = `${mark}/${randomBytes(16).toString('hex')}`
      const open: Open = {
        ...offer,
        control: new AbortController(),
        asked: false,
        served: new Set(),
        streams: 0,
        failures: 0,
      }
      offers.set(name, open)
      return {
        repository: `${address}/${name}`,
        failed: open.control.signal,
        wasAsked: () => open.asked,
        served: open.served,
        end() {
          offers.delete(name)
          open.control.abort(new Error('the pull is over'))
        },
      }
    },
    async close() {
      for (const open of offers.values()) open.control.abort(new Error('the server is stopping'))
      offers.clear()
      server.close()
      server.closeAllConnections()
    },
  }
}
