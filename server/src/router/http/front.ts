/** The listener: limits on what clients may send, and shutdown. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { usual } from '../policy.ts'
import type { Traffic } from '../table/traffic.ts'
import { hstsHeader, judgeTls } from '../tls/guard.ts'
import { createHttp2Front, type Http2Limits } from './front-http2.ts'
import { noteBirth } from './keep-alive.ts'
import { forward, sendPage } from './proxy.ts'
import { readRequest } from './request-check.ts'
import { sniff } from './sniff.ts'
import { forwardUpgrade, refuseConnect } from './upgrade.ts'

/** True if it has been answered. */
const isAnsweredByTls = (
  traffic: Traffic,
  req: IncomingMessage,
  res: ServerResponse,
  wanted: { host: string; path: string },
): boolean => {
  if (traffic.secure === undefined) return false
  const verdict = judgeTls(traffic, { ...wanted, headers: req.headers, socket: req.socket })
  const [name, value] = hstsHeader(traffic, req.socket)
  if (name !== undefined) res.setHeader(name, value!)
  if (verdict === null) return false
  if (verdict.kind === 'misdirected') sendPage(req, res, 'misdirected', wanted.host)
  else if (verdict.kind === 'redirect') sendPage(req, res, 'moved', wanted.host, ['location', verdict.to])
  else res.writeHead(200, { 'content-type': 'text/plain', 'cache-control': 'no-store' }).end(verdict.answer)
  return true
}

interface Front {
  /** Takes a connection that is encrypted already; `http2`: its client has agreed on that. */
  accept(socket: TLSSocket, http2: boolean): void
  /** Resolves with the port. Rejects like `listen`. */
  listen(host: string, port: number): Promise<number>
  /** Resolves when no new connection is accepted and the port is free. */
  close(): Promise<void>
  /** After `close`: resolves when no request is in progress, or after `graceMs`; then every connection is closed. */
  finish(graceMs: number): Promise<void>
}

export type Limits = Http2Limits

export const defaultLimits: Limits = {
  headerBytes: 32_768,
  headersTimeoutMs: 15_000,
  /** How long a client may neither send nor receive anything in the middle of a request, if its service says no more. */
  silenceMs: 660_000,
  idleMs: usual.keepAliveMs,
  streams: 250,
  resetBurst: 400,
  resetsPerSecond: 50,
}

const createHttpServer = (limits: Limits): Server => {
  const server = createServer({
    maxHeaderSize: limits.headerBytes,
    headersTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: Math.min(1_000, limits.headersTimeoutMs / 4),
    // Bodies may take as long as they need.
    requestTimeout: 0,
    keepAliveTimeout: limits.idleMs,
    // `Upgrade: h2c`, which some clients send with everything, is an offer that may be declined.
    shouldUpgradeCallback: ({ headers }) => !/^h2c?$/i.test(headers.upgrade ?? ''),
  })
  server.timeout = limits.silenceMs
  // Limited by size. With a limit on the count, Node would silently drop the rest.
  server.maxHeadersCount = 0
  return server
}

export const createFront = (traffic: Traffic, limits = defaultLimits): Front => {
  const { counts } = traffic
  const server = createHttpServer(limits)
  const upgraded = new Set<Socket>()
  let onIdle = (): void => {}

  const leave = (): void => {
    counts.inFlight--
    if (!traffic.stopping) return
    setImmediate(() => server.closeIdleConnections())
    if (counts.inFlight === 0) onIdle()
  }

  const http2 = createHttp2Front(traffic, limits, leave)

  const serve = (req: IncomingMessage, res: ServerResponse, expectsContinue: boolean) => {
    counts.requests++
    counts.inFlight++
    res.once('close', leave)
    const wanted = readRequest(req)
    const { silenceMs } = limits
    if (typeof wanted === 'object') {
      if (isAnsweredByTls(traffic, req, res, wanted)) return
      return forward(traffic, { req, res, ...wanted, expectsContinue, silenceMs })
    }
    res.shouldKeepAlive = false
    sendPage(req, res, wanted, '')
  }

  server.on('request', (req, res) => serve(req, res, false))
  server.on('checkContinue', (req, res) => serve(req, res, true))
  server.on('connect', refuseConnect)
  const sniffing = sniff(server, limits.headersTimeoutMs, (socket) => http2.accept(socket))
  server.on('connection', noteBirth)
  server.on('upgrade', (req, stream, head) => {
    const socket = stream as Socket
    upgraded.add(socket)
    forwardUpgrade(traffic, req, socket, head, () => upgraded.delete(socket))
  })

  return {
    accept(socket, isHttp2) {
      socket.on('error', () => socket.destroy())
      if (isHttp2) http2.accept(socket)
      else server.emit('connection', socket)
    },
    async listen(host, port) {
      server.listen({ host, port, backlog: 1024 })
      await once(server, 'listening')
      return (server.address() as AddressInfo).port
    },
    close() {
      traffic.stopping = true
      // Not its callback, which waits for every connection. The port is free as soon as this returns.
      server.close()
      server.closeIdleConnections()
      sniffing.end()
      http2.close()
      return Promise.resolve()
    },
    async finish(graceMs) {
      if (counts.inFlight > 0) {
        const { promise, resolve } = Promise.withResolvers<void>()
        const timer = setTimeout(resolve, graceMs)
        onIdle = resolve
        await promise
        clearTimeout(timer)
      }
      server.closeAllConnections()
      sniffing.end()
      http2.end()
      for (const socket of upgraded) socket.destroy()
    },
  }
}
