/** Shared by all parts that forward traffic. */

import type { PageName } from '../exchange/pages.ts'
import type { ClientTraffic } from '../http1/owner.ts'
import type { Parked } from '../parked/parked.ts'
import type { Route, StreamRoute } from '../router.ts'
import type { Entry, HostEntry, LiveTable } from './live-table.ts'
import type { Upstreams } from './upstreams.ts'

export interface Traffic extends ClientTraffic {
  readonly table: Pick<LiveTable, 'find' | 'findPort'>
  readonly upstreams: Upstreams
  /** Requests parked for sleeping services. */
  readonly parked: Parked
  /** One line for the operator; called at most a few times a second, whatever happens. */
  readonly report: (message: string) => void
}

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

export const connectTimeoutMs = 3_000
