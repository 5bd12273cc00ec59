/**
 * Forwards an HTTP/2 stream to a service that speaks HTTP/1.1: the stream as the request and the response that the
 * exchange handles. Anything that HTTP/1.1 could read in two ways is refused by HTTP/2's own rules before it gets
 * here, and once more as the request is written; lengths are checked by both sides.
 */
import { type IncomingHttpHeaders, METHODS } from 'node:http'
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2'
import { words } from '../../lib/words.ts'
import type { Rules } from '../access/rules.ts'
import { forwardedHeaders, passedToTarget } from '../exchange/headers.ts'
import { type PageName, renderPage } from '../exchange/pages.ts'
import { allowStreamSilence } from '../exchange/silence.ts'
import { lengthOf } from '../http1/head.ts'
import { linesOf } from '../http1/header-lists.ts'
import type { Answerer, Inbound, RequestSink } from '../http1/inbound.ts'
import { framingOf } from '../http1/request-head.ts'
import type { ResponseHead } from '../http1/response-head.ts'
import { isHeaderName } from '../policy.ts'
import { plainAddress } from '../sources.ts'
import type { Traffic } from '../traffic/traffic.ts'
import type { StreamRequest } from './http2-headers.ts'
import { forward } from './proxy.ts'

const { NGHTTP2_NO_ERROR, NGHTTP2_INTERNAL_ERROR } = constants

/** Belongs to a connection of HTTP/1.1. */
const dropped = new Set<string>(
  words('connection host http2-settings keep-alive proxy-connection te transfer-encoding upgrade'),
)

