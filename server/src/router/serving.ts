/** The work of each process of the router: forwarding requests by its table. */

import { newCounts, type OwnCounts } from './counts.ts'
import { descriptorsForTraffic } from './descriptors.ts'
import { createFront } from './http/front.ts'
import { createParked, type ParkLimits, usualParkLimits } from './parked/parked.ts'
import type { Ports } from './ports/ports.ts'

import type { AnyRoute } from './router.ts'
import { createShares } from './shares.ts'
import { trustProxies } from './sources.ts'
import { createTlsListener, defaultTlsLimits, type TlsLimits } from './tls/listener.ts'
import type { Secure } from './tls/secure.ts'
import type { TlsStore } from './tls/tls-store.ts'
import { createLiveTable } from './traffic/live-table.ts'
import type { Traffic } from './traffic/traffic.ts'
import { createUpstreams } from './traffic/upstreams.ts'

export interface State {
  counts: OwnCounts
  rssBytes: number
  /** Open connections of HTTP. */
  clients: number
}

interface ServingOptions {
  routes: readonly AnyRoute[]
  /** Resolves when a change may become active. */
  save(routes: readonly AnyRoute[]): Promise<void>
  ports: Pick<Ports, 'open' | 'retain'>
  tlsStore: TlsStore
  secure: Secure | undefined
  trustedProxies: readonly string[]
  /** For lines that clients can cause. */
  report(message: string): void
}

const reportsPerSecond = 5

export const say = (message: string): void => {
  process.stdout.write(`${new Date().toISOString()} ${message}\n`)
}

/** The log has no size limit while the process runs, so lines that clients can cause are rate-limited. */
export const limitLines = (): ((message: string) => void) => {
  let second = 0
  let lines = 0
  return (message) => {
    const now = Math.floor(performance.now() / 1000)
    lines = now === second ? lines + 1 : 1
    second = now
    if (lines <= reportsPerSecond) say(message)
  }
}

/** Limits for all processes together, divided by their present number. */
const divided = <Limits extends object>(limits: Limits, names: readonly (keyof Limits)[], share: Share): Limits => {
  const own = { ...limits }
  for (const name of names)
    Object.defineProperty(own, name, { get: () => Math.ceil(Number(limits[name]) / share.processes) })
  return own
}

interface Share {
  processes: number
}

/**
 * The share of one core since the previous call. Measured in processor time, not by the clock: on a busy machine more
 * processes would not help.
 */
const createUse = (): (() => number) => {
  let used = process.threadCpuUsage()
  let at = performance.now()
  return () => {
    const now = performance.now()
    const { user, system } = process.threadCpuUsage(used)
    const busy = (user + system) / 1000 / Math.max(1, now - at)
    used = process.threadCpuUsage()
    at = now
    return busy
  }
}

export const createServing = (options: ServingOptions) => {
  const { routes, save, ports, tlsStore, secure, trustedProxies, report } = options
  const share: Share = { processes: 1 }
  const upstreams = createUpstreams()
  const parkLimitNames: (keyof ParkLimits)[] = ['total', 'bytes', 'unanswered']
  const parked = createParked(report, divided(usualParkLimits, parkLimitNames, share))
  const table = createLiveTable(routes, upstreams, save, ports, parked.settle)
  const counts = newCounts()
  const traffic: Traffic = {
    ...{ table, upstreams, counts, parked, isTrusted: trustProxies(trustedProxies), report, stopping: false, shed: 0 },
    shares: createShares(descriptorsForTraffic()),
    ...(secure === undefined ? {} : { secure }),
  }
  const front = createFront(traffic)
  const tlsNames: (keyof TlsLimits)[] = ['perAddress', 'inAll']
  const tls = createTlsListener(
    tlsStore,
    { http1: (socket) => front.accept(socket, false), http2: (socket) => front.accept(socket, true) },
    report,
    divided(defaultTlsLimits, tlsNames, share),
  )
  // A failure of one connection must not end all others.
  process.on('uncaughtException', (error) => {
    counts.internalErrors++
    report(`internal error: ${error.stack}`)
  })
  return {
    ...{ share, upstreams, parked, table, counts, traffic, front, tls },
    state: (): State => ({ counts, rssBytes: process.memoryUsage.rss(), clients: front.clients() }),
    busy: createUse(),
  }
}

export type Serving = ReturnType<typeof createServing>
