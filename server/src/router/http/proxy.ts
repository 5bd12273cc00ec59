/** One plain request, from its arrival to the last byte of its response, with a few attempts. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Http2Session } from 'node:http2'
import type { Dispatcher } from 'undici'
import { dressed, type Rules } from '../access/rules.ts'
import { heldBytes, type Place } from '../hold/holds.ts'
import { usual } from '../policy.ts'
import type { HostEntry } from '../table/live-table.ts'
import { rewritten } from '../table/paths.ts'
import { absence, checkPresence } from '../table/presence.ts'
import { attemptPausesMs, findServing, type Traffic } from '../table/traffic.ts'
import { markSuspect, type Upstream } from '../table/upstreams.ts'
import { type Admission, addedHeaders, admit, dressedFor, pickFor } from './admission.ts'
import { clientGone, codeOf, isRefusal, isReset, isSilence, LateError, TooLarge, unwanted } from './failures.ts'
import { headersForClient, headersForTarget, isSecure, sizeOf } from './headers.ts'
import { limitConnection } from './keep-alive.ts'
import { type PageName, renderPage } from './pages.ts'
import { bodyForAttempt } from './request-body.ts'
import { hasBody } from './request-check.ts'
import { retriesLoss, retriesStatus, retryPauseMs } from './retries.ts'
import { allowSilence, allowStreamSilence } from './silence.ts'
import { Timer } from './timer.ts'

type Controller = Dispatcher.DispatchController

const idempotent: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'])

export const sendPage = (
  req: IncomingMessage,
  res: ServerResponse,
  name: PageName,
  host: string,
  added: readonly string[] = [],
): void => {
  const { status, headers, body } = renderPage(name, host, req.headers.accept)
  // An unread body would block the next request of the connection.
  if (!req.complete) headers.push('connection', 'close')
  res.writeHead(status, dressed(headers, added))
  res.end(req.method === 'HEAD' ? undefined : body)
}

interface Incoming {
  req: IncomingMessage
  res: ServerResponse
  host: string
  path: string
  /** The client waits for `100 Continue` before it sends the body. */
  expectsContinue: boolean
  /** How long its connection may be silent if the service's settings say no more. */
  silenceMs?: number
  /** Of a request over HTTP/2 instead. */
  session?: Http2Session | undefined
}

/** Also the handler called by the target's connection. */
class Exchange implements Dispatcher.DispatchHandler {
  private readonly traffic: Traffic
  private readonly incoming: Incoming
  private readonly withBody: boolean
  private attempts = 0
  private retried = 0
  private wasReset = false
  private bodyTaken = false
  private isGone = false
  /** The time for all attempts together is over. */
  private isLate = false
  /** Whoever passed these has not passed others. */
  private admittedBy: Rules | undefined
  private place: Place | null = null
  private tried: Set<Upstream> | null = null
  private entry: HostEntry | undefined
  private upstream: Upstream | undefined
  private controller: Controller | undefined
  // Most requests need none.
  private whole: Timer | undefined
  private connecting: Timer | undefined
  private target: Timer | undefined
  private client: Timer | undefined

  constructor(traffic: Traffic, incoming: Incoming) {
    this.traffic = traffic
    this.incoming = incoming
    this.withBody = hasBody(incoming.req)
    incoming.res.on('close', () => this.onClientClose())
    incoming.res.on('drain', () => this.onDrain())
  }

  attempt() {
    if (this.isGone) return
    const entry = findServing(this.traffic, this.incoming.host, this.incoming.path, 'HTTP')
    if (typeof entry === 'string') return this.answer(entry)
    this.entry = entry
    if (this.admittedBy !== entry.rules && !this.isLetIn(entry.rules)) return
    if (entry.route.state === 'asleep') return this.hold(entry)
    const upstream = pickFor(entry, this.incoming.req.headers.cookie, this.tried)
    if (upstream === undefined) return this.answer('idle')
    this.attempts++
    this.upstream = upstream
    this.traffic.upstreams.begin(upstream)
    if (upstream.isAbsent) this.onResponseError(undefined, absence())
    else this.dispatch(upstream, entry)
  }

  /** False: it has been answered, or will be attempted once that is known. */
  private isLetIn(rules: Rules): boolean {
    const { req } = this.incoming
    // Its time began with its arrival, whatever has changed since.
    if (this.admittedBy === undefined) this.limit(rules)
    this.admittedBy = rules
    if (rules.bodyBytes > 0 && Number(req.headers['content-length'] ?? 0) > rules.bodyBytes) {
      this.answer('tooLarge')
      return false
    }
    if (rules.isPlain) return true
    const asker = { peer: req.socket.remoteAddress, method: req.method, headers: req.headers }
    const admission = admit(rules, asker, this.traffic.isTrusted)
    if (admission instanceof Promise) void admission.then((settled) => this.onAdmission(settled) && this.attempt())
    return !(admission instanceof Promise) && this.onAdmission(admission)
  }

