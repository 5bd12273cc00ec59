/**
 * The active table. A change is on disk, and its ports accept connections, before it becomes active, in a single tick.
 */
import { ownComparisons } from '../access/comparisons.ts'
import { createRulebook, type Rules, stickyValue } from '../access/rules.ts'
import { type AnyRoute, isStreamRoute, partyOf, type Route, type StreamRoute } from '../router.ts'
import { findPrefix } from '../table/paths.ts'
import { buildTable } from '../table/table.ts'
import { wildcardOf } from '../table/wildcard.ts'
import type { Choice, Upstream, Upstreams } from './upstreams.ts'

export interface Entry<Kind extends AnyRoute = Route> extends Choice {
  readonly route: Kind
}

export interface HostEntry extends Entry {
  readonly rules: Rules
  /** The cookie values of the targets, for clients that stay with theirs; null: they need not stay. */
  readonly byCookie: ReadonlyMap<string, Upstream> | null
}

type PortEntries = Record<StreamRoute['protocol'], Map<number, Entry<StreamRoute>>>

export interface LiveTable {
  /**
   * By normalized host, its own routes before those of its wildcard. Null: the path is ambiguous; 'elsewhere': the
   * host has prefixes, and the path is below none.
   */
  find(host: string, path: string): HostEntry | undefined | null | 'elsewhere'
  findPort(protocol: StreamRoute['protocol'], port: number): Entry<StreamRoute> | undefined
  routes(): readonly AnyRoute[]
  /**
   * Rejects, with nothing changed, if `edit` throws, a port of a new route is not available, or the table cannot be
   * saved. A route is new unless `edit` returns the identical value.
   */
  change(edit: (routes: readonly AnyRoute[]) => readonly AnyRoute[]): Promise<void>
}

interface StreamPorts {
  /** Opens the missing ports of these routes. Rejects with `PortUnavailable`, and then opens none. */
  open(routes: readonly StreamRoute[]): Promise<void>
  /** Closes the ports that none of these needs. */
  retain(routes: readonly StreamRoute[]): void
}

interface Change {
  edit(routes: readonly AnyRoute[]): readonly AnyRoute[]
  resolve(): void
  reject(error: unknown): void
}

/** Only new streams: `ports` itself retries those in the table that have no port yet. */
const newStreams = (before: readonly AnyRoute[], after: readonly AnyRoute[]): StreamRoute[] => {
  const known = new Set(before)
  return after.filter((route) => isStreamRoute(route)).filter((route) => !known.has(route))
}

export const createLiveTable = (
  initial: readonly AnyRoute[],
  upstreams: Upstreams,
  save: (routes: readonly AnyRoute[]) => Promise<void>,
  ports: StreamPorts,
  changed: (routes: readonly AnyRoute[]) => void = () => {},
  comparisons = ownComparisons,
): LiveTable => {
  let routes: readonly AnyRoute[] = []
  const rulebook = createRulebook(comparisons)
  /** A host without prefixes, as most are, is found at once. */
  let hosts = new Map<string, HostEntry | readonly HostEntry[]>()
  let byPort: PortEntries = { TCP: new Map(), UDP: new Map() }
  const waiting: Change[] = []
  let saving = false

  const entriesOf = <Key, Kind extends AnyRoute>(found: ReadonlyMap<Key, Kind>): Map<Key, Entry<Kind>> =>
    new Map([...found].map(([key, route]) => [key, { route, upstreams: route.targets.map(upstreams.of), next: 0 }]))

  const hostEntries = (found: readonly Route[]): HostEntry | readonly HostEntry[] => {
    const entries = found.map((route) => {
      const rules = rulebook.rulesOf(route.policy, { serviceId: route.serviceId, party: partyOf(route) })
      const own = route.targets.map(upstreams.of)
      for (const upstream of own) upstreams.keepIdle(upstream, rules.idleMs)
      const name = (upstream: Upstream) => [stickyValue(route.serviceId, upstream.key), upstream] as const
      return { route, upstreams: own, next: 0, rules, byCookie: rules.sticky ? new Map(own.map(name)) : null }
    })
    return entries.length === 1 && entries[0]!.route.path === undefined ? entries[0]! : entries
  }

  const find: LiveTable['find'] = (host, path) => {
    const found = hosts.get(host) ?? hosts.get(wildcardOf(host))
    if (!Array.isArray(found)) return found as HostEntry | undefined
    const entry = findPrefix(found as readonly HostEntry[], path)
    return entry === undefined ? 'elsewhere' : entry
  }

  const putInForce = (next: readonly AnyRoute[]): void => {
    const table = buildTable(next)
    routes = next
    hosts = new Map([...table.byHost].map(([host, found]) => [host, hostEntries(found)]))
    rulebook.tidy()
    byPort = { TCP: entriesOf(table.byPort.TCP), UDP: entriesOf(table.byPort.UDP) }
    upstreams.retain(next.flatMap((route) => route.targets))
    ports.retain(next.filter((route) => isStreamRoute(route)))
    changed(next)
  }

  const applyAll = async (changes: Change[]): Promise<{ next: readonly AnyRoute[]; applied: Change[] }> => {
    let next = routes
    const applied: Change[] = []
    for (const change of changes) {
      try {
        const edited = change.edit(next)
        const fresh = newStreams(next, edited)
        if (fresh.length > 0) await ports.open(fresh)
        next = edited
        applied.push(change)
      } catch (error) {
        change.reject(error)
      }
    }
    return { next, applied }
  }

  // Changes that arrive during a write share the next one.
  const saveWaiting = async (): Promise<void> => {
    saving = true
    while (waiting.length > 0) {
      const { next, applied } = await applyAll(waiting.splice(0))
      if (applied.length === 0) continue
      try {
        await save(next)
        putInForce(next)
        for (const change of applied) change.resolve()
      } catch (error) {
        ports.retain(routes.filter((route) => isStreamRoute(route)))
        for (const change of applied) change.reject(error)
      }
    }
    saving = false
  }

  putInForce(initial)
  return {
    find,
    findPort: (protocol, port) => byPort[protocol].get(port),
    routes: () => routes,
    change(edit) {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      waiting.push({ edit, resolve, reject })
      if (!saving) void saveWaiting()
      return promise
    },
  }
}
