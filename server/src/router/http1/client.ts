/**
 * One connection of a client: its requests, one after the other. A request is not read before the previous one is
 * answered, and its body only as fast as its target reads.
 */
import type { Socket } from 'node:net'
import type { Rules } from '../access/rules.ts'
import { forwardedHeaders, type Origin } from '../exchange/headers.ts'
import { type PageName, renderPage } from '../exchange/pages.ts'
import { silenceFor } from '../exchange/silence.ts'
import { usual } from '../policy.ts'
import type { Holding } from '../shares.ts'
import { plainAddress } from '../sources.ts'
import { hstsHeader, isEncrypted } from '../tls/secure.ts'
import { BodyReader, badChunks } from './body.ts'
import { carriageReturn, lineFeed } from './characters.ts'
import { malformed, more, tooLarge } from './head.ts'
import { linesOf } from './header-lists.ts'
import type { Answerer, Inbound, RequestSink } from './inbound.ts'
import { Outlet } from './outlet.ts'
import type { ClientOwner } from './owner.ts'
import { linesWithLength, reasonOf, replyHead } from './reply.ts'
import { RequestHead } from './request-head.ts'
import { inChunks, type ResponseHead, untilClose } from './response-head.ts'
import type { Limited } from './sweep.ts'

/** `PRI * HTTP/2.0` begins every HTTP/2 connection, and no method of HTTP/1.1 begins so. */
const preface = Buffer.from('PRI')
const isPreface = (bytes: Buffer): boolean =>
  preface.subarray(0, bytes.length).equals(bytes.subarray(0, preface.length))

const aliveProbeMs = 30_000
/** A client that still sends is given time to read why it is not served. */
const lingerMs = 2_000

type Stage =
  /** No byte of a request has arrived. */
  | 'idle'
  | 'head'
  /** A request is being answered. */
  | 'busy'
  /** It is answered; the rest of its body, or of the response, is being transferred. */
  | 'ending'
  /** Only the end is still read or sent. */
  | 'closing'

export class Http1Client implements Inbound, Limited {
  lateAt: number
  host = ''
  path = ''
  isHeadSent = false
  readonly peer: string
  readonly isEncrypted: boolean
  readonly socket: Socket
  /** Its share of the router, for as long as the socket is open. */
  readonly holding: Holding
  readonly head = new RequestHead()
  private readonly owner: ClientOwner
  private readonly outlet: Outlet
  private readonly body = new BodyReader()
  private readonly born = performance.now()
  /** The headers of every response. */
  private readonly standing: string
  /** The headers about the client for every target, up to the host; '' if a trusted proxy has sent more. */
  private readonly forwarded: string
  private stage: Stage = 'idle'
  private isFresh = true
  private held: Buffer | null = null
  private answerer: Answerer | null = null
  private sink: RequestSink | null = null
  private isTaken = false
  private isPaused = false
  private isReading = false
  private isCounted = false
  private stays = true
  private isChunked = false
  private ownChunks = false
  private movedAt = 0
  private silenceMs = 0
  private keepAliveMs: number

  private readonly onData = (bytes: Buffer): void => this.receive(bytes)
  private readonly onEnd = (): void => this.gone()
  private readonly onError = () => void this.socket.destroy()
  private readonly onClose = () => this.gone()
  private readonly onDrain = () => this.answerer?.onClientDrain()

  constructor(owner: ClientOwner, socket: Socket, holding: Holding) {
    this.owner = owner
    this.socket = socket
    this.outlet = new Outlet(socket)
    this.holding = holding
    this.peer = plainAddress(socket.remoteAddress)
    this.isEncrypted = isEncrypted(socket)
    this.standing = linesOf(hstsHeader(owner.traffic, socket))
    this.forwarded = owner.traffic.isTrusted(this.peer)
      ? ''
      : linesOf(forwardedHeaders(this, '', () => false)).slice(0, -2)
    this.keepAliveMs = owner.limits.idleMs
    this.lateAt = this.born + owner.limits.headersTimeoutMs
    socket
      .on('data', this.onData)
      .on('end', this.onEnd)
      .on('error', this.onError)
      .on('close', this.onClose)
      .on('drain', this.onDrain)
  }

