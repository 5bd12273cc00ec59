/** One HTTP/2 stream of a client joined to one of a target, in both directions until both have ended. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2'
import type { Rules } from '../access/rules.ts'
import { type PageName, renderPage } from '../exchange/pages.ts'
import { allowStreamSilence } from '../exchange/silence.ts'
import { type Place, parkedBytes } from '../parked/parked.ts'
import { partyOf } from '../router.ts'
import { rewritten } from '../table/paths.ts'
import { hstsHeader, isEncrypted } from '../tls/secure.ts'
import type { HostEntry } from '../traffic/live-table.ts'
import { absence, checkPresence } from '../traffic/presence.ts'
import { attemptPausesMs, findServing, type Traffic } from '../traffic/traffic.ts'
import { markSuspect, type Upstream } from '../traffic/upstreams.ts'
import { type Admission, addedHeaders, admit, pickFor } from './admission.ts'
import { grpcAnswer, grpcTrailers, isGrpc } from './grpc-status.ts'
import { forwardAsHttp1 } from './http1-over-2.ts'
import {
  dressedStream,
  readStreamRequest,
  type StreamRequest,
  streamHeadersForClient,
  streamHeadersForTarget,
} from './http2-headers.ts'
import { Timer } from './timer.ts'
import { judgeTls } from './tls-guard.ts'

const { NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_REFUSED_STREAM } = constants
const { NGHTTP2_FLAG_END_STREAM } = constants

const ignore = (): void => {}

/** Responds in the client's own terms: a gRPC status, or a page. */
const sendStreamPage = (
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  name: PageName,
  host: string,
  added: readonly string[] = [],
): void => {
  if (stream.destroyed || stream.headersSent) return
  if (isGrpc(headers)) stream.respond(dressedStream(grpcAnswer(name, host), added), { endStream: true })
  else {
    const page = renderPage(name, host, headers.accept)
    stream.respond(dressedStream({ ':status': page.status }, [...page.headers, ...added]))
    stream.end(headers[':method'] === 'HEAD' ? undefined : page.body)
  }
  closeUnread(stream)
}

/**
 * Asks a client that is still sending to stop. The response is sent first. A stream does not end until everything
 * received is read, so we read it.
 */
const closeUnread = (stream: ServerHttp2Stream): void => {
  stream.resume()
  if (stream.readableEnded || stream.closed) return
  if (stream.writableFinished) stream.close(NGHTTP2_NO_ERROR)
  else stream.once('finish', () => setImmediate(() => stream.closed || stream.close(NGHTTP2_NO_ERROR)))
}

class StreamExchange {
  private readonly traffic: Traffic
  private readonly client: ServerHttp2Stream
  private readonly headers: IncomingHttpHeaders
  private readonly request: StreamRequest
  private readonly belongTo: (party: string) => void
  private readonly tried = new Set<Upstream>()
  private attempts = 0
  private far: ClientHttp2Stream | undefined
  private trailers: OutgoingHttpHeaders = {}
  private entry: HostEntry | undefined
  /** Passing these rules is not passing others. */
  private admittedBy: Rules | undefined
  private place: Place | null = null
  /** The router answers it, whatever the target sends. */
  private isLate = false
  private readonly whole = new Timer()
  private readonly unread = new Timer()

  constructor(
    traffic: Traffic,
    client: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    request: StreamRequest,
    belongTo: (party: string) => void,
  ) {
    this.traffic = traffic
    this.client = client
    this.headers = headers
    this.request = request
    this.belongTo = belongTo
    client.on('wantTrailers', () => this.sendTrailers())
    client.once('close', () => this.leave())
  }

  private leave(): void {
    const { far, client } = this
    this.place?.leave()
    this.whole.clear()
    this.unread.clear()
    far?.close(client.rstCode === NGHTTP2_NO_ERROR ? NGHTTP2_CANCEL : client.rstCode)
    // If the target has ended it while bytes from us are still unsent, it is closed but never ends by itself.
    setImmediate(() => far?.destroy())
  }

  attempt() {
    const { client } = this
    if (client.destroyed || this.isLate) return
    const entry = findServing(this.traffic, this.request.host, this.request.path, 'GRPC')
    if (typeof entry === 'string') return this.answer(entry)
    this.entry = entry
    this.belongTo(partyOf(entry.route))
    if (client.closed) return
    if (this.admittedBy !== entry.rules && !this.isLetIn(entry.rules)) return
    if (entry.route.state === 'asleep') return this.park(entry)
    const upstream = pickFor(entry, undefined, this.tried)
    if (upstream === undefined) return this.answer('idle')
    this.attempts++
    if (upstream.isAbsent) return this.repeat(upstream, absence())
    this.traffic.upstreams.begin(upstream)
    void this.open(upstream)
  }

