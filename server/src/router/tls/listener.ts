/**
 * The listener for TLS: handshakes, their limits, and the choice of the certificate. Encrypted connections go to the
 * same front as all others.
 */
import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import { createServer as createTlsServer, type TLSSocket, type Server as TlsServer } from 'node:tls'
import { clientOf } from '../../lib/net/client-network.ts'
import { normalizeHost } from '../table/table.ts'
import { acmeProtocol, isAcmeHello } from './client-hello.ts'
import { contextOf, tlsOptions } from './context.ts'
import type { TlsStore } from './tls-store.ts'

/** How many connections of clients wait to be accepted, over HTTP as over HTTPS. */
export const backlog = 1024

export interface TlsLimits {
  handshakeMs: number
  /** Handshakes in progress, of one address and of all. */
  perAddress: number
  inAll: number
}

export const defaultTlsLimits: TlsLimits = { handshakeMs: 10_000, perAddress: 200, inAll: 4000 }

export interface TlsListener {
  /** Resolves with the port. Rejects like `listen`. */
  listen(host: string, port: number): Promise<number>
  /** Accepts from a socket that another process listens on too; sessions can be resumed in any of the processes. */
  share(listening: Server, ticketKeys: Buffer): Promise<void>
  /** Its listening socket, for other processes. */
  readonly listening: Server
  ticketKeys(): Buffer
  /** Handshakes in progress. */
  pending(): number
  /** No new connection is accepted, and the port is free. */
  close(): void
  /** Handshakes in progress are aborted. */
  end(): void
}

interface Encrypted {
  http1(socket: TLSSocket): void
  http2(socket: TLSSocket): void
}

/** Shared by a connection and its encrypted half. */
const keyOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`

/** Counts connections that are not encrypted yet. */
const createGate = (limits: TlsLimits) => {
  const pending = new Map<string, { socket: Socket; origin: string }>()
  const byOrigin = new Map<string, number>()
  const leave = (key: string): void => {
    const found = pending.get(key)
    if (found === undefined) return
    pending.delete(key)
    const left = (byOrigin.get(found.origin) ?? 1) - 1
    if (left === 0) byOrigin.delete(found.origin)
    else byOrigin.set(found.origin, left)
  }
  return {
    pending,
    leave,
    enter(socket: Socket): boolean {
      const [key, origin] = [keyOf(socket), clientOf(socket.remoteAddress ?? '')]
      const own = byOrigin.get(origin) ?? 0
      if (own >= limits.perAddress || pending.size >= limits.inAll) return false
      pending.set(key, { socket, origin })
      byOrigin.set(origin, own + 1)
      socket.once('close', () => leave(key))
      return true
    },
  }
}

/** Answers a CA that verifies its challenge: it needs only the handshake. */
const createChallengeServer = (tlsStore: TlsStore, limits: TlsLimits): Server =>
  createTlsServer({
    ...tlsOptions,
    handshakeTimeout: limits.handshakeMs,
    ALPNProtocols: [acmeProtocol],
    SNICallback(name, done) {
      const pair = tlsStore.challengeOf(normalizeHost(name))
      try {
        done(null, pair === undefined ? undefined : contextOf(pair))
      } catch (error) {
        done(error as Error)
      }
    },
  })
    .on('secureConnection', (socket: TLSSocket) => socket.on('error', () => {}).end())
    .on('tlsClientError', (_error, socket: TLSSocket) => socket.destroy())

const createHttpsServer = (tlsStore: TlsStore, limits: TlsLimits, report: (message: string) => void): TlsServer =>
  createTlsServer({
    ...tlsOptions,
    handshakeTimeout: limits.handshakeMs,
    ALPNProtocols: ['h2', 'http/1.1'],
    // Sessions begun in one process continue in another one, whose command line differs.
    sessionIdContext: 'router',
    SNICallback(name, done) {
      tlsStore.contextFor(normalizeHost(name)).then(
        (context) => done(null, context),
        (error: Error) => {
          report(`the certificate of ${name} cannot be used: ${error.message}`)
          done(error)
        },
      )
    },
  }).on('tlsClientError', (_error, socket: TLSSocket) => socket.destroy())

export const createTlsListener = (
  tlsStore: TlsStore,
  encrypted: Encrypted,
  report: (message: string) => void,
  limits = defaultTlsLimits,
): TlsListener => {
  const gate = createGate(limits)
  const https = createHttpsServer(tlsStore, limits, report)
  const challenges = createChallengeServer(tlsStore, limits)
  /** The bytes stay in the socket, for its next reader. */
  const peek = (socket: Socket): void => {
    const late = setTimeout(() => socket.destroy(), limits.handshakeMs)
    const drop = (): void => void socket.destroy()
    const end = (): void => {
      clearTimeout(late)
      socket.off('readable', look).off('error', drop).off('end', drop)
    }
    let seen = Buffer.alloc(0)
    const look = (): void => {
      const bytes = socket.read() as Buffer | null
      if (bytes !== null) seen = Buffer.concat([seen, bytes])
      const found = isAcmeHello(seen)
      if (found === 'more' && seen.length < 16_384) return
      end()
      socket.unshift(seen)
      const server = found === true ? challenges : https
      server.emit('connection', socket)
    }
    socket.on('readable', look).on('error', drop).on('end', drop).once('close', end)
  }

  https.on('secureConnection', (socket: TLSSocket) => {
    if (socket.remoteAddress === undefined) return void socket.destroy()
    gate.leave(keyOf(socket))
    if (socket.alpnProtocol === 'h2') encrypted.http2(socket)
    else encrypted.http1(socket)
  })
  const server = createServer({ noDelay: true }, (socket) => {
    if (!gate.enter(socket)) return void socket.destroy()
    if (tlsStore.hasChallenges()) peek(socket)
    else https.emit('connection', socket)
  })
  return {
    async listen(host, port) {
      server.listen({ host, port, backlog })
      await once(server, 'listening')
      return (server.address() as AddressInfo).port
    },
    async share(listening, ticketKeys) {
      https.setTicketKeys(ticketKeys)
      server.listen(listening, backlog)
      await once(server, 'listening')
    },
    listening: server,
    ticketKeys: () => https.getTicketKeys(),
    pending: () => gate.pending.size,
    close: () => void server.close(),
    end() {
      for (const { socket } of gate.pending.values()) socket.destroy()
    },
  }
}