  private limit(rules: Rules): void {
    const { req, silenceMs, session } = this.incoming
    if (silenceMs === undefined) allowStreamSilence(session, rules.silenceMs)
    else allowSilence(req, silenceMs, rules.silenceMs)
    if (rules.requestMs > 0) this.whole = new Timer().set(rules.requestMs, () => this.onLate())
    this.limitConnecting(rules)
  }

  private limitConnecting({ connectMs }: Rules): void {
    // The attempts are over sooner than after the usual time.
    if (connectMs !== usual.connectMs) this.connecting = new Timer().set(connectMs, () => this.onLate())
  }

  /** It waits, with its body unread, until its service runs. */
  private hold({ route, rules }: HostEntry): void {
    const { req } = this.incoming
    this.connecting?.clear()
    this.place?.leave()
    const resume = (): void => {
      this.limitConnecting(rules)
      this.attempt()
    }
    const bytes = heldBytes(req.rawHeaders, this.withBody ? req.headers['content-length'] : '0')
    this.place = this.traffic.holds.take(route.serviceId, bytes, { resume, refuse: (page) => this.answer(page) })
    if (this.place === null) this.answer('crowded')
  }

  private onAdmission(admission: Admission): boolean {
    if (admission === 'pass') return true
    if (this.isGone) return false
    if (admission !== 'preflight') this.answer(admission)
    else this.incoming.res.writeHead(204, this.added()).end()
    return false
  }

  private dispatch(upstream: Upstream, { rules, route }: HostEntry): void {
    const { req, path } = this.incoming
    const headers = headersForTarget(req, this.traffic.isTrusted)
    const { readMs } = rules
    const headMs = Math.min(rules.retry?.perTryMs || Number.POSITIVE_INFINITY, readMs || Number.POSITIVE_INFINITY)
    upstream.pool.dispatch(
      {
        method: req.method as Dispatcher.HttpMethod,
        path: route.rewrite === undefined ? path : rewritten(path, route),
        headers,
        body: this.withBody ? this.bodyFor(rules) : null,
        // With a body, the time for the response begins when all of it is sent.
        headersTimeout: this.withBody || !Number.isFinite(headMs) ? 0 : headMs,
        bodyTimeout: readMs,
      },
      this,
    )
  }

  private bodyFor({ bodyBytes, sendMs, readMs }: HostEntry['rules']) {
    return bodyForAttempt(this.incoming.req, bodyBytes, {
      onTaken: () => this.onBodyTaken(),
      onWait: (isWaiting) => this.limitTarget(isWaiting ? sendMs : 0),
      onSent: () => this.limitTarget(readMs),
      onTooLarge: () => this.cut(new TooLarge('body')),
    })
  }

  /** How long the target may take for what it does next; 0: as long as it likes. */
  private limitTarget(ms: number): void {
    const isUnderWay = this.controller !== undefined && !this.incoming.res.headersSent
    this.target ??= new Timer()
    this.target.set(isUnderWay ? ms : 0, () => this.cut(new LateError()))
  }

  private onBodyTaken(): void {
    this.bodyTaken = true
    if (this.incoming.expectsContinue && !this.incoming.res.headersSent) this.incoming.res.writeContinue()
  }

  onRequestStart(controller: Controller): void {
    this.controller = controller
    this.connecting?.clear()
    if (this.isGone) controller.abort(clientGone)
  }

  onResponseStart(controller: Controller, status: number, headers: Record<string, unknown>, message?: string) {
    const { req, res } = this.incoming
    const entry = this.entry!
    if (this.upstream !== undefined) this.upstream.heardAt = performance.now()
    if (status < 200) return this.passEarlyHints(status, headers)
    this.place?.leave()
    this.target?.clear()
    const raw = (controller.rawHeaders ?? []) as Buffer[]
    if (sizeOf(raw) > entry.rules.headerBytes) return controller.abort(new TooLarge('headers'))
    if (this.mayRetry() && retriesStatus(entry.rules.retry!, status)) return controller.abort(unwanted)
    let passed = headersForClient(raw, headers.connection as string | undefined)
    if (!entry.rules.isPlain)
      passed = dressedFor(entry, passed, req, this.upstream, isSecure(req, this.traffic.isTrusted))
    if (this.traffic.stopping) passed.push('connection', 'close')
    else limitConnection(entry.rules, req, res, passed)
    res.writeHead(status, printable(message), passed)
    // A body that follows at once is sent with the head; a later one must not delay the head.
    setImmediate(flushHead, res)
  }

  private passEarlyHints(status: number, { link }: Record<string, unknown>): void {
    if (status !== 103 || link === undefined || this.incoming.req.httpVersion === '1.0') return
    try {
      this.incoming.res.writeEarlyHints({ link: link as string | string[] })
    } catch {
      // Hints are optional, and Node rejects unusual links.
    }
  }

  onResponseData(controller: Controller, chunk: Buffer): void {
    if (this.incoming.res.write(chunk)) return
    controller.pause()
    this.waitForClient()
  }

  private waitForClient(): void {
    this.client ??= new Timer()
    this.client.set(this.entry!.rules.clientMs, () => this.incoming.res.destroy())
  }