  get method(): string {
    return this.head.method
  }
  get headers(): Origin['headers'] {
    return this.head.headers
  }
  get bodyLength(): number {
    return this.head.bodyLength
  }
  get receivedBytes(): number {
    return this.body.received
  }
  get headBytes(): number {
    return this.head.bytes
  }
  get expectsContinue(): boolean {
    const { expect, isOld } = this.head
    return expect !== undefined && !isOld
  }
  /** Nothing is in progress: it may be closed. */
  get isIdle(): boolean {
    return this.stage === 'idle'
  }

  private receive(bytes: Buffer) {
    this.movedAt = performance.now()
    if (this.stage === 'closing') return
    const all = this.held === null ? bytes : Buffer.concat([this.held, bytes])
    this.held = null
    this.read(all)
  }

  private read(bytes: Buffer) {
    this.isReading = true
    try {
      this.readAll(bytes)
    } catch (error) {
      // An error of ours: the start of the next request is no longer known.
      this.socket.destroy()
      throw error
    } finally {
      this.isReading = false
    }
    this.sink?.onBodyTurn()
  }

  /** Reads as much of the received bytes as may be used now. */
  private readAll(bytes: Buffer) {
    const end = bytes.length
    let at = 0
    while (at < end && this.stage !== 'closing') {
      if (this.stage === 'idle' || this.stage === 'head') {
        if (this.isFresh && isPreface(bytes)) return this.readPreface(bytes)
        // Some clients send an empty line after the body of the previous request, perhaps in two pieces.
        if (bytes[at] === carriageReturn && bytes[at + 1] === lineFeed) {
          at += 2
          continue
        }
        const behind = this.head.read(bytes, at, end, this.owner.limits.headerBytes)
        if (behind === more) return this.holdHead(bytes.subarray(at))
        if (behind === tooLarge) return this.refuse('largeHead', `${this.owner.limits.headerBytes >> 10} kB`)
        if (behind < 0) return this.refuse('malformed', this.head.fault)
        at = behind
        this.isFresh = false
        if (this.head.isUpgrade) {
          this.leave()
          return this.owner.onUpgrade(this, this.socket, bytes.subarray(at))
        }
        this.begin()
      } else if (!this.body.isDone && this.isTaken) {
        at = this.body.read(bytes, at, end, this)
        if (at === malformed) return this.refuse('malformed', badChunks)
        this.afterBody()
      } else return this.holdBack(bytes.subarray(at))
    }
  }

  private readPreface(bytes: Buffer): void {
    if (bytes.length < preface.length) {
      this.held = bytes
      return
    }
    this.leave()
    this.owner.onPreface(this, this.socket, bytes)
  }

  private holdHead(bytes: Buffer): void {
    this.held = bytes
    if (this.stage === 'head') return
    this.stage = 'head'
    this.lateAt = this.movedAt + this.owner.limits.headersTimeoutMs
  }

  private holdBack(bytes: Buffer): void {
    this.held = bytes
    this.pause()
  }

  private pause(): void {
    if (this.isPaused) return
    this.isPaused = true
    this.socket.pause()
  }

  /** Continues with the bytes held back, then with new ones. */
  private goOn(): void {
    const { held } = this
    if (held !== null) {
      this.held = null
      this.read(held)
    }
    if (this.held !== null || !this.isPaused || this.stage === 'closing') return
    this.isPaused = false
    this.socket.resume()
  }

  private begin(): void {
    const { counts } = this.owner.traffic
    counts.requests++
    counts.inFlight++
    this.isCounted = true
    this.stage = 'busy'
    this.isHeadSent = false
    this.isTaken = false
    this.stays = this.head.wantsToStay
    this.keepAliveMs = this.owner.limits.idleMs
    this.silenceMs = this.owner.limits.silenceMs
    this.lateAt = this.movedAt + this.silenceMs
    const { coding, bodyLength } = this.head
    this.body.begin(coding === undefined ? bodyLength : inChunks, true)
    this.owner.serve(this)
  }

  headForTarget(path: string): string {
    const { head, forwarded } = this
    const host = head.host ?? ''
    const said = forwarded === '' ? linesOf(forwardedHeaders(this, host, () => true)) : `${forwarded}${host}\r\n`
    return `${head.method} ${path} HTTP/1.1\r\nConnection: keep-alive\r\n${head.linesForTarget()}${said}\r\n`
  }

