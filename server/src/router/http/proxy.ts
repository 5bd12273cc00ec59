/** One plain request, from its arrival to the last byte of its response, with a few attempts. */
import type { Rules } from '../access/rules.ts'
import {
  clientGone,
  codeOf,
  isReset,
  isSilence,
  LateError,
  MalformedError,
  TooLarge,
  unwanted,
} from '../exchange/failures.ts'
import { headersForClient, isSecure } from '../exchange/headers.ts'
import type { PageName } from '../exchange/pages.ts'
import type { Answerer, Inbound, RequestSink } from '../http1/inbound.ts'
import type { ResponseHead } from '../http1/response-head.ts'
import type { TargetConnection, TargetUser } from '../http1/target.ts'
import { type Place, parkedBytes } from '../parked/parked.ts'
import { usual } from '../policy.ts'
import { partyOf } from '../router.ts'
import { rewritten } from '../table/paths.ts'
import type { HostEntry } from '../traffic/live-table.ts'
import { absence, checkPresence } from '../traffic/presence.ts'
import { attemptPausesMs, findServing, type Traffic } from '../traffic/traffic.ts'
import { markSuspect, type Upstream } from '../traffic/upstreams.ts'
import { type Admission, addedHeaders, admit, dressedFor, pickFor } from './admission.ts'
import { retriesLoss, retriesStatus, retryPauseMs } from './retries.ts'
import { Timer } from './timer.ts'

const idempotent: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'])

/** Also what the connections of its client and of its target call. */
class Exchange implements TargetUser, RequestSink, Answerer {
  readonly method: string
  private readonly traffic: Traffic
  private readonly inbound: Inbound
  private readonly withBody: boolean
  private attempts = 0
  private retried = 0
  private wasReset = false
  private bodyTaken = false
  private isBodySent = false
  private isGone = false
  /** The time for all attempts together is over. */
  private isLate = false
  /** Passing these rules is not passing others. */
  private admittedBy: Rules | undefined
  private place: Place | null = null
  private tried: Set<Upstream> | null = null
  private entry: HostEntry | undefined
  private upstream: Upstream | undefined
  /** Perhaps not connected yet. */
  private asked: TargetConnection | undefined
  /** Connected; it has begun to receive the request. */
  private connection: TargetConnection | undefined
  // Most requests need none.
  private whole: Timer | undefined
  private connecting: Timer | undefined
  private client: Timer | undefined

  constructor(traffic: Traffic, inbound: Inbound) {
    this.traffic = traffic
    this.inbound = inbound
    this.method = inbound.method
    this.withBody = inbound.bodyLength !== 0
    inbound.answerBy(this)
  }

  attempt() {
    if (this.isGone) return
    const { inbound, traffic } = this
    const entry = findServing(traffic, inbound.host, inbound.path, 'HTTP')
    if (typeof entry === 'string') return this.answer(entry)
    this.entry = entry
    inbound.belongTo(partyOf(entry.route))
    if (this.admittedBy !== entry.rules && !this.isLetIn(entry.rules)) return
    if (entry.route.state === 'asleep') return this.park(entry)
    const upstream = pickFor(entry, entry.byCookie === null ? undefined : inbound.headers.cookie, this.tried)
    if (upstream === undefined) return this.answer('idle')
    this.attempts++
    this.upstream = upstream
    traffic.upstreams.begin(upstream)
    if (upstream.isAbsent) return this.onFailure(absence())
    const asked = upstream.pool.ask(this)
    // It may have begun, and even ended, meanwhile.
    if (this.upstream === upstream && this.connection === undefined) this.asked = asked
  }

  /** False: it has been answered, or will be attempted once that is known. */
  private isLetIn(rules: Rules): boolean {
    const { inbound } = this
    // Its time began with its arrival, whatever has changed since.
    if (this.admittedBy === undefined) this.limit(rules)
    this.admittedBy = rules
    if (rules.bodyBytes > 0 && inbound.bodyLength > rules.bodyBytes) {
      this.answer('tooLarge')
      return false
    }
    if (rules.isPlain) return true
    const admission = admit(rules, inbound, this.traffic.isTrusted)
    if (admission instanceof Promise) void admission.then((settled) => this.onAdmission(settled) && this.attempt())
    return !(admission instanceof Promise) && this.onAdmission(admission)
  }

  private limit(rules: Rules): void {
    if (rules.silenceMs !== 0) this.inbound.allowSilence(rules.silenceMs)
    if (rules.requestMs > 0) this.whole = new Timer().set(rules.requestMs, () => this.onTimeOver())
    this.limitConnecting(rules)
  }

