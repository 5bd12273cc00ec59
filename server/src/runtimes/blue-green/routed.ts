/**
 * The last publication of each service, so that an instance that is not ready is left out at once, whatever a
 * deployment works on meanwhile. In memory: services unknown here wait for the reconciler's next check.
 */

import { type AnyRoute, isStreamRoute, type Router } from '../../router/router.ts'
import { areEqual } from '../../router/routes.ts'
import type { Publication } from '../ingress.ts'
import type { ServiceKey } from '../runtime.ts'
import type { Instances, PlacedInstance } from './instances.ts'
import { routesOf } from './routes.ts'

export interface RoutedParts {
  instances: Pick<Instances, 'see'>
  router: Pick<Router, 'setService' | 'routes'>
}

export interface RoutedServices {
  /** Call it before the router is updated; null: the next routes are set by other code. */
  note(serviceId: string, routed: Publication | null): void
  /** The instances that are ready have changed. */
  follow(service: ServiceKey): Promise<void>
}

const nameOf = (route: AnyRoute): string =>
  isStreamRoute(route) ? `${route.protocol} ${route.port}` : `${route.host}${route.path ?? ''}`

/** Whether routes are those of this version, apart from which of its instances get requests. */
const isSameVersion = (routes: readonly AnyRoute[], all: readonly AnyRoute[]): boolean =>
  routes.length === all.length &&
  routes.every((route) => {
    const whole = all.find((each) => nameOf(each) === nameOf(route) && each.protocol === route.protocol)
    const isPart = route.targets.every((target) =>
      whole?.targets.some(({ host, port }) => host === target.host && port === target.port),
    )
    return route.state === 'up' && isPart
  })

const asReady = (instance: PlacedInstance): PlacedInstance => ({ ...instance, unready: false })

export const createRoutedServices = ({ instances, router }: RoutedParts): RoutedServices => {
  const publications = new Map<string, Publication>()
  return {
    // A new object each time: it shows whether the publication changed during a check.
    note(serviceId, routed) {
      if (routed === null || routed.revision === null || routed.rest !== undefined) publications.delete(serviceId)
      else publications.set(serviceId, { ...routed })
    },
    async follow(service) {
      const { serviceId } = service
      const noted = publications.get(serviceId)
      if (noted === undefined) return
      const [seen, routes] = await Promise.all([instances.see([service]), router.routes()])
      const present = routes.filter((route) => route.serviceId === serviceId)
      const wanted = routesOf(noted, seen)
      if (areEqual(present, wanted)) return
      // Routes that another server has set since are left alone.
      const whole = routesOf(noted, seen.map(asReady))
      if (publications.get(serviceId) === noted && isSameVersion(present, whole))
        await router.setService(serviceId, wanted)
    },
  }
}
