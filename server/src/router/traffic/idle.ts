/** The time since the last request to each service in the table. */
import type { AnyRoute } from '../router.ts'
import type { Upstreams } from './upstreams.ts'

/**
 * In milliseconds by service; 0 while a request or a tunnel is open. A new service counts as requested now.
 * `onlyUsed`: only those that this process had requests for.
 */
export const readIdle = (
  routes: readonly AnyRoute[],
  upstreams: Upstreams,
  onlyUsed = false,
): Record<string, number> => {
  const now = performance.now()
  const idle: Record<string, number> = {}
  for (const { state, serviceId, targets } of routes)
    for (const upstream of state === 'up' ? targets.map(upstreams.of) : []) {
      const isBusy = upstream.inFlight > 0 || upstream.connections.size > 0
      if (onlyUsed && !isBusy && !upstream.wasUsed) continue
      const ms = isBusy ? 0 : Math.floor(now - upstream.usedAt)
      idle[serviceId] = Math.min(idle[serviceId] ?? ms, ms)
    }
  return idle
}

/** For services that several processes serve, the most recent request counts. */
export const leastIdle = (
  own: Record<string, number>,
  others: readonly Record<string, number>[],
): Record<string, number> =>
  Object.fromEntries(
    Object.entries(own).map(([id, ms]) => [id, Math.min(ms, ...others.map((other) => other[id] ?? ms))]),
  )