  private limitConnecting({ connectMs }: Rules): void {
    // The attempts end sooner than after the default time.
    if (connectMs !== usual.connectMs) this.connecting = new Timer().set(connectMs, () => this.onTimeOver())
  }

  /** It waits, with its body unread, until its service runs. */
  private park({ route, rules }: HostEntry): void {
    const { headBytes, bodyLength } = this.inbound
    this.connecting?.clear()
    this.place?.leave()
    const resume = (): void => {
      this.limitConnecting(rules)
      this.attempt()
    }
    const waiting = { resume, refuse: (page: PageName) => this.answer(page) }
    this.place = this.traffic.parked.take(route.serviceId, parkedBytes(headBytes, bodyLength), waiting, partyOf(route))
    if (this.place === null) this.answer('crowded')
  }

  private onAdmission(admission: Admission): boolean {
    if (admission === 'pass') return true
    if (this.isGone) return false
    if (admission !== 'preflight') this.answer(admission)
    else {
      this.settle()
      this.inbound.sendPlain(204, this.added(), '')
    }
    return false
  }

  onReady(connection: TargetConnection): void {
    const { inbound, entry } = this
    const { rules, route } = entry!
    this.asked = undefined
    this.connection = connection
    this.connecting?.clear()
    connection.say(inbound.headForTarget(route.rewrite === undefined ? inbound.path : rewritten(inbound.path, route)))
    if (!this.withBody) {
      connection.finishRequest()
      connection.flush()
      const { readMs, retry } = rules
      const perTryMs = retry?.perTryMs || 0
      connection.limit(perTryMs > 0 && (readMs === 0 || perTryMs < readMs) ? perTryMs : readMs)
      return
    }
    this.bodyTaken = true
    if (inbound.expectsContinue && !inbound.isHeadSent) inbound.sendContinue()
    inbound.takeBody(this)
  }

  onBody(bytes: Buffer, from: number, to: number): void {
    this.connection?.pass(bytes, from, to)
  }

  onBodyText(text: string): void {
    this.connection?.say(text)
  }

  onBodyTurn() {
    const { connection, inbound } = this
    if (connection === undefined) return
    const { bodyBytes, sendMs } = this.entry!.rules
    if (bodyBytes > 0 && inbound.receivedBytes > bodyBytes) return connection.abort(new TooLarge('body'))
    const isTaken = connection.flush()
    if (this.isBodySent || isTaken) return
    inbound.pauseBody()
    if (!inbound.isHeadSent) connection.limit(sendMs)
  }

  onDrain(): void {
    // Without a body, the drained bytes are the head, or the body of the previous exchange.
    if (!this.bodyTaken || this.isBodySent) return
    if (!this.inbound.isHeadSent) this.connection?.limit(0)
    this.inbound.resumeBody()
  }

  /** With a body, the time for the response begins when all of it is sent. */
  onBodyEnd(): void {
    const { connection, inbound } = this
    this.isBodySent = true
    connection?.finishRequest()
    this.onBodyTurn()
    if (!inbound.isHeadSent) this.connection?.limit(this.entry!.rules.readMs)
  }

  onHint({ status, headers }: ResponseHead): void {
    this.upstream!.heardAt = performance.now()
    if (status === 103 && headers.link !== undefined) this.inbound.sendHints([headers.link].flat().map(String))
  }

  onHead(head: ResponseHead): boolean {
    const { inbound, entry, upstream, traffic } = this
    const { rules } = entry!
    const connection = this.connection!
    upstream!.heardAt = performance.now()
    this.place?.leave()
    if (head.text.length > rules.headerBytes) return this.cut(new TooLarge('headers'))
    if (rules.retry !== null && this.mayRetry() && retriesStatus(rules.retry, head.status)) return this.cut(unwanted)
    connection.limit(rules.readMs)
    if (rules.isPlain) return inbound.respond(head, null, rules)
    const passed = dressedFor(entry!, head.passed, inbound, upstream, isSecure(inbound, traffic.isTrusted))
    return inbound.respond(head, passed, rules)
  }

  private cut(error: Error): false {
    this.connection?.abort(error)
    return false
  }

  onData(bytes: Buffer, from: number, to: number): void {
    this.inbound.pass(bytes, from, to)
  }

  onTurn(): void {
    if (this.inbound.flush()) return
    this.connection?.pause()
    this.waitForClient()
  }

  private waitForClient(): void {
    this.client ??= new Timer()
    this.client.set(this.entry!.rules.clientMs, () => this.inbound.breakOff())
  }

