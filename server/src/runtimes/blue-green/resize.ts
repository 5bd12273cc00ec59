/** Changes the number of instances of the version that serves. See `Runtime.resize`. */
import { routeWhatCan } from '../../router/routes.ts'
import { stopsFirst, unwatched } from '../rollout.ts'
import { isDown, type Runtime } from '../runtime.ts'
import type { BlueGreenParts } from './blue-green.ts'
import type { RoutedServices } from './routed.ts'
import { publicationOf, routesOf } from './routes.ts'
import { createTraffic } from './traffic.ts'

export const createResize = ({ instances, router }: BlueGreenParts, routed: RoutedServices): Runtime['resize'] => {
  const { drain } = createTraffic(router)
  return async (_service, { workload, exposure, failed }, serving, signal) => {
    signal.throwIfAborted()
    const { serviceId, revision, stopGraceMs } = workload
    const seen = await instances.see([workload])
    const own = seen.filter((instance) => instance.revision === revision)
    let current = own.filter(({ index }) => index < workload.instances)
    if (current.filter((instance) => !isDown(instance)).length < workload.instances) {
      if (own.length < seen.length && stopsFirst(workload))
        await instances.retire(workload, revision, stopGraceMs, signal)
      await instances.apply(workload, () => {}, signal)
      current = await instances.ready(workload, () => {}, signal)
    }
    const [exposed] = await Promise.all([exposure(), serving()])
    const publication = publicationOf(workload, exposed, failed)
    routed.note(serviceId, publication)
    const refused = await routeWhatCan(router, serviceId, routesOf(publication, current))
    const surplus = own.filter(({ index }) => index >= workload.instances)
    if (surplus.length > 0) {
      await drain(surplus, unwatched(signal), signal)
      await instances.shrink(workload, signal)
    }
    return { instances: current, refused: refused.map(({ message }) => message) }
  }
}