  belongTo(party: string): void {
    if (this.holding.party !== party) this.owner.traffic.shares.move(this.holding, party)
  }

  answerBy(answerer: Answerer): void {
    this.answerer = answerer
  }

  allowSilence(ms: number): void {
    const silenceMs = silenceFor(this.owner.limits.silenceMs, ms)
    if (silenceMs === this.silenceMs) return
    this.silenceMs = silenceMs
    this.lateAt = silenceMs === 0 ? 0 : this.movedAt + silenceMs
    // Otherwise the connection of a vanished client would stay as long.
    this.socket.setKeepAlive(true, aliveProbeMs)
  }

  takeBody(sink: RequestSink): void {
    this.sink = sink
    this.isTaken = true
    if (this.isReading) return
    this.goOn()
    this.sink?.onBodyTurn()
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    this.sink?.onBody(bytes, from, to)
  }

  private afterBody() {
    const { sink, body } = this
    if (!body.isDone) return
    if (sink === null) return this.next()
    // The trailers of requests are not passed on.
    if (this.head.coding !== undefined) sink.onBodyText('\r\n')
    this.sink = null
    sink.onBodyEnd()
  }

  pauseBody(): void {
    if (!this.body.isDone) this.pause()
  }

  resumeBody(): void {
    if (this.isTaken) this.goOn()
  }

  leaveBody(): void {
    this.sink = null
  }

  sendContinue(): void {
    this.outlet.say('HTTP/1.1 100 Continue\r\n\r\n')
    this.outlet.flush()
  }

  sendHints(links: readonly string[]): void {
    if (this.head.isOld || this.isHeadSent) return
    this.outlet.say(`HTTP/1.1 103 Early Hints\r\n${linesOf(links.flatMap((link) => ['Link', link]))}\r\n`)
    this.outlet.flush()
  }

  respond(head: ResponseHead, passed: string[] | null, rules: Rules): boolean {
    const { isOld } = this.head
    const length = head.bodyLength(this.head.method)
    let framing = this.standing
    if (length < 0) {
      if (isOld) this.stays = false
      else framing += 'Transfer-Encoding: chunked\r\n'
    }
    this.isChunked = length < 0 && !isOld
    this.ownChunks = length === untilClose && !isOld
    this.limitStay(rules)
    const lines = passed === null ? head.lines : linesWithLength(passed, head.contentLength)
    this.sayHead(head.status, head.reason, lines, head.hasDate, framing)
    return this.isChunked
  }

  /** How long the connection may be used: by the rules of the service that it was last used for. */
  private limitStay({ keepAliveMs, connectionMs }: Rules): void {
    if (keepAliveMs !== usual.keepAliveMs) this.keepAliveMs = keepAliveMs
    if (this.keepAliveMs === 0 || this.owner.traffic.stopping) this.stays = false
    else if (connectionMs > 0 && performance.now() - this.born > connectionMs) this.stays = false
    else if (this.stays && this.owner.traffic.shed > 0) {
      this.owner.traffic.shed--
      this.stays = false
    }
  }

  private sayHead(status: number, reason: string, lines: string, hasDate: boolean, framing: string): void {
    this.isHeadSent = true
    this.outlet.say(replyHead(status, reason, lines, hasDate, framing, this.stays ? this.keepAliveMs : 0))
  }

  pass(bytes: Buffer, from: number, to: number): void {
    if (this.ownChunks) this.outlet.say(`${(to - from).toString(16)}\r\n`)
    this.outlet.pass(bytes, from, to)
    if (this.ownChunks) this.outlet.say('\r\n')
  }

  flush(): boolean {
    if (this.socket.destroyed) return true
    this.movedAt = performance.now()
    return this.outlet.flush()
  }

  end(trailers: readonly string[]) {
    if (this.isChunked) this.outlet.say(`${this.ownChunks ? '0\r\n' : ''}${linesOf(trailers)}\r\n`)
    this.flush()
    this.answerer = null
    if (!this.stays || this.owner.traffic.stopping) return this.close()
    this.stage = 'ending'
    this.isTaken = true
    if (this.socket.writableLength === 0) this.next()
    else this.socket.write('', 'latin1', () => this.next())
  }

