/**
 * A service that speaks HTTP/1.1, asked over HTTP/2: a stream as the request and the response that the exchange knows.
 * Whatever HTTP/1.1 could be made to read differently is refused by HTTP/2's own rules before it gets here; lengths are
 * checked by both sides.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http'
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import type { Traffic } from '../table/traffic.ts'
import type { StreamRequest } from './http2-headers.ts'
import { forward } from './proxy.ts'

const { NGHTTP2_NO_ERROR, NGHTTP2_INTERNAL_ERROR } = constants

/** Belongs to a connection of HTTP/1.1. */
const dropped = new Set([
  'connection',
  'host',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
])

/** As they were received, with one `host` and one `cookie`, which HTTP/2 may have cut in pieces. */
const rawHeadersOf = (
  received: readonly string[],
  { authority }: StreamRequest,
  cookie: string | undefined,
): string[] => {
  const raw = ['host', authority]
  for (let index = 0; index < received.length; index += 2) {
    const name = received[index]!
    if (!name.startsWith(':') && name !== 'host' && name !== 'cookie') raw.push(name, received[index + 1]!)
  }
  if (cookie !== undefined) raw.push('cookie', cookie)
  return raw
}

const headersOf = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, { authority }: StreamRequest) => {
  const named = Object.entries(headers).filter(([name]) => !name.startsWith(':'))
  const isOpenEnded = !stream.endAfterHeaders && headers['content-length'] === undefined
  return {
    ...Object.fromEntries(named),
    host: authority,
    // The target has to be told where a body of unknown length ends.
    ...(isOpenEnded ? { 'transfer-encoding': 'chunked' } : {}),
  }
}

const requestOf = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  received: readonly string[],
  request: StreamRequest,
): IncomingMessage => {
  const face = {
    method: request.method,
    url: request.path,
    httpVersion: '2.0',
    headers: headersOf(stream, headers, request),
    rawHeaders: rawHeadersOf(received, request, headers.cookie),
    socket: { remoteAddress: stream.session?.socket?.remoteAddress, encrypted: true, setTimeout() {} },
    get complete() {
      return stream.endAfterHeaders || stream.readableEnded
    },
    on(name: string, listener: (...values: unknown[]) => void) {
      // An empty body ends by itself, perhaps before a target has asked for it.
      if (name === 'end' && stream.readableEnded) process.nextTick(listener)
      else stream.on(name, listener)
      return face
    },
    off(name: string, listener: (...values: unknown[]) => void) {
      stream.off(name, listener)
      return face
    },
    pause: () => stream.pause(),
    resume: () => stream.resume(),
  }
  return face as unknown as IncomingMessage
}

/** Of a flat list: names that occur again become lists. */
const grouped = (status: number, flat: readonly string[]): OutgoingHttpHeaders => {
  const headers: OutgoingHttpHeaders = { ':status': status }
  for (let index = 0; index < flat.length; index += 2) {
    const name = flat[index]!.toLowerCase()
    if (dropped.has(name)) continue
    const before = headers[name]
    const value = flat[index + 1]!
    headers[name] = before === undefined ? value : [before, value].flat().map(String)
  }
  return headers
}

class StreamResponse {
  shouldKeepAlive = false
  private readonly stream: ServerHttp2Stream
  private readonly added: readonly string[]
  private trailers: OutgoingHttpHeaders = {}

  constructor(stream: ServerHttp2Stream, added: readonly string[]) {
    this.stream = stream
    this.added = added
    stream.on('wantTrailers', () => {
      if (!stream.destroyed && !stream.closed) stream.sendTrailers(this.trailers)
    })
  }

  get headersSent(): boolean {
    return this.stream.headersSent
  }
  get destroyed(): boolean {
    return this.stream.destroyed
  }
  get writableEnded(): boolean {
    return this.stream.writableEnded
  }
  get writableNeedDrain(): boolean {
    return this.stream.writableNeedDrain
  }
  on(name: string, listener: () => void): this {
    this.stream.on(name, listener)
    return this
  }
  once(name: string, listener: () => void): this {
    this.stream.once(name, listener)
    return this
  }

  /** With a reason phrase, which HTTP/2 does not have, or without. */
  writeHead(status: number, ...rest: (string | string[])[]): this {
    const { stream } = this
    if (stream.destroyed || stream.closed) return this
    const headers = grouped(status, [...((rest.at(-1) ?? []) as string[])])
    for (let index = 0; index < this.added.length; index += 2) headers[this.added[index]!] ??= this.added[index + 1]!
    try {
      stream.respond(headers, { waitForTrailers: true })
    } catch {
      // What HTTP/1.1 lets pass: a status or a header that does not exist here.
      stream.close(NGHTTP2_INTERNAL_ERROR)
    }
    return this
  }
  flushHeaders(): void {}
  writeContinue(): void {
    this.inform({ ':status': 100 })
  }
  writeEarlyHints({ link }: { link: string | string[] }): void {
    this.inform({ ':status': 103, link })
  }
  private inform(headers: OutgoingHttpHeaders): void {
    const { stream } = this
    if (!stream.destroyed && !stream.closed && !stream.headersSent) stream.additionalHeaders(headers)
  }
  addTrailers(pairs: readonly (readonly [string, string])[]): void {
    this.trailers = Object.fromEntries(pairs.map(([name, value]) => [name.toLowerCase(), value]))
  }
  write(chunk: Buffer): boolean {
    return this.stream.writableEnded || this.stream.destroyed ? true : this.stream.write(chunk)
  }
  end(body?: string): this {
    const { stream } = this
    if (!stream.writableEnded && !stream.destroyed) stream.end(body)
    this.leaveUnread()
    return this
  }
  /** The client is told to stop sending, once it has the response. */
  private leaveUnread(): void {
    const { stream } = this
    if (stream.endAfterHeaders || stream.readableEnded || stream.closed) return
    const close = (): void => {
      if (!stream.readableEnded && !stream.closed) stream.close(NGHTTP2_NO_ERROR)
    }
    if (stream.writableFinished) setImmediate(close)
    else stream.once('finish', () => setImmediate(close))
  }
  destroy(): void {
    if (!this.stream.closed) this.stream.close(NGHTTP2_INTERNAL_ERROR)
  }
}

/** `received`: the headers of the request in their order; `added`: what every response has, unless it says it itself. */
export const forwardAsHttp1 = (
  traffic: Traffic,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  received: readonly string[],
  request: StreamRequest,
  added: readonly string[],
): void => {
  const req = requestOf(stream, headers, received, request)
  const res = new StreamResponse(stream, added) as unknown as ServerResponse
  const { host, path } = request
  forward(traffic, {
    req,
    res,
    host,
    path,
    expectsContinue: headers.expect === '100-continue',
    session: stream.session,
  })
}
