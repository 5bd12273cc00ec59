/**
 * UDP routes: datagrams of one client address go to one target, whose responses go back to it. Such a flow ends after
 * some silence, and moves to another target when its own is no longer routed to.
 */
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { isIPv6 } from 'node:net'
import { partyOf } from '../router.ts'
import { checkPresence } from '../traffic/presence.ts'
import { findServingPort, type Traffic } from '../traffic/traffic.ts'
import { markSuspect, pick, type Upstream } from '../traffic/upstreams.ts'
import type { OpenPort } from './ports.ts'

export interface FlowLimits {
  idleMs: number
  /** How long responses of a target that lost its flow are still forwarded. */
  lateMs: number
  /** Flows of one port. Beyond that, the one that was silent longest is dropped: addresses can be forged. */
  most: number
}

const defaultFlowLimits: FlowLimits = { idleMs: 60_000, lateMs: 5_000, most: 1_000 }

/** After this much silence a target is probed for whether it exists at all. */
const quietMs = 2_000

/** Datagrams of one flow that may wait for its socket. */
const mostWaiting = 64

interface Flow {
  upstream: Upstream
  socket: Socket
  /** Until the socket is connected. */
  waiting: Buffer[] | null
  /** Monotonic: when its target last answered or was last probed. */
  heardAt: number
  timer: NodeJS.Timeout
}

const familyOf = (host: string): 'udp4' | 'udp6' => (isIPv6(host) ? 'udp6' : 'udp4')

/** Errors come as events of the socket; a lost datagram is not an error. */
const ignore = (): void => {}

const send = (flow: Flow, bytes: Buffer): void => {
  if (flow.waiting === null) flow.socket.send(bytes, ignore)
  else if (flow.waiting.length < mostWaiting) flow.waiting.push(bytes)
}

const sendWaiting = (flow: Flow): void => {
  const { waiting } = flow
  flow.waiting = null
  for (const bytes of waiting ?? []) send(flow, bytes)
}

export const openUdpPort = async (
  traffic: Traffic,
  host: string,
  port: number,
  limits = defaultFlowLimits,
): Promise<OpenPort> => {
  const { flows: counts } = traffic.counts
  const flows = new Map<string, Flow>()
  const server = createSocket(familyOf(host))

  const openFlow = (key: string, party: string, upstream: Upstream, answer: (bytes: Buffer) => void): Flow => {
    const { target } = upstream
    const socket = createSocket(familyOf(target.host))
    const end = (): void => closeQuietly(socket)
    const timer = setTimeout(end, limits.idleMs).unref()
    const flow: Flow = { upstream, socket, waiting: [], heardAt: performance.now(), timer }
    const holding = traffic.shares.enter({ isIdle: false, giveUp: () => setImmediate(end) }, 1, party)
    counts.total++
    counts.open++
    socket.on('message', (bytes) => {
      flow.heardAt = performance.now()
      if (flows.get(key) === flow) flow.timer.refresh()
      answer(bytes)
    })
    socket.once('connect', () => sendWaiting(flow))
    socket.on('error', () => {
      // Nothing listens there: the client's next datagram may find another target.
      markSuspect(upstream)
      forget(key, flow)
      clearTimeout(flow.timer)
      closeQuietly(socket)
    })
    socket.once('close', () => {
      traffic.shares.leave(holding)
      clearTimeout(flow.timer)
      counts.open--
      forget(key, flow)
    })
    socket.connect(target.port, target.host)
    return flow
  }

  const forget = (key: string, flow: Flow): void => {
    if (flows.get(key) === flow) flows.delete(key)
  }

  /** Accepts nothing more from its client; late responses of its target are forwarded for a moment. */
  const retire = (key: string, flow: Flow): void => {
    forget(key, flow)
    clearTimeout(flow.timer)
    flow.timer = setTimeout(() => closeQuietly(flow.socket), limits.lateMs).unref()
  }

  const flowOf = (address: string, from: number): Flow | undefined => {
    const key = `${address} ${from}`
    const known = flows.get(key)
    const entry = findServingPort(traffic, 'UDP', port)
    const isServed = known !== undefined && entry?.upstreams.includes(known.upstream) === true
    // If the target no longer exists, another one takes over, if any.
    const hasOther = known?.upstream.isAbsent === true && entry?.upstreams.some(({ isAbsent }) => !isAbsent) === true
    if (isServed && !hasOther) {
      // Last in the order, which is by time of silence.
      flows.delete(key)
      flows.set(key, known)
      known.timer.refresh()
      return known
    }
    if (known !== undefined) retire(key, known)
    const upstream = entry && pick(entry, null)
    if (upstream === undefined) return undefined
    const [silent] = flows.size < limits.most ? [] : flows
    if (silent !== undefined) retire(...silent)
    const flow = openFlow(
      key,
      partyOf(entry!.route),
      upstream,
      (bytes) => isOpen && server.send(bytes, from, address, ignore),
    )
    flows.set(key, flow)
    return flow
  }

  let isOpen = true
  server.on('message', (bytes, { address, port: from }) => {
    const flow = flowOf(address, from)
    if (flow === undefined) return
    send(flow, bytes)
    const now = performance.now()
    if (now - flow.heardAt < quietMs) return
    flow.heardAt = now
    checkPresence(flow.upstream)
  })
  server.bind({ address: host, port, exclusive: true })
  await once(server, 'listening').catch((error: unknown) => {
    closeQuietly(server)
    throw error
  })
  server.on('error', (error) => traffic.report(`port ${port}: ${error.message}`))
  return {
    close() {
      isOpen = false
      server.close()
      for (const { socket, timer } of flows.values()) {
        clearTimeout(timer)
        closeQuietly(socket)
      }
    },
  }
}

const closeQuietly = (socket: Socket): void => {
  try {
    socket.close()
  } catch {
    // Already closed.
  }
}
