/** One plain request, from its arrival to the last byte of its response, with at most four attempts. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Dispatcher } from 'undici'
import { absence, checkPresence } from '../table/presence.ts'
import { attemptPausesMs, findServing, type Traffic } from '../table/traffic.ts'
import { markSuspect, pick, type Upstream } from '../table/upstreams.ts'
import { headersForClient, headersForTarget } from './headers.ts'
import { type PageName, renderPage } from './pages.ts'
import { bodyForAttempt } from './request-body.ts'
import { hasBody } from './request-check.ts'

type Controller = Dispatcher.DispatchController

const idempotent: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'])
const resets: ReadonlySet<unknown> = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'])
const silences: ReadonlySet<unknown> = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'])
const refusals: ReadonlySet<unknown> = new Set(['UND_ERR_INVALID_ARG', 'UND_ERR_NOT_SUPPORTED'])

const clientGone = new Error('the client disconnected')

export const sendPage = (req: IncomingMessage, res: ServerResponse, name: PageName, host: string): void => {
  const { status, headers, body } = renderPage(name, host, req.headers.accept)
  // An unread body would block the next request of the connection.
  if (!req.complete) headers.push('connection', 'close')
  res.writeHead(status, headers)
  res.end(req.method === 'HEAD' ? undefined : body)
}

interface Incoming {
  req: IncomingMessage
  res: ServerResponse
  host: string
  path: string
  /** The client waits for `100 Continue` before it sends the body. */
  expectsContinue: boolean
}

/** Also the handler called by the target's connection. */
class Exchange implements Dispatcher.DispatchHandler {
  private readonly traffic: Traffic
  private readonly incoming: Incoming
  private readonly withBody: boolean
  private attempts = 0
  private wasReset = false
  private bodyTaken = false
  private isGone = false
  private tried: Set<Upstream> | null = null
  private upstream: Upstream | undefined
  private controller: Controller | undefined

  constructor(traffic: Traffic, incoming: Incoming) {
    this.traffic = traffic
    this.incoming = incoming
    this.withBody = hasBody(incoming.req)
    incoming.res.on('close', () => this.onClientClose())
    incoming.res.on('drain', () => this.controller?.resume())
  }

  attempt() {
    if (this.isGone) return
    const entry = findServing(this.traffic, this.incoming.host, 'HTTP')
    if (typeof entry === 'string') return this.answer(entry)
    const upstream = pick(entry, this.tried) ?? pick(entry, null)
    if (upstream === undefined) return this.answer('starting')
    this.attempts++
    this.upstream = upstream
    this.traffic.upstreams.begin(upstream)
    if (upstream.isAbsent) this.onResponseError(undefined, absence())
    else this.dispatch(upstream)
  }

  private dispatch(upstream: Upstream): void {
    const { req, path } = this.incoming
    const method = req.method as Dispatcher.HttpMethod
    const body = this.withBody ? bodyForAttempt(req, () => this.onBodyTaken()) : null
    const headers = headersForTarget(req, this.traffic.isTrusted)
    upstream.pool.dispatch({ method, path, headers, body }, this)
  }

  private onBodyTaken(): void {
    this.bodyTaken = true
    if (this.incoming.expectsContinue && !this.incoming.res.headersSent) this.incoming.res.writeContinue()
  }

  onRequestStart(controller: Controller): void {
    this.controller = controller
    if (this.isGone) controller.abort(clientGone)
  }

  onResponseStart(controller: Controller, status: number, headers: Record<string, unknown>, message?: string) {
    const { res } = this.incoming
    if (this.upstream !== undefined) this.upstream.heardAt = performance.now()
    if (status < 200) return this.passEarlyHints(status, headers)
    const raw = (controller.rawHeaders ?? []) as Buffer[]
    const passed = headersForClient(raw, headers.connection as string | undefined)
    if (this.traffic.stopping) passed.push('connection', 'close')
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
    if (!this.incoming.res.write(chunk)) controller.pause()
  }

  onResponseEnd(controller: Controller): void {
    const { req, res } = this.incoming
    this.release()
    const trailers = (controller.rawTrailers ?? []) as Buffer[]
    if (trailers.length > 0) res.addTrailers(pairs(headersForClient(trailers, undefined)))
    res.end()
    if (!req.complete) req.resume()
  }

  onResponseError(controller: Controller | undefined, error: Error): void {
    const upstream = this.release()
    if (this.isGone) return
    const { res } = this.incoming
    if (upstream !== undefined && resets.has(codeOf(error))) checkPresence(upstream)
    if (res.headersSent) {
      this.fail(upstream, error)
      res.destroy()
      return
    }
    if (controller === undefined && upstream !== undefined && !refusals.has(codeOf(error))) markSuspect(upstream)
    if (this.mayRepeat(controller, error)) this.repeat(upstream)
    else this.giveUp(upstream, error)
  }

  private mayRepeat(controller: Controller | undefined, error: Error): boolean {
    if (this.attempts > attemptPausesMs.length || this.bodyTaken || refusals.has(codeOf(error))) return false
    // No controller: there was no connection, so the target saw nothing.
    if (controller === undefined) return true
    // Only once: a request that crashes its program must not be forwarded to all the others.
    if (this.wasReset || !resets.has(codeOf(error))) return false
    this.wasReset = true
    return idempotent.has(this.incoming.req.method ?? '')
  }

  private repeat(failed: Upstream | undefined): void {
    this.traffic.counts.retries++
    this.tried ??= new Set()
    if (failed !== undefined) this.tried.add(failed)
    const entry = findServing(this.traffic, this.incoming.host, 'HTTP')
    const hasOther = typeof entry !== 'string' && entry.upstreams.some((upstream) => !this.tried?.has(upstream))
    const pauseMs = hasOther ? 0 : attemptPausesMs[this.attempts - 1]
    setTimeout(() => this.attempt(), pauseMs)
  }

  private giveUp(upstream: Upstream | undefined, error: Error) {
    const code = codeOf(error)
    if (refusals.has(code)) return this.answer('malformed')
    this.fail(upstream, error)
    this.answer(silences.has(code) ? 'silent' : 'unreachable')
  }

  private fail(upstream: Upstream | undefined, error: Error): void {
    this.traffic.counts.failures++
    const { host } = this.incoming
    this.traffic.report(`${host}: ${upstream?.key} failed: ${error.message || String(codeOf(error))}`)
  }

  private answer(page: PageName): void {
    sendPage(this.incoming.req, this.incoming.res, page, this.incoming.host)
  }

  private release(): Upstream | undefined {
    const { upstream } = this
    this.upstream = undefined
    this.controller = undefined
    if (upstream !== undefined) this.traffic.upstreams.end(upstream)
    return upstream
  }

  private onClientClose(): void {
    this.isGone = true
    this.controller?.abort(clientGone)
  }
}

const codeOf = (error: Error): unknown => (error as NodeJS.ErrnoException).code

const flushHead = (res: ServerResponse): void => {
  if (!res.writableEnded && !res.destroyed) res.flushHeaders()
}

/** A reason phrase that can be sent; '' for one that cannot. */
const printable = (message: string | undefined): string =>
  /^[\t\x20-\x7e]*$/.test(message ?? '') ? (message ?? '') : ''

const pairs = (flat: readonly string[]): [string, string][] =>
  flat.flatMap((name, index) => (index % 2 === 0 ? [[name, flat[index + 1] as string] as [string, string]] : []))

export const forward = (traffic: Traffic, incoming: Incoming): void => new Exchange(traffic, incoming).attempt()
