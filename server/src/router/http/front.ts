/** The listener: limits on what clients may send, and shutdown. */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { Http1Client } from '../http1/client.ts'
import type { ClientLimits, ClientOwner } from '../http1/owner.ts'
import { createSweep, type Sweep } from '../http1/sweep.ts'
import { usual } from '../policy.ts'
import type { Holder, Holding } from '../shares.ts'
import { backlog } from '../tls/listener.ts'
import type { Traffic } from '../traffic/traffic.ts'
import { createHttp2Front, type Http2Front, type Http2Limits } from './front-http2.ts'
import { forward } from './proxy.ts'
import { readRequest } from './request-check.ts'
import { judgeTls } from './tls-guard.ts'
import { forwardUpgrade } from './upgrade.ts'

interface Front {
  /** Takes a connection that is encrypted already; `http2`: its client has agreed on that. */
  accept(socket: TLSSocket, http2: boolean): void
  /** Resolves with the port. Rejects like `listen`. */
  listen(host: string, port: number): Promise<number>
  /** Accepts from a socket that another process listens on too. */
  share(listening: Server): Promise<void>
  /** Its listening socket, for other processes. */
  readonly listening: Server
  clients(): number
  /** Accepts no more connections, and asks the clients of those that are open to connect again. None of their requests fails. */
  leave(): void
  /** Resolves when no new connection is accepted and the port is free. */
  close(): Promise<void>
  /** After `close`: resolves when no request is in progress, or after `graceMs`; then every connection is closed. */
  finish(graceMs: number): Promise<void>
}

export type Limits = Http2Limits & ClientLimits

export const defaultLimits: Limits = {
  headerBytes: 32_768,
  headersTimeoutMs: 15_000,
  silenceMs: 660_000,
  idleMs: usual.keepAliveMs,
  streams: 250,
  resetBurst: 400,
  resetsPerSecond: 50,
}

const longestSweepMs = 1_000
const isAnsweredByTls = (traffic: Traffic, client: Http1Client): boolean => {
  const verdict = judgeTls(traffic, client)
  if (verdict === null) return false
  if (verdict.kind === 'misdirected') client.sendPage('misdirected', [])
  else if (verdict.kind === 'unanswered') client.sendPage('unasked', [])
  else if (verdict.kind === 'redirect') client.sendPage('moved', ['location', verdict.to])
  else client.sendPlain(200, ['content-type', 'text/plain', 'cache-control', 'no-store'], verdict.answer)
  return true
}

const serve = (traffic: Traffic, client: Http1Client) => {
  const wanted = readRequest(client.head)
  if (typeof wanted === 'string') {
    client.stayNoLonger()
    return client.sendPage(wanted, [])
  }
  client.host = wanted.host
  client.path = wanted.path
  if (traffic.secure !== undefined && isAnsweredByTls(traffic, client)) return
  if (client.expectsContinue && !/\b100-continue\b/i.test(client.head.expect!)) return client.sendPlain(417, [], '')
  forward(traffic, client)
}

/** The descriptors that a connection takes until it is closed: its own, and one of its target. */
const holdOf = ({ shares }: Traffic, socket: Socket, isIdle: () => boolean): Holding => {
  const holder: Holder = {
    get isIdle() {
      return isIdle()
    },
    giveUp: () => void socket.destroy(),
  }
  const holding = shares.enter(holder, 2)
  socket.once('close', () => shares.leave(holding))
  return holding
}

const createOwner = (
  traffic: Traffic,
  limits: Limits,
  clients: Sweep<Http1Client>,
  http2: Http2Front,
  { upgraded, onLeave }: { upgraded: Set<Socket>; onLeave(): void },
): ClientOwner => ({
  traffic,
  limits,
  serve: (client) => serve(traffic, client),
  onPreface({ holding }, socket, bytes) {
    socket.unshift(bytes)
    http2.accept(socket, holding)
  },
  onUpgrade(client, socket, bytes) {
    upgraded.add(socket)
    forwardUpgrade(traffic, client, bytes, () => upgraded.delete(socket))
  },
  onLeave,
  onGone: (client) => clients.delete(client),
})

export const createFront = (traffic: Traffic, limits = defaultLimits): Front => {
  const { counts } = traffic
  const shortestMs = Math.min(limits.headersTimeoutMs, limits.silenceMs, limits.idleMs)
  const clients = createSweep<Http1Client>(Math.min(longestSweepMs, shortestMs / 4))
  const upgraded = new Set<Socket>()
  let onIdle = (): void => {}
  const onLeave = (): void => {
    if (traffic.stopping && counts.inFlight === 0) onIdle()
  }
  const http2 = createHttp2Front(traffic, limits, () => {
    counts.inFlight--
    onLeave()
  })
  const owner = createOwner(traffic, limits, clients, http2, { upgraded, onLeave })
  const open = (socket: Socket): void => {
    // It may be the one that makes room for itself.
    let client: Http1Client | undefined
    const holding = holdOf(traffic, socket, () => client === undefined || client.isIdle)
    client = new Http1Client(owner, socket, holding)
    clients.add(client)
  }
  const server = createServer({ allowHalfOpen: true, noDelay: true }, open)

  return {
    accept(socket, isHttp2) {
      socket.on('error', () => socket.destroy())
      if (isHttp2)
        http2.accept(
          socket,
          holdOf(traffic, socket, () => false),
        )
      else open(socket)
    },
    async listen(host, port) {
      server.listen({ host, port, backlog })
      await once(server, 'listening')
      return (server.address() as AddressInfo).port
    },
    async share(listening) {
      server.listen(listening, backlog)
      await once(server, 'listening')
    },
    listening: server,
    clients: () => clients.all.size + http2.clients() + upgraded.size,
    leave() {
      server.close()
      traffic.shed = Number.POSITIVE_INFINITY
      http2.close()
    },
    close() {
      traffic.stopping = true
      // Not its callback, which waits for every connection. The port is free as soon as this returns.
      server.close()
      for (const client of clients.all) if (client.isIdle) client.breakOff()
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
      for (const client of clients.all) client.breakOff()
      http2.end()
      for (const socket of upgraded) socket.destroy()
    },
  }
}
