/** From a publication and the instances that answer to the routes for the router. Pure. */
import type { AnyRoute, Target } from '../../router/router.ts'
import type { Exposure, Publication } from '../ingress.ts'
import { isAsleep, type Workload } from '../runtime.ts'
import type { PlacedInstance } from './instances.ts'

const targetsAt = (instances: readonly PlacedInstance[], port: number): Target[] =>
  instances.flatMap(({ unready, endpoints }) => (unready === true ? [] : (endpoints[port] ?? [])))

/**
 * Each route has the ports of all instances that are ready. Without any, requests are not answered: an instance that
 * reports itself as not ready gets none. The ports of a stopped service are closed.
 */
export const routesFor = (
  { serviceId, organizationId }: Pick<Publication['service'], 'serviceId' | 'organizationId'>,
  { hosts, ports, policy }: Exposure,
  state: AnyRoute['state'],
  instances: readonly PlacedInstance[],
): AnyRoute[] => {
  // A stopped service takes no share of the router.
  const owner = organizationId === undefined || state === 'stopped' ? { serviceId } : { serviceId, organizationId }
  const atHosts = hosts.map(({ internalPort, ...place }) => ({
    ...place,
    ...owner,
    state,
    targets: targetsAt(instances, internalPort),
    ...(policy === undefined ? {} : { policy }),
  }))
  const atPorts = (state === 'stopped' ? [] : ports).map(({ externalPort, internalPort, protocol }) => ({
    port: externalPort,
    ...owner,
    protocol,
    state,
    targets: targetsAt(instances, internalPort),
  }))
  return [...atHosts, ...atPorts]
}

/** The routes of a published service. */
export const routesOf = (
  { service, revision, exposure, instances, rest }: Publication,
  seen: readonly PlacedInstance[],
): AnyRoute[] => {
  if (revision === null) return routesFor(service, exposure, 'stopped', [])
  if (rest !== undefined) return routesFor(service, exposure, rest, [])
  const routed = seen.filter(
    (each) => each.revision === revision && (instances === undefined || each.index < instances),
  )
  return routesFor(service, exposure, 'up', routed)
}

/** The publication of a version that runs. */
export const publicationOf = (workload: Workload, exposure: Exposure, failed = false): Publication => ({
  service: workload,
  revision: workload.revision,
  exposure,
  ...(workload.scaling === undefined ? {} : { instances: workload.instances }),
  rest: isAsleep(workload) ? (failed ? 'failed' : 'asleep') : undefined,
})

/** Every address that requests may be in progress to. */
export const targetsOf = (instances: readonly PlacedInstance[]): Target[] =>
  instances.flatMap((instance) => Object.values(instance.endpoints))