  private onDrain(): void {
    this.client?.clear()
    this.controller?.resume()
  }

  onResponseEnd(controller: Controller): void {
    const { req, res } = this.incoming
    this.release()
    const trailers = (controller.rawTrailers ?? []) as Buffer[]
    if (trailers.length > 0) res.addTrailers(pairs(headersForClient(trailers, undefined)))
    res.end()
    if (res.writableNeedDrain) this.waitForClient()
    if (!req.complete) req.resume()
  }

  onResponseError(controller: Controller | undefined, error: Error): void {
    const upstream = this.release()
    if (this.isGone) return
    const { res } = this.incoming
    if (upstream !== undefined && isReset(error)) checkPresence(upstream)
    if (res.headersSent) {
      this.fail(upstream, error)
      res.destroy()
      return
    }
    if (controller === undefined && upstream !== undefined && !isRefusal(error)) markSuspect(upstream)
    if (
      this.mayRetry() &&
      (error === unwanted || ((isReset(error) || isSilence(error)) && retriesLoss(this.entry!.rules.retry!)))
    )
      this.repeat(upstream, retryPauseMs(this.retried++))
    else if (this.mayRepeat(controller, error)) this.repeat(upstream, attemptPausesMs[this.attempts - 1])
    else this.giveUp(upstream, error)
  }

  /** As the service's settings ask for: a body is not kept for another attempt. */
  private mayRetry(): boolean {
    const retry = this.entry?.rules.retry ?? null
    return retry !== null && this.retried < retry.times && !this.withBody && !this.isGone && !this.isLate
  }

  private mayRepeat(controller: Controller | undefined, error: Error): boolean {
    if (this.attempts > attemptPausesMs.length || this.bodyTaken || isRefusal(error)) return false
    // No controller: there was no connection, so the target saw nothing.
    if (controller === undefined) return true
    // Only once: a request that crashes its program must not be forwarded to all the others.
    if (this.wasReset || !isReset(error)) return false
    this.wasReset = true
    return idempotent.has(this.incoming.req.method ?? '')
  }

  private repeat(failed: Upstream | undefined, pauseMs: number | undefined): void {
    this.traffic.counts.retries++
    this.tried ??= new Set()
    if (failed !== undefined) this.tried.add(failed)
    const entry = findServing(this.traffic, this.incoming.host, this.incoming.path, 'HTTP')
    const hasOther = typeof entry !== 'string' && entry.upstreams.some((upstream) => !this.tried?.has(upstream))
    setTimeout(() => this.attempt(), hasOther ? 0 : pauseMs)
  }

  private giveUp(upstream: Upstream | undefined, error: Error) {
    if (isRefusal(error)) return this.answer('malformed')
    if (error instanceof TooLarge && error.of === 'body') return this.answer('tooLarge')
    this.fail(upstream, error)
    if (isSilence(error)) return this.answer('silent')
    const isHeaders = error instanceof TooLarge || codeOf(error) === 'UND_ERR_HEADERS_OVERFLOW'
    this.answer(isHeaders ? 'headers' : 'unreachable')
  }

  /** The target gets nothing more, and the client what follows from the error. */
  private cut(error: Error): void {
    this.controller?.abort(error)
  }

  /** The time for the whole request, or for a connection, is over. */
  private onLate() {
    this.isLate = true
    if (this.controller !== undefined) return this.cut(new LateError())
    if (this.isGone) return
    this.isGone = true
    this.fail(this.upstream, new LateError())
    this.answer('silent')
  }

  private fail(upstream: Upstream | undefined, error: Error): void {
    this.traffic.counts.failures++
    const { host } = this.incoming
    this.traffic.report(`${host}: ${upstream?.key} failed: ${error.message || String(codeOf(error))}`)
  }

  private added(): string[] {
    return addedHeaders(this.entry, this.incoming.req.headers.origin)
  }

  private answer(page: PageName): void {
    this.place?.leave()
    sendPage(this.incoming.req, this.incoming.res, page, this.incoming.host, this.added())
  }

  private release(): Upstream | undefined {
    const { upstream } = this
    this.upstream = undefined
    this.controller = undefined
    this.target?.clear()
    if (upstream !== undefined) this.traffic.upstreams.end(upstream)
    return upstream
  }

  private onClientClose(): void {
    this.isGone = true
    this.place?.leave()
    this.whole?.clear()
    this.connecting?.clear()
    this.target?.clear()
    this.client?.clear()
    this.controller?.abort(clientGone)
  }
}

const flushHead = (res: ServerResponse): void => {
  if (!res.writableEnded && !res.destroyed) res.flushHeaders()
}

/** A reason phrase that can be sent; '' for one that cannot. */
const printable = (message: string | undefined): string =>
  /^[\t\x20-\x7e]*$/.test(message ?? '') ? (message ?? '') : ''

const pairs = (flat: readonly string[]): [string, string][] =>
  flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] as string] as [string, string]] : []))

export const forward = (traffic: Traffic, incoming: Incoming): void => new Exchange(traffic, incoming).attempt()
