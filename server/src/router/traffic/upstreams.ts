/** Every target that is routed to or still in use: its connections, and its number of requests in progress. */

import { createTargetPool, type TargetPool } from '../http1/target.ts'
import { usual } from '../policy.ts'
import type { Target } from '../router.ts'
import { createSessions, type Sessions } from './h2-sessions.ts'
import { checkPresence } from './presence.ts'

export interface Upstream {
  readonly key: string
  readonly target: Target
  pool: TargetPool
  /** How long the pool's connections stay open without a request. */
  idleMs: number
  /** For gRPC. Nothing is connected before the first stream. */
  readonly sessions: Sessions
  /** Requests and open tunnels (websockets). */
  inFlight: number
  /** Closes the TCP connections to it; they count as requests in progress. */
  readonly connections: Set<() => void>
  /** Monotonic milliseconds until which others are preferred, since a connection to it failed; 0: it is fine. */
  suspectUntil: number
  /** Nothing exists at its address: requests to it fail at once. */
  isAbsent: boolean
  isChecked: boolean
  checkedAt: number
  /** Monotonic: when it last responded, or accepted a connection. */
  heardAt: number
  /** Monotonic: when a request to it ended last. */
  usedAt: number
  /** By a request of this process. */
  wasUsed: boolean
  routed: boolean
  readonly whenIdle: Set<() => void>
}

export interface Upstreams {
  of(target: Target): Upstream
  /** From now on its connections stay open this long without a request. */
  keepIdle(upstream: Upstream, idleMs: number): void
  /** A request to it begins and counts until `end`. */
  begin(upstream: Upstream): void
  end(upstream: Upstream): void
  /** As if a request to each had just ended. */
  useAll(): void
  /** Targets no longer used lose their connections as soon as no request is in progress. */
  retain(targets: Iterable<Target>): void
  /** Closes the TCP connections to those of these targets that are no longer routed to. */
  endConnections(targets: readonly Target[]): void
  /** How many requests to these targets are in progress, after waiting until there are none, or for the signal. */
  drain(targets: readonly Target[], signal: AbortSignal): Promise<number>
}

const suspicionMs = 1_000

const keyOf = ({ host, port }: Target): string => (host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`)

/** The idle time that programs announce counts, up to this. */
const longestIdleMs = 60_000

const openPool = (target: Target, idleMs: number, onLost: () => void): TargetPool =>
  createTargetPool({
    target,
    // Usually shorter than the default of programs that announce none: a socket closed by its program as we write to
    // it loses the request if it may not be repeated.
    idleMs,
    longestIdleMs: idleMs === usual.idleMs ? longestIdleMs : idleMs,
    onLost,
  })

const createUpstream = (target: Target): Upstream => {
  const key = keyOf(target)
  const upstream: Upstream = {
    key,
    target,
    // A container that exits closes its connections: we then know before the next request.
    pool: openPool(target, usual.idleMs, () => checkPresence(upstream)),
    idleMs: usual.idleMs,
    sessions: createSessions(target),
    inFlight: 0,
    connections: new Set(),
    suspectUntil: 0,
    isAbsent: false,
    isChecked: false,
    checkedAt: 0,
    heardAt: 0,
    usedAt: performance.now(),
    wasUsed: false,
    routed: true,
    whenIdle: new Set(),
  }
  return upstream
}

export const createUpstreams = (): Upstreams => {
  const known = new Map<string, Upstream>()

  const forgetIfUnused = (upstream: Upstream): void => {
    if (upstream.routed || upstream.inFlight > 0) return
    known.delete(upstream.key)
    upstream.pool.close()
    upstream.sessions.close()
  }

  const of = (target: Target): Upstream => {
    const key = keyOf(target)
    const upstream = known.get(key) ?? createUpstream(target)
    known.set(key, upstream)
    return upstream
  }

  const whenIdle = (upstream: Upstream, signal: AbortSignal): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    upstream.whenIdle.add(resolve)
    signal.addEventListener('abort', () => resolve(), { once: true })
    return promise.finally(() => upstream.whenIdle.delete(resolve))
  }

  return {
    of,
    keepIdle(upstream, idleMs) {
      if (upstream.idleMs === idleMs) return
      // Its requests in progress end first.
      upstream.pool.close()
      upstream.idleMs = idleMs
      upstream.pool = openPool(upstream.target, idleMs, () => checkPresence(upstream))
    },
    begin(upstream) {
      upstream.inFlight++
    },
    end(upstream) {
      upstream.usedAt = performance.now()
      upstream.wasUsed = true
      if (--upstream.inFlight > 0) return
      for (const tell of upstream.whenIdle) tell()
      forgetIfUnused(upstream)
    },
    useAll() {
      for (const upstream of known.values()) upstream.usedAt = performance.now()
    },
    retain(targets) {
      const routed = new Set([...targets].map(keyOf))
      for (const upstream of [...known.values()]) {
        upstream.routed = routed.has(upstream.key)
        forgetIfUnused(upstream)
      }
    },
    endConnections(targets) {
      for (const key of new Set(targets.map(keyOf))) {
        const upstream = known.get(key)
        if (upstream !== undefined && !upstream.routed) for (const end of [...upstream.connections]) end()
      }
    },
    async drain(targets, signal) {
      const busy = (): Upstream[] =>
        [...new Set(targets.map(keyOf))]
          .map((key) => known.get(key))
          .filter((one) => one !== undefined && one.inFlight > 0) as Upstream[]
      for (let left = busy(); left.length > 0 && !signal.aborted; left = busy())
        await Promise.all(left.map((upstream) => whenIdle(upstream, signal)))
      return busy().reduce((sum, upstream) => sum + upstream.inFlight, 0)
    },
  }
}

export interface Choice {
  readonly upstreams: readonly Upstream[]
  next: number
}

/** The least busy one, round robin among equals; one that just refused a connection only if there is no other. */
export const pick = (choice: Choice, tried: ReadonlySet<Upstream> | null): Upstream | undefined => {
  const { upstreams } = choice
  const first = choice.next++ % (upstreams.length || 1)
  let best: Upstream | undefined
  let bestLoad = Number.POSITIVE_INFINITY
  for (let index = 0; index < upstreams.length; index++) {
    const upstream = upstreams[(first + index) % upstreams.length]!
    if (tried?.has(upstream)) continue
    const load = upstream.inFlight + (isSuspect(upstream) ? 1e9 : 0)
    if (load < bestLoad) {
      best = upstream
      bestLoad = load
    }
  }
  return best
}

export const isSuspect = (upstream: Upstream): boolean => {
  if (upstream.isAbsent) return true
  if (upstream.suspectUntil === 0) return false
  if (performance.now() < upstream.suspectUntil) return true
  upstream.suspectUntil = 0
  return false
}

export const markSuspect = (upstream: Upstream): void => {
  upstream.suspectUntil = performance.now() + suspicionMs
  checkPresence(upstream)
}
