/** A rollout's calls of the router, with messages for the deployment's readers. */
import { DeploymentError } from '../../lib/errors.ts'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Router } from '../../router/router.ts'
import type { Rollout } from '../runtime.ts'
import type { PlacedInstance } from './instances.ts'
import { targetsOf } from './routes.ts'

export const drainTimeoutMs = 30_000

export const createTraffic = (router: Pick<Router, 'setService' | 'drain' | 'url' | 'address'>) => ({
  /** Routes requests at once; if a port is not available, nothing changes. */
  async route(serviceId: string, routes: AnyRoute[]): Promise<void> {
    await router.setService(serviceId, routes).catch((error: unknown) => {
      if (!(error instanceof PortUnavailable)) throw error
      const sentence = `${error.message[0]!.toUpperCase()}${error.message.slice(1)}.`
      throw new DeploymentError('port_unavailable', sentence, { cause: error })
    })
  },
  /** One line for each address that is routed to the new version now. */
  reportRouted(routes: readonly AnyRoute[], { report }: Rollout): void {
    for (const route of routes)
      report(
        'switch',
        isStreamRoute(route)
          ? `${route.protocol} traffic to ${router.address(route.port)} now goes to the new version.`
          : `Requests to ${router.url(route.host)}${route.path ?? ''} now go to the new version.`,
      )
  },
  /** Waits for requests in progress to instances that end next. */
  async drain(ending: readonly PlacedInstance[], { report }: Rollout, signal: AbortSignal): Promise<void> {
    if (ending.length === 0) return
    const { remaining } = await router.drain(targetsOf(ending), drainTimeoutMs, signal)
    if (remaining > 0)
      report('drain', `${remaining} requests or connections to the old version were still open after 30 s.`)
  },
})
