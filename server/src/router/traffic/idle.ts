/** How long nobody has asked for a service, by the services that the table leads to. */
import type { AnyRoute } from '../router.ts'
import type { Upstreams } from './upstreams.ts'

/**
 * In milliseconds by service; 0 while a request or a tunnel is open. One that is new counts as asked for now. `onlyUsed`:
 * those that this process was asked for.
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

/** Of services that several processes are asked for, whichever was asked last counts. */
export const leastIdle = (
  own: Record<string, number>,
  others: readonly Record<string, number>[],
): Record<string, number> =>
  Object.fromEntries(
    Object.entries(own).map(([id, ms]) => [id, Math.min(ms, ...others.map((other) => other[id] ?? ms))]),
  )
