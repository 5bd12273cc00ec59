/** From what is to be published and the instances that answer to what the router is told. Pure. */
import type { AnyRoute, Target } from '../../router/router.ts'
import type { Exposure, Publication } from '../ingress.ts'
import { isAsleep, type Workload } from '../runtime.ts'
import type { PlacedInstance } from './instances.ts'

const targetsAt = (instances: readonly PlacedInstance[], port: number): Target[] =>
  instances.flatMap(({ unready, endpoints }) => (unready === true ? [] : (endpoints[port] ?? [])))

/**
 * Each leads to the port it names on every instance that has it and is ready. Where none is, nobody answers: a service
 * that says of itself that it cannot is not asked. The ports of a stopped service are closed.
 */
export const routesFor = (
  { serviceId, organizationId }: Pick<Publication['service'], 'serviceId' | 'organizationId'>,
  { hosts, ports, policy }: Exposure,
  state: AnyRoute['state'],
  instances: readonly PlacedInstance[],
): AnyRoute[] => {
  // What is stopped takes nothing of the router.
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

/** What the router is told of a service as it is published. */
export const routesOf = (
  { service, revision, exposure, instances, rest }: Publication,
  seen: readonly PlacedInstance[],
): AnyRoute[] => {
  if (revision === null) return routesFor(service, exposure, 'stopped', [])
  if (rest !== undefined) return routesFor(service, exposure, rest, [])
  const led = seen.filter((each) => each.revision === revision && (instances === undefined || each.index < instances))
  return routesFor(service, exposure, 'up', led)
}

/** A version that is there is published so. */
export const publicationOf = (workload: Workload, exposure: Exposure, failed = false): Publication => ({
  service: workload,
  revision: workload.revision,
  exposure,
  ...(workload.scaling === undefined ? {} : { instances: workload.instances }),
  rest: isAsleep(workload) ? (failed ? 'failed' : 'asleep') : undefined,
})

/** Every address that requests may be under way to. */
export const targetsOf = (instances: readonly PlacedInstance[]): Target[] =>
  instances.flatMap((instance) => Object.values(instance.endpoints))
