/** The HTTP/2 half of the listener: connections that began with the preface, their limits and shutdown. */
import { constants, createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import { allowUsualSilence, endSilence } from '../exchange/silence.ts'
import type { Holding } from '../shares.ts'
import type { Traffic } from '../traffic/traffic.ts'
import { forwardStream } from './http2-exchange.ts'

export interface Http2Limits {
  headerBytes: number
  /** For the client's first frame after the preface. */
  headersTimeoutMs: number
  /** With a stream open, but no data in either direction; a service's settings may allow more. */
  silenceMs: number
  /** Without any stream. Bytes of an incomplete header do not count. */
  idleMs: number
  streams: number
  /** How many streams a client may open and reset: a burst, and a rate per second. */
  resetBurst: number
  resetsPerSecond: number
}

export interface Http2Front {
  /** Takes a connection whose first bytes were put back; `holding` is its share of the router. */
  accept(socket: Socket, holding: Holding): void
  /** Asks clients to open no more streams here. Those already on their way are served. */
  close(): void
  end(): void
  clients(): number
}

const { NGHTTP2_ENHANCE_YOUR_CALM } = constants

const megabytesPerSession = 64
const mostHeaders = 200
const aliveProbeMs = 30_000
const goawayMs = 1_000
/** From the protocol: "no stream is refused yet". */
const highestStream = 2 ** 31 - 1

/** Windows stay at the protocol's 64 KB: that much of each stream is buffered for a side that does not read. */
const createHttp2Server = (limits: Http2Limits): Http2Server =>
  createServer({
    maxSessionMemory: megabytesPerSession,
    maxHeaderListPairs: mostHeaders,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: 100,
    streamResetBurst: limits.resetBurst,
    streamResetRate: limits.resetsPerSecond,
    settings: { maxConcurrentStreams: limits.streams, maxHeaderListSize: limits.headerBytes },
  })

/** A gap between the end of a connection's last stream and its next one is `idleMs` long at most. */
const watchSilence = (session: ServerHttp2Session, limits: Http2Limits): void => {
  let streams = 0
  const greeting = setTimeout(() => session.destroy(), limits.headersTimeoutMs)
  session.once('remoteSettings', () => clearTimeout(greeting))
  session.once('close', () => clearTimeout(greeting))
  session.setTimeout(limits.idleMs, () => session.destroy())
  allowUsualSilence(session, limits.silenceMs)
  session.on('stream', (stream) => {
    if (stream.destroyed) return
    if (++streams === 1) endSilence(session)
    stream.once('close', () => {
      if (--streams > 0 || session.destroyed) return
      allowUsualSilence(session, limits.silenceMs)
      session.setTimeout(limits.idleMs)
    })
  })
}

/** In two steps, so that streams that the client opens before it receives the first are served too. */
const sendGoaway = (session: ServerHttp2Session): void => {
  if (session.destroyed || session.closed) return
  const close = (): void => {
    clearTimeout(timer)
    if (!session.destroyed) session.close()
  }
  const timer = setTimeout(close, goawayMs)
  session.goaway(0, highestStream)
  if (!session.ping(close)) close()
}

/** Each stream takes a descriptor of its target; its connection belongs to the party that it last sent a request to. */
const streamHolder = ({ shares }: Traffic, stream: ServerHttp2Stream, session: Holding | undefined) => {
  let own: Holding | undefined
  return (party: string): void => {
    if (session !== undefined) shares.move(session, party)
    if (own !== undefined) {
      shares.move(own, party)
      return
    }
    const holding = shares.enter({ isIdle: false, giveUp: () => stream.close(NGHTTP2_ENHANCE_YOUR_CALM) }, 1, party)
    own = holding
    stream.once('close', () => shares.leave(holding))
  }
}

export const createHttp2Front = (traffic: Traffic, limits: Http2Limits, onLeave: () => void): Http2Front => {
  const server = createHttp2Server(limits)
  const sessions = new Set<ServerHttp2Session>()
  const holdings = new WeakMap<ServerHttp2Session, Holding>()
  /** The share of the connection whose session begins. */
  let arriving: Holding | null = null

  server.on('session', (session) => {
    sessions.add(session)
    if (arriving !== null) holdings.set(session, arriving)
    session.once('close', () => sessions.delete(session))
    session.on('error', () => {})
    watchSilence(session, limits)
    if (traffic.stopping) sendGoaway(session)
  })
  server.on('stream', (stream, headers, _flags, received) => {
    // Also for one that has ended: later frames may have ended its session, which is reported later.
    stream.on('error', () => {})
    // Reset by its client before we saw it; no other event will say that it has ended.
    if (stream.destroyed) return
    traffic.counts.requests++
    traffic.counts.inFlight++
    stream.once('close', onLeave)
    forwardStream(
      traffic,
      stream,
      headers,
      received,
      streamHolder(traffic, stream, holdings.get(stream.session as ServerHttp2Session)),
    )
  })

  return {
    accept(socket, holding) {
      socket.setTimeout(0)
      socket.setNoDelay(true)
      socket.setKeepAlive(true, aliveProbeMs)
      // The HTTP server that it came from keeps half-closed connections of HTTP/1.1 open. Here a client that ends its
      // side has left: otherwise streams that it did not reset would stay until the silence limit.
      socket.once('end', () => socket.destroySoon())
      arriving = holding
      server.emit('connection', socket)
      arriving = null
    },
    close: () => sessions.forEach(sendGoaway),
    end() {
      for (const session of sessions) session.destroy()
    },
    clients: () => sessions.size,
  }
}