  /** False: it has been answered, or will be attempted once that is known. */
  private isLetIn(rules: Rules): boolean {
    const { client, headers, traffic } = this
    // Its time began with its arrival, whatever has changed since.
    if (this.admittedBy === undefined) {
      this.whole.set(rules.requestMs, () => this.onLate())
      allowStreamSilence(client.session, rules.grpcSilenceMs)
    }
    this.admittedBy = rules
    if (rules.isPlain) return true
    const asker = { peer: client.session?.socket?.remoteAddress, method: this.request.method, headers }
    const admission = admit(rules, asker, traffic.isTrusted)
    if (admission instanceof Promise) void admission.then((settled) => this.onAdmission(settled) && this.attempt())
    return !(admission instanceof Promise) && this.onAdmission(admission)
  }

  /** It waits, with its frames unread, until its service runs. */
  private park({ route }: HostEntry): void {
    const { client, headers } = this
    this.place?.leave()
    const said = Object.entries(headers).flat().join('').length
    const bytes = parkedBytes(said, client.endAfterHeaders ? 0 : Number(headers['content-length'] ?? -1) || 0)
    const waiting = { resume: () => this.attempt(), refuse: (page: PageName) => this.answer(page) }
    this.place = this.traffic.parked.take(route.serviceId, bytes, waiting, partyOf(route))
    if (this.place === null) this.answer('crowded')
  }

  private onAdmission(admission: Admission): boolean {
    if (admission === 'pass') return true
    if (admission !== 'preflight') this.answer(admission)
    else if (!this.client.destroyed)
      this.client.respond(dressedStream({ ':status': 204 }, this.added()), { endStream: true })
    return false
  }

  private added(): string[] {
    return addedHeaders(this.entry, this.headers.origin)
  }

  private async open(upstream: Upstream) {
    const { client, headers, request, traffic } = this
    const address = client.session?.socket?.remoteAddress
    const path = rewritten(request.path, this.entry!.route)
    const scheme = isEncrypted(client.session?.socket) ? 'https' : 'http'
    const passed = streamHeadersForTarget(headers, { ...request, path }, address, traffic.isTrusted, scheme)
    try {
      this.carry(upstream, await upstream.sessions.open(passed, client.endAfterHeaders))
    } catch (error) {
      traffic.upstreams.end(upstream)
      // Headers that may be received but not sent.
      if (error instanceof TypeError) return this.answer('malformed')
      markSuspect(upstream)
      this.repeat(upstream, error as Error)
    }
  }

  private carry(upstream: Upstream, far: ClientHttp2Stream): void {
    const { client, traffic } = this
    const session = far.session as ClientHttp2Session
    this.far = far
    far.on('error', ignore)
    far.once('close', () => {
      traffic.upstreams.end(upstream)
      this.onFarClose(upstream, far, session)
    })
    far.once('response', (headers, flags) => {
      upstream.heardAt = performance.now()
      this.place?.leave()
      this.onResponse(far, headers, flags)
    })
    far.once('trailers', (trailers) => {
      this.trailers = streamHeadersForClient(trailers)
    })
    this.watchSilence(far)
    if (client.destroyed || this.isLate) far.close(NGHTTP2_CANCEL)
    else if (!client.endAfterHeaders) client.pipe(far)
  }

  /** A stream ends if nothing moves in it for so long, or if its target leaves bytes unread. */
  private watchSilence(far: ClientHttp2Stream): void {
    const { client } = this
    const { grpcReadMs, grpcSendMs } = this.entry!.rules
    far.on('timeout', () => {
      // It is the client that does not read.
      if (client.writableNeedDrain) far.setTimeout(grpcReadMs)
      else this.onLate()
    })
    far.setTimeout(grpcReadMs)
    client.on('pause', () => {
      if (!far.writableNeedDrain) return
      far.setTimeout(0)
      this.unread.set(grpcSendMs, () => this.onLate())
    })
    far.on('drain', () => {
      this.unread.clear()
      far.setTimeout(grpcReadMs)
    })
  }

  private onLate() {
    const { client } = this
    this.fail(undefined, 'it took too long')
    this.isLate = true
    this.far?.unpipe(client)
    this.far?.close(NGHTTP2_CANCEL)
    if (client.destroyed || client.closed) return
    if (!client.headersSent) return this.answer('silent')
    if (!isGrpc(this.headers)) return client.close(NGHTTP2_CANCEL)
    this.trailers = grpcTrailers('silent', this.request.host)
    client.end()
  }