  onClientDrain(): void {
    this.client?.clear()
    this.connection?.resume()
  }

  onEnd(trailers: string[]): void {
    const { inbound } = this
    this.settle()
    if (!this.isBodySent) inbound.leaveBody()
    this.client?.clear()
    inbound.end(trailers.length === 0 ? trailers : headersForClient(trailers, undefined))
  }

  onFailure(error: Error): void {
    const { inbound, connection } = this
    const upstream = this.release()
    if (this.isGone) return
    if (upstream !== undefined && isReset(error)) checkPresence(upstream)
    if (inbound.isHeadSent) {
      this.fail(upstream, error)
      this.settle()
      inbound.breakOff()
      return
    }
    if (connection === undefined && upstream !== undefined) markSuspect(upstream)
    const { retry } = this.entry!.rules
    const isLoss = isReset(error) || isSilence(error)
    if (retry !== null && this.mayRetry() && (error === unwanted || (isLoss && retriesLoss(retry))))
      this.repeat(upstream, retryPauseMs(this.retried++))
    else if (this.mayRepeat(connection !== undefined, error)) this.repeat(upstream, attemptPausesMs[this.attempts - 1])
    else this.giveUp(upstream, error)
  }

  /** If the service's settings allow it: a body is not kept for another attempt. */
  private mayRetry(): boolean {
    const retry = this.entry?.rules.retry ?? null
    return retry !== null && this.retried < retry.times && !this.withBody && !this.isGone && !this.isLate
  }

  private mayRepeat(wasConnected: boolean, error: Error): boolean {
    if (this.attempts > attemptPausesMs.length || this.bodyTaken) return false
    // There was no connection, so the target saw nothing.
    if (!wasConnected) return true
    // Only once: a request that crashes its program must not be forwarded to all the others.
    if (this.wasReset || !isReset(error)) return false
    this.wasReset = true
    return idempotent.has(this.method)
  }

  private repeat(failed: Upstream | undefined, pauseMs: number | undefined): void {
    this.traffic.counts.retries++
    this.tried ??= new Set()
    if (failed !== undefined) this.tried.add(failed)
    const entry = findServing(this.traffic, this.inbound.host, this.inbound.path, 'HTTP')
    const hasOther = typeof entry !== 'string' && entry.upstreams.some((upstream) => !this.tried?.has(upstream))
    setTimeout(() => this.attempt(), hasOther ? 0 : pauseMs)
  }

  private giveUp(upstream: Upstream | undefined, error: Error) {
    if (error instanceof TooLarge && error.of === 'body') return this.answer('tooLarge')
    this.fail(upstream, error)
    if (isSilence(error)) return this.answer('silent')
    if (error instanceof MalformedError) return this.answer('invalid', error.fault)
    if (error instanceof TooLarge) return this.answer('headers', `${this.entry!.rules.headerBytes >> 10} kB`)
    this.answer('unreachable')
  }

  /** The time for the whole request, or for a connection, is over. */
  private onTimeOver() {
    this.isLate = true
    if (this.connection !== undefined) return this.cut(new LateError())
    if (this.isGone) return
    this.isGone = true
    const { upstream } = this
    this.asked?.abort(clientGone)
    this.fail(upstream, new LateError())
    this.answer('silent')
  }

  private fail(upstream: Upstream | undefined, error: Error): void {
    this.traffic.counts.failures++
    const { host } = this.inbound
    this.traffic.report(`${host}: ${upstream?.key} failed: ${error.message || String(codeOf(error))}`)
  }

  private added(): string[] {
    const { entry } = this
    return entry === undefined || entry.rules.isPlain ? [] : addedHeaders(entry, this.inbound.headers.origin)
  }

  private answer(page: PageName, why?: string): void {
    this.settle()
    this.isGone = true
    this.inbound.sendPage(page, this.added(), why)
  }

  private release(): Upstream | undefined {
    const { upstream } = this
    this.upstream = undefined
    this.connection = undefined
    this.asked = undefined
    if (upstream !== undefined) this.traffic.upstreams.end(upstream)
    return upstream
  }

  /** Nothing more is expected from the target. */
  private settle(): void {
    this.release()
    this.place?.leave()
    this.whole?.clear()
    this.connecting?.clear()
  }

  onClientGone(): void {
    this.isGone = true
    this.client?.clear()
    const underWay = this.connection ?? this.asked
    if (underWay !== undefined) underWay.abort(clientGone)
    this.settle()
  }
}

export const forward = (traffic: Traffic, inbound: Inbound): void => new Exchange(traffic, inbound).attempt()