const isLength = (text: string): boolean => lengthOf(text) >= 0
const methods: ReadonlySet<string> = new Set(METHODS)
const target = /^\/[!"$-~\x80-\xff]*$/
const value = /^[\t\x20-\x7e\x80-\xff]*$/

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

/** Whether these form one request of HTTP/1.1, with no other meaning. */
const isPlain = ({ method, path }: StreamRequest, raw: readonly string[]): boolean => {
  const isGood = raw.every((word, index) => (index % 2 === 0 ? isHeaderName(word) : value.test(word)))
  const lengths = raw.filter((_, index) => index % 2 === 1 && raw[index - 1] === 'content-length')
  return isGood && methods.has(method) && target.test(path) && lengths.length <= 1 && lengths.every(isLength)
}

/** From a flat list: repeated names become lists. */
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

interface Parts {
  traffic: Traffic
  stream: ServerHttp2Stream
  headers: IncomingHttpHeaders
  raw: readonly string[]
  request: StreamRequest
  /** The headers of every response that does not have its own. */
  added: readonly string[]
  /** Sets the party whose share the stream takes. */
  belongTo: (party: string) => void
}

class StreamInbound implements Inbound {
  readonly method: string
  readonly host: string
  readonly path: string
  readonly headers: IncomingHttpHeaders
  readonly peer: string
  readonly isEncrypted = true
  readonly bodyLength: number
  readonly expectsContinue: boolean
  receivedBytes = 0
  private readonly parts: Parts
  private readonly stream: ServerHttp2Stream
  private answerer: Answerer | null = null
  private sink: RequestSink | null = null
  private trailers: OutgoingHttpHeaders = {}

  constructor(parts: Parts) {
    const { stream, headers, request } = parts
    this.parts = parts
    this.stream = stream
    this.method = request.method
    this.host = request.host
    this.path = request.path
    this.headers = { ...headers, host: request.authority }
    this.peer = plainAddress(stream.session?.socket?.remoteAddress)
    const said = headers['content-length']
    this.bodyLength = said !== undefined ? Number(said) : stream.endAfterHeaders ? 0 : -1
    this.expectsContinue = headers.expect === '100-continue'
    stream
      .on('wantTrailers', () => {
        if (!stream.destroyed && !stream.closed) stream.sendTrailers(this.trailers)
      })
      .on('drain', () => this.answerer?.onClientDrain())
      .once('close', () => {
        this.sink = null
        this.answerer?.onClientGone()
      })
  }

  get headBytes(): number {
    return this.parts.raw.join('').length
  }
  get isHeadSent(): boolean {
    return this.stream.headersSent
  }

  headForTarget(path: string): string {
    const { raw, traffic, request } = this.parts
    const forwarded = forwardedHeaders(this, request.authority, traffic.isTrusted)
    const lines = linesOf([...['connection', 'keep-alive'], ...passedToTarget(raw, undefined), ...forwarded])
    const framing = this.headers['content-length'] === undefined ? framingOf(this.method, this.bodyLength) : ''
    return `${this.method} ${path} HTTP/1.1\r\n${lines}${framing}\r\n`
  }

  belongTo(party: string): void {
    this.parts.belongTo(party)
  }

  answerBy(answerer: Answerer): void {
    this.answerer = answerer
  }

  allowSilence(ms: number): void {
    allowStreamSilence(this.stream.session, ms)
  }

  takeBody(sink: RequestSink): void {
    this.sink = sink
    const { stream } = this
    stream.on('data', (bytes: Buffer) => this.onData(bytes))
    // An empty body ends by itself, perhaps before a target has asked for it.
    if (stream.readableEnded) process.nextTick(() => this.onEnd())
    else stream.once('end', () => this.onEnd())
    sink.onBodyTurn()
  }

  private onData(bytes: Buffer): void {
    const { sink, bodyLength } = this
    this.receivedBytes += bytes.length
    if (sink === null || bytes.length === 0) return
    // The end of a body of unknown length must be marked for the target.
    if (bodyLength < 0) sink.onBodyText(`${bytes.length.toString(16)}\r\n`)
    sink.onBody(bytes, 0, bytes.length)
    if (bodyLength < 0) sink.onBodyText('\r\n')
    sink.onBodyTurn()
  }

  private onEnd() {
    const { sink, bodyLength, receivedBytes } = this
    this.sink = null
    if (sink === null) return
    if (bodyLength < 0) sink.onBodyText('0\r\n\r\n')
    else if (bodyLength !== receivedBytes) return this.breakOff()
    sink.onBodyEnd()
  }

  pauseBody(): void {
    this.stream.pause()
  }
  resumeBody(): void {
    this.stream.resume()
  }
  leaveBody(): void {
    this.sink = null
    this.stream.resume()
  }

  sendContinue(): void {
    this.inform({ ':status': 100 })
  }
  sendHints(links: readonly string[]): void {
    this.inform({ ':status': 103, link: [...links] })
  }
  private inform(headers: OutgoingHttpHeaders): void {
    const { stream } = this
    if (!stream.destroyed && !stream.closed && !stream.headersSent) stream.additionalHeaders(headers)
  }

  respond(head: ResponseHead, passed: string[] | null, _rules: Rules): boolean {
    this.sendHead(head.status, passed ?? head.passed)
    return false
  }

  private sendHead(status: number, flat: readonly string[]): void {
    const { stream } = this
    if (stream.destroyed || stream.closed) return
    const { added } = this.parts
    const headers = grouped(status, flat)
    for (let index = 0; index < added.length; index += 2) headers[added[index]!] ??= added[index + 1]!
    try {
      stream.respond(headers, { waitForTrailers: true })
    } catch {
      // A status or a header that HTTP/1.1 accepts and HTTP/2 does not have.
      stream.close(NGHTTP2_INTERNAL_ERROR)
    }
  }

  pass(bytes: Buffer, from: number, to: number): void {
    const { stream } = this
    if (!stream.writableEnded && !stream.destroyed) stream.write(Buffer.from(bytes.subarray(from, to)))
  }
  flush(): boolean {
    return this.stream.destroyed || !this.stream.writableNeedDrain
  }

  end(trailers: readonly string[]): void {
    const { stream } = this
    for (let index = 0; index < trailers.length; index += 2) {
      const name = trailers[index]!.toLowerCase()
      // Sending one of these throws, and the stream would never end.
      if (!dropped.has(name)) this.trailers[name] = trailers[index + 1]
    }
    if (!stream.writableEnded && !stream.destroyed) stream.end()
    this.leaveUnread()
  }
  /** Asks the client to stop sending, once it has the response. */
  private leaveUnread(): void {
    const { stream } = this
    if (stream.endAfterHeaders || stream.readableEnded || stream.closed) return
    const close = (): void => {
      if (!stream.readableEnded && !stream.closed) stream.close(NGHTTP2_NO_ERROR)
    }
    if (stream.writableFinished) setImmediate(close)
    else stream.once('finish', () => setImmediate(close))
  }

  breakOff(): void {
    if (!this.stream.closed) this.stream.close(NGHTTP2_INTERNAL_ERROR)
  }

  sendPage(name: PageName, added: readonly string[], why?: string): void {
    const { status, headers, body } = renderPage(name, this.host, this.headers.accept, why)
    this.sendPlain(status, [...headers, ...added], body)
  }

  sendPlain(status: number, headers: readonly string[], body: string): void {
    const { stream } = this
    this.sink = null
    this.sendHead(status, headers)
    if (this.method !== 'HEAD' && body !== '' && !stream.writableEnded && !stream.destroyed) stream.write(body)
    this.end([])
  }
}

/**
 * `received`: the headers of the request in their order; `added`: the headers of every response that does not have its
 * own.
 */
export const forwardAsHttp1 = (
  traffic: Traffic,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  received: readonly string[],
  request: StreamRequest,
  added: readonly string[],
  belongTo: Parts['belongTo'],
): void => {
  const raw = rawHeadersOf(received, request, headers.cookie)
  const inbound = new StreamInbound({ traffic, stream, headers, raw, request, added, belongTo })
  if (isPlain(request, raw)) forward(traffic, inbound)
  else inbound.sendPage('malformed', [])
}