  private onResponse(far: ClientHttp2Stream, headers: IncomingHttpHeaders, flags: number) {
    const { client } = this
    if (client.destroyed || client.headersSent) return
    const endStream = (flags & NGHTTP2_FLAG_END_STREAM) !== 0
    try {
      const passed = dressedStream(streamHeadersForClient(headers), this.added())
      client.respond(passed, endStream ? { endStream } : { waitForTrailers: true })
    } catch (error) {
      // A status that does not exist in HTTP/2.
      this.traffic.report(`${this.request.host}: a response cannot be forwarded: ${(error as Error).message}`)
      return client.close(NGHTTP2_INTERNAL_ERROR)
    }
    if (!endStream) return void far.pipe(client)
    far.resume()
    closeUnread(client)
  }

  private sendTrailers(): void {
    const { client } = this
    if (client.destroyed || client.closed) return
    client.sendTrailers(this.trailers)
    if (!client.readableEnded) setImmediate(() => client.closed || client.close(NGHTTP2_NO_ERROR))
  }

  private onFarClose(upstream: Upstream, far: ClientHttp2Stream, session: ClientHttp2Session) {
    const { client } = this
    if (client.destroyed) return
    if (!client.endAfterHeaders) client.unpipe(far).resume()
    if (client.closed || this.isLate) return
    if (far.readableEnded && far.rstCode === NGHTTP2_NO_ERROR && client.headersSent) return
    if (far.rstCode === NGHTTP2_REFUSED_STREAM && !client.headersSent && client.endAfterHeaders)
      return this.repeat(upstream, new Error('it refused the stream'))
    const isLost = session.destroyed || session.socket?.destroyed
    if (!isLost && far.rstCode !== NGHTTP2_NO_ERROR) return client.close(far.rstCode)
    this.breakOff(upstream)
  }

  /** The connection to the target broke: a gRPC client gets a status, others see the stream end with an error. */
  private breakOff(upstream: Upstream) {
    const { client } = this
    this.fail(upstream, 'its connection broke')
    checkPresence(upstream)
    if (!client.headersSent) return this.answer('unreachable')
    if (!isGrpc(this.headers)) return client.close(NGHTTP2_INTERNAL_ERROR)
    this.trailers = grpcTrailers('unreachable', this.request.host)
    client.end()
  }

  private repeat(failed: Upstream, error: Error) {
    if (this.client.destroyed || this.isLate) return
    const pauseMs = attemptPausesMs[this.attempts - 1]
    this.tried.add(failed)
    if (pauseMs === undefined) {
      this.fail(failed, error.message)
      return this.answer('unreachable')
    }
    this.traffic.counts.retries++
    const entry = findServing(this.traffic, this.request.host, this.request.path, 'GRPC')
    const hasOther = typeof entry !== 'string' && entry.upstreams.some((upstream) => !this.tried.has(upstream))
    setTimeout(() => this.attempt(), hasOther ? 0 : pauseMs)
  }

  private fail(upstream: Upstream | undefined, why: string): void {
    this.traffic.counts.failures++
    this.traffic.report(`${this.request.host}: ${upstream?.key ?? 'its target'} failed: ${why}`)
  }

  private answer(page: PageName): void {
    this.place?.leave()
    sendStreamPage(this.client, this.headers, page, this.request.host, this.added())
  }
}

/** Over TLS every service gets the protocol of its route; without, HTTP/2 is for gRPC. */
const isAskedAsHttp1 = ({ table }: Traffic, { host, path }: StreamRequest): boolean => {
  const entry = table.find(host, path)
  return entry === undefined || entry === null || entry === 'elsewhere' || entry.route.protocol === 'HTTP'
}

/** `received`: the same headers, in their order; `belongTo` sets the party whose share the stream takes. */
export const forwardStream = (
  traffic: Traffic,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  received: readonly string[],
  belongTo: (party: string) => void,
) => {
  stream.on('error', ignore)
  const request = readStreamRequest(headers)
  if (request === null) return sendStreamPage(stream, headers, 'malformed', '')
  if (request.method === 'CONNECT') return sendStreamPage(stream, headers, 'method', '')
  const socket = stream.session?.socket
  const verdict = isEncrypted(socket) ? judgeTls(traffic, { ...request, headers, socket }) : null
  if (verdict !== null)
    return sendStreamPage(stream, headers, verdict.kind === 'unanswered' ? 'unasked' : 'misdirected', request.host)
  if (isEncrypted(socket) && isAskedAsHttp1(traffic, request)) {
    if (!request.path.startsWith('/')) return sendStreamPage(stream, headers, 'malformed', request.host)
    return forwardAsHttp1(traffic, stream, headers, received, request, hstsHeader(traffic, socket), belongTo)
  }
  // Whether to send the body is between the client and the target; without this the client would wait.
  if (headers.expect === '100-continue') stream.additionalHeaders({ ':status': 100 })
  new StreamExchange(traffic, stream, headers, request, belongTo).attempt()
}
