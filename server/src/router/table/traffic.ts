/** Shared by all parts that forward traffic. */

import type { IsTrusted } from '../access/sources.ts'
import type { Counts } from '../control/protocol.ts'
import type { Holds } from '../hold/holds.ts'
import type { PageName } from '../http/pages.ts'
import type { Route, StreamRoute } from '../router.ts'
import type { Shares } from '../shares.ts'
import type { Secure } from '../tls/guard.ts'
import type { Entry, HostEntry, LiveTable } from './live-table.ts'
import type { Upstreams } from './upstreams.ts'

export interface Traffic {
  readonly table: Pick<LiveTable, 'find' | 'findPort'>
  readonly upstreams: Upstreams
  readonly isTrusted: IsTrusted
  readonly counts: Omit<Counts, 'rssBytes' | 'processes'>
  /** Of the descriptors of this process. */
  readonly shares: Shares
  /** What waits for services that sleep. */
  readonly holds: Holds
  /** One line for the operator; called at most a few times a second, whatever happens. */
  readonly report: (message: string) => void
  stopping: boolean
  /** So many connections of HTTP/1.1 are to end with their next response, because other processes have fewer. */
  shed: number
  /** Absent: TLS is off. */
  readonly secure?: Secure
}

export const newCounts = (): Traffic['counts'] => ({
  requests: 0,
  failures: 0,
  retries: 0,
  inFlight: 0,
  upgrades: { total: 0, open: 0 },
  connections: { total: 0, open: 0 },
  flows: { total: 0, open: 0 },
  internalErrors: 0,
})

/** The active entry for this host and path, also of a service that sleeps, or the page that says why there is none. */
export const findServing = (
  traffic: Traffic,
  host: string,
  path: string,
  protocol: Route['protocol'],
): HostEntry | PageName => {
  const entry = traffic.table.find(host, path)
  if (entry === undefined) return 'unknown'
  if (entry === null) return 'path'
  if (entry === 'elsewhere') return 'elsewhere'
  if (entry.route.protocol !== protocol) return 'protocol'
  const { state } = entry.route
  if (state === 'asleep') return entry
  if (state !== 'up') return state
  return entry.upstreams.length === 0 ? 'idle' : entry
}

/** The active entry for this port; undefined if there is none. */
export const findServingPort = (
  traffic: Traffic,
  protocol: StreamRoute['protocol'],
  port: number,
): Entry<StreamRoute> | undefined => {
  const entry = traffic.table.findPort(protocol, port)
  return entry?.route.state === 'up' && entry.upstreams.length > 0 ? entry : undefined
}

/** Delays before the second, third and fourth attempt at targets that have all been tried. */
export const attemptPausesMs = [20, 80, 250] as const

/** For establishing a connection to a target. */
export const connectTimeoutMs = 3_000
