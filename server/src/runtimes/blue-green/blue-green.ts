/**
 * Rollouts for runtimes that start and end single instances, with the router in front of them: a new version starts in
 * parallel to the old one, requests are switched to it at once, and the old one ends after its last answer.
 *
 * Promises: requests are routed to one version that is ready or to none, at every instant; the deployment's pointer to
 * the current version is moved after the requests, never before. Does not know: what an instance is, and how it is
 * reached from elsewhere. When the process dies: nothing is lost. The instances and the table of the router show the
 * progress, and the next `converge` resumes from there.
 */
import { apiRouteId, type Router } from '../../router/router.ts'
import { areEqual, routeWhatCan } from '../../router/routes.ts'
import type { Ingress, Publication, Published } from '../ingress.ts'
import { createConverge, stopsFirst } from '../rollout.ts'
import type { Runtime, ServiceKey } from '../runtime.ts'
import { createDriver } from './converge.ts'
import type { Instances } from './instances.ts'
import { createResize } from './resize.ts'
import { createRoutedServices, type RoutedServices } from './routed.ts'
import { routesOf } from './routes.ts'

export interface BlueGreenParts {
  instances: Instances
  router: Pick<Router, 'setService' | 'routes' | 'drain' | 'url' | 'address'>
}

/** Where nothing is published: for a runtime that only ends existing instances. */
export const noRouter: BlueGreenParts['router'] = {
  setService: async () => {},
  routes: async () => [],
  drain: async () => ({ remaining: 0 }),
  url: (host) => `http://${host}`,
  address: (port) => `localhost:${port}`,
}

const createIngress = ({ instances, router }: BlueGreenParts, routed: RoutedServices): Ingress => {
  const look = async (services?: readonly ServiceKey[]): Promise<Published> => {
    const [seen, all] = await Promise.all([instances.see(services), router.routes()])
    const ids = services && new Set(services.map(({ serviceId }) => serviceId))
    const routes = Map.groupBy(
      all.filter(({ serviceId }) => ids === undefined || ids.has(serviceId)),
      ({ serviceId }) => serviceId,
    )
    const found = Map.groupBy(seen, ({ serviceId }) => serviceId)
    return {
      services: [...routes.keys()].filter((id) => id !== apiRouteId),
      isAs(publication) {
        const { serviceId } = publication.service
        return areEqual(routesOf(publication, found.get(serviceId) ?? []), routes.get(serviceId) ?? [])
      },
    }
  }
  const keep = (publication: Publication): void => routed.note(publication.service.serviceId, publication)
  return {
    sharesPorts: true,
    look,
    keep,
    async publish(publication) {
      const { service, revision } = publication
      const seen = revision === null ? [] : await instances.see([service])
      keep(publication)
      const refused = await routeWhatCan(router, service.serviceId, routesOf(publication, seen))
      return refused.map(({ message }) => message)
    },
    unpublish(serviceId) {
      routed.note(serviceId, null)
      return router.setService(serviceId, [])
    },
    url: (host) => router.url(host),
    address: (port) => router.address(port),
  }
}

/** Methods of a `Runtime`; and `follow`, for when other instances of a service are ready than before. */
export const createBlueGreen = (
  parts: BlueGreenParts,
): Pick<Runtime, 'converge' | 'resize' | 'stopsFirst' | 'ingress'> & Pick<RoutedServices, 'follow'> => {
  const routed = createRoutedServices(parts)
  const driver = createDriver(parts, routed)
  return {
    converge: createConverge({ of: (artifact) => (artifact === 'image' ? driver : undefined), ending: () => [driver] }),
    resize: createResize(parts, routed),
    stopsFirst,
    ingress: createIngress(parts, routed),
    follow: routed.follow,
  }
}
