/** HTTP/2 connections to one target: as many as its stream limit requires, each left alone once it goes away. */
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect as connectHttp2,
  constants,
  type OutgoingHttpHeaders,
} from 'node:http2'
import { connect } from 'node:net'
import type { Target } from '../router.ts'
import { connectTimeoutMs } from './traffic.ts'

export interface Sessions {
  /**
   * Opens a stream, over a new connection if the others are full. Rejects if no HTTP/2 connection is available: the
   * target has then received nothing of the request.
   */
  open(headers: OutgoingHttpHeaders, endStream: boolean): Promise<ClientHttp2Stream>
  /** Streams in progress end by themselves; a later `open` connects again. */
  close(): void
}

const mostSessions = 64
/**
 * The maximum number of streams per connection, however many the target allows: they share its buffers and its fate.
 */
const mostStreams = 200
/**
 * The most resets on one connection. Targets close a connection with too many (Node after 1,000 at once), which would
 * break every stream on it because of all their clients together.
 */
const mostResets = 400
const aliveProbeMs = 30_000
const megabytesPerSession = 64

interface Lease {
  session: ClientHttp2Session
  streams: number
  resets: number
  ready: Promise<void>
  /** How many streams the target accepts; until it has said so, its previous value. */
  limit: number
}

const openSession = ({ host, port }: Target): ClientHttp2Session => {
  const authority = `http://${host.includes(':') ? `[${host}]` : host}:${port}`
  return connectHttp2(authority, {
    maxSessionMemory: megabytesPerSession,
    settings: { enablePush: false },
    createConnection: () =>
      connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: aliveProbeMs }),
  })
}

/** Resolves with the first frame of the other side, which a program without HTTP/2 never sends. */
const greeted = (session: ClientHttp2Session): Promise<void> => {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const timer = setTimeout(() => session.destroy(new Error('no HTTP/2 connection in time')), connectTimeoutMs)
  session.once('error', reject)
  session.once('close', () => reject(new Error('closed before the HTTP/2 handshake')))
  session.once('remoteSettings', () => resolve())
  return promise.finally(() => clearTimeout(timer))
}

const isUsable = ({ session }: Lease): boolean => !session.closed && !session.destroyed

export const createSessions = (target: Target): Sessions => {
  const leases = new Set<Lease>()
  let lastLimit = 100

  const add = (): Lease => {
    const session = openSession(target)
    const lease: Lease = { session, streams: 0, resets: 0, ready: greeted(session), limit: lastLimit }
    lease.ready.catch(() => {})
    session.on('remoteSettings', ({ maxConcurrentStreams = mostStreams }) => {
      lastLimit = Math.min(maxConcurrentStreams, mostStreams)
      lease.limit = lastLimit
    })
    session.on('error', () => leases.delete(lease))
    session.once('goaway', () => leases.delete(lease))
    session.once('close', () => leases.delete(lease))
    leases.add(lease)
    return lease
  }

  /** If all are full and there are enough of them, the stream waits on the least busy one. */
  const choose = (): Lease => {
    const usable = [...leases].filter(isUsable)
    const free = usable.find(({ streams, limit }) => streams < limit)
    if (free !== undefined) return free
    if (usable.length < mostSessions) return add()
    return usable.reduce((best, lease) => (lease.streams < best.streams ? lease : best))
  }

  const onStreamClose = (lease: Lease, { rstCode }: ClientHttp2Stream): void => {
    lease.streams--
    if (rstCode === constants.NGHTTP2_NO_ERROR || ++lease.resets < mostResets) return
    leases.delete(lease)
    lease.session.close()
  }

  /** Undefined if this connection has meanwhile become full. */
  const openOn = async (lease: Lease, headers: OutgoingHttpHeaders, endStream: boolean) => {
    lease.streams++
    try {
      await lease.ready
      if (lease.streams > lease.limit && leases.size < mostSessions) {
        lease.streams--
        return undefined
      }
      const stream = lease.session.request(headers, { endStream })
      stream.once('close', () => onStreamClose(lease, stream))
      return stream
    } catch (error) {
      lease.streams--
      throw error
    }
  }

  const open: Sessions['open'] = async (headers, endStream) => {
    const lease = choose()
    const stood = lease.streams > 0
    try {
      return (await openOn(lease, headers, endStream)) ?? open(headers, endStream)
    } catch (error) {
      // A connection that was established and then lost says nothing about the target.
      if (!stood || isUsable(lease)) throw error
      return (await openOn(add(), headers, endStream)) ?? open(headers, endStream)
    }
  }

  return {
    open,
    close() {
      for (const { session } of leases) session.close()
      leases.clear()
    },
  }
}
