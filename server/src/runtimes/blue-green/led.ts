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

export interface LedParts {
  instances: Pick<Instances, 'see'>
  router: Pick<Router, 'setService' | 'routes'>
}

export interface LedBook {
  /** Call it before the router is updated; null: the next routes are set by other code. */
  note(serviceId: string, led: Publication | null): void
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

export const createLedBook = ({ instances, router }: LedParts): LedBook => {
  const book = new Map<string, Publication>()
  return {
    // A new object each time: it shows whether the publication changed during a check.
    note(serviceId, led) {
      if (led === null || led.revision === null || led.rest !== undefined) book.delete(serviceId)
      else book.set(serviceId, { ...led })
    },
    async follow(service) {
      const { serviceId } = service
      const noted = book.get(serviceId)
      if (noted === undefined) return
      const [seen, routes] = await Promise.all([instances.see([service]), router.routes()])
      const present = routes.filter((route) => route.serviceId === serviceId)
      const wanted = routesOf(noted, seen)
      if (areEqual(present, wanted)) return
      // Routes that another server has set since are left alone.
      const whole = routesOf(noted, seen.map(asReady))
      if (book.get(serviceId) === noted && isSameVersion(present, whole)) await router.setService(serviceId, wanted)
    },
  }
}
