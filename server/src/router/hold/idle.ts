/** How long nobody has asked for a service, by the services that the table leads to. */
import type { AnyRoute } from '../router.ts'
import type { Upstreams } from '../table/upstreams.ts'

/** In milliseconds by service; 0 while a request or a tunnel is open. One that is new counts as asked for now. */
export const readIdle = (routes: readonly AnyRoute[], upstreams: Upstreams): Record<string, number> => {
  const now = performance.now()
  const idle: Record<string, number> = {}
  for (const { state, serviceId, targets } of routes)
    for (const upstream of state === 'up' ? targets.map(upstreams.of) : []) {
      const isBusy = upstream.inFlight > 0 || upstream.upgrades > 0 || upstream.connections.size > 0
      const ms = isBusy ? 0 : Math.floor(now - upstream.usedAt)
      idle[serviceId] = Math.min(idle[serviceId] ?? ms, ms)
    }
  return idle
}