  breakOff(): void {
    this.socket.destroy()
  }

  sendPage(name: PageName, added: readonly string[], why?: string): void {
    const { status, headers, body } = renderPage(name, this.host, this.head.headers.accept, why)
    this.sendPlain(status, [...headers, ...added], body)
  }

  sendPlain(status: number, headers: readonly string[], body: string): void {
    // The unread part of a body would block the next request.
    if (!this.body.isDone || this.owner.traffic.stopping) this.stays = false
    this.sink = null
    this.isChunked = false
    const length = status === 204 ? -1 : Buffer.byteLength(body)
    this.sayHead(status, reasonOf(status), linesWithLength(headers, length), false, this.standing)
    if (this.head.method !== 'HEAD') this.outlet.say(Buffer.from(body).toString('latin1'))
    this.end([])
  }

  /** The connection does not outlast the response to this request. */
  stayNoLonger(): void {
    this.stays = false
  }

  /** The response has gone: as soon as the request has too, the next one may come. */
  private next() {
    if (this.stage !== 'ending' || this.socket.writableLength > 0) return
    this.uncount()
    if (!this.body.isDone) return this.goOn()
    this.stage = 'idle'
    this.head.reset()
    this.lateAt = performance.now() + this.keepAliveMs
    if (this.owner.traffic.stopping) this.close()
    else if (this.held !== null || this.isPaused) process.nextTick(() => this.goOn())
  }

  private uncount(): void {
    if (!this.isCounted) return
    this.isCounted = false
    this.owner.traffic.counts.inFlight--
    this.owner.onLeave()
  }

  /** Bytes already written still reach the client. */
  close(): void {
    if (this.stage === 'closing') return
    const isQuiet = this.body.isDone && this.held === null
    this.stage = 'closing'
    this.held = null
    this.lateAt = this.silenceMs === 0 ? 0 : performance.now() + this.silenceMs
    if (isQuiet) this.socket.destroySoon()
    else this.linger()
  }

  /** Closing while bytes arrive would discard the response: they are read, for a while. */
  private linger(): void {
    this.socket.end()
    this.isPaused = false
    this.socket.resume()
    this.lateAt = performance.now() + lingerMs
  }

  /** The bytes are not, or are no longer, a request. `why`: as for `renderPage`. */
  private refuse(name: PageName, why: string): void {
    const { answerer } = this
    this.answerer = null
    this.sink = null
    this.stays = false
    const isSilent = this.isHeadSent && this.stage !== 'idle' && this.stage !== 'head'
    this.stage = 'closing'
    if (isSilent) this.socket.destroy()
    else {
      // An incomplete head does not say what the client accepts.
      const { status, headers, body } = renderPage(name, '', undefined, why)
      this.sayHead(status, reasonOf(status), linesWithLength(headers, body.length), false, this.standing)
      this.outlet.say(body)
      this.flush()
      this.linger()
    }
    answerer?.onClientGone()
  }

  onLate(now: number) {
    if (this.stage === 'head') return this.refuse('late', '')
    if (this.stage === 'idle' || this.stage === 'closing') return void this.socket.destroy()
    if (this.silenceMs === 0) this.lateAt = 0
    else if (this.movedAt + this.silenceMs > now) this.lateAt = this.movedAt + this.silenceMs
    else this.socket.destroy()
  }

  /** Hands its socket to a new owner, which alone reads from it. */
  private leave(): void {
    this.stage = 'closing'
    this.lateAt = 0
    this.socket
      .pause()
      .off('data', this.onData)
      .off('end', this.onEnd)
      .off('error', this.onError)
      .off('close', this.onClose)
      .off('drain', this.onDrain)
    this.owner.onGone(this)
  }

  /** The client has ended its side, which a client that waits for a response does not do. */
  private gone(): void {
    const { answerer, stage } = this
    this.answerer = null
    this.sink = null
    this.stage = 'closing'
    this.held = null
    // The last bytes may still be in transit.
    if (stage === 'closing') this.socket.destroySoon()
    else this.socket.destroy()
    answerer?.onClientGone()
    this.uncount()
    if (this.socket.destroyed) this.owner.onGone(this)
  }
}
