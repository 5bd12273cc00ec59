/** TCP routes: a client's connection is joined to one to a target and stays with it until either of them ends. */
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { partyOf } from '../router.ts'
import { absence } from '../traffic/presence.ts'
import { attemptPausesMs, connectTimeoutMs, findServingPort, type Traffic } from '../traffic/traffic.ts'
import { markSuspect, pick, type Upstream } from '../traffic/upstreams.ts'
import { join } from './join.ts'
import type { OpenPort } from './ports.ts'

/** Each takes two file descriptors. */
const mostConnections = 4_000
/** Some programs send a request, close their side, and wait long for the response. */
const halfClosedMs = 600_000

interface Arrival {
  traffic: Traffic
  port: number
  client: Socket
  tried: Set<Upstream>
  attempts: number
}

/** A connection that does not end by itself is reset: no program takes that for the end of the data. */
const reset = (socket: Socket): void => void socket.resetAndDestroy()

const openFar = (upstream: Upstream): Socket => {
  const far = connect({ ...upstream.target, allowHalfOpen: true })
  far.setTimeout(connectTimeoutMs, () => far.destroy(new Error('no connection in time')))
  return far
}

const onFailure = (arrival: Arrival, upstream: Upstream, error: Error): void => {
  const { traffic, port, client, tried } = arrival
  if (client.destroyed) return
  markSuspect(upstream)
  tried.add(upstream)
  const pauseMs = attemptPausesMs[arrival.attempts - 1]
  if (pauseMs === undefined) {
    traffic.counts.failures++
    traffic.report(`port ${port}: ${upstream.key} failed: ${error.message}`)
    reset(client)
    return
  }
  traffic.counts.retries++
  const entry = findServingPort(traffic, 'TCP', port)
  const hasOther = entry?.upstreams.some((other) => !tried.has(other)) ?? false
  setTimeout(attempt, hasOther ? 0 : pauseMs, arrival)
}

const attempt = (arrival: Arrival) => {
  const { traffic, port, client, tried } = arrival
  if (client.destroyed) return
  const entry = findServingPort(traffic, 'TCP', port)
  const upstream = entry && (pick(entry, tried) ?? pick(entry, null))
  if (upstream === undefined) return reset(client)
  arrival.attempts++
  if (upstream.isAbsent) return onFailure(arrival, upstream, absence())
  const far = openFar(upstream)
  const abandon = (): void => void far.destroy()
  const endBoth = (): void => [client, far].forEach(reset)
  const onRefused = (error: Error): void => onFailure(arrival, upstream, error)
  client.once('close', abandon)
  traffic.upstreams.begin(upstream)
  upstream.connections.add(endBoth)
  far.once('error', onRefused)
  far.once('connect', () => {
    far.off('error', onRefused)
    client.off('close', abandon)
    upstream.heardAt = performance.now()
    join(client, far, { halfClosedMs, breakOff: reset, onEnd: () => {} })
  })
  far.once('close', () => {
    client.off('close', abandon)
    upstream.connections.delete(endBoth)
    traffic.upstreams.end(upstream)
  })
}

/** `clients` has the open ones, for shutdown. */
export const openTcpPort = async (
  traffic: Traffic,
  clients: Set<Socket>,
  host: string,
  port: number,
): Promise<OpenPort> => {
  const { connections } = traffic.counts
  // Data from a client waits in the kernel until there is a target.
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    client.on('error', () => client.destroy())
    const entry = findServingPort(traffic, 'TCP', port)
    if (entry === undefined) return reset(client)
    clients.add(client)
    const holding = traffic.shares.enter({ isIdle: false, giveUp: () => reset(client) }, 2, partyOf(entry.route))
    connections.total++
    connections.open++
    client.once('close', () => {
      traffic.shares.leave(holding)
      clients.delete(client)
      connections.open--
    })
    attempt({ traffic, port, client, tried: new Set(), attempts: 0 })
  })
  server.maxConnections = mostConnections
  server.listen({ host, port, backlog: 1024 })
  await once(server, 'listening')
  server.on('error', (error) => traffic.report(`port ${port}: ${error.message}`))
  return { close: () => void server.close() }
}
