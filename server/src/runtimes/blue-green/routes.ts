/** From what is to be published and the instances that answer to what the router is told. Pure. */
import type { AnyRoute, Target } from '../../router/router.ts'
import type { Exposure } from '../ingress.ts'
import type { PlacedInstance } from './instances.ts'

const targetsAt = (instances: readonly PlacedInstance[], port: number): Target[] =>
  instances.flatMap(({ unready, endpoints }) => (unready === true ? [] : (endpoints[port] ?? [])))

/**
 * Each leads to the port it names on every instance that has it and is ready. Where none is, nobody answers: a service
 * that says of itself that it cannot is not asked. The ports of a stopped service are closed.
 */
export const routesFor = (
  serviceId: string,
  { hosts, ports, policy }: Exposure,
  state: AnyRoute['state'],
  instances: readonly PlacedInstance[],
): AnyRoute[] => [
  ...hosts.map(({ internalPort, ...place }) => ({
    ...place,
    serviceId,
    state,
    targets: targetsAt(instances, internalPort),
    ...(policy === undefined ? {} : { policy }),
  })),
  ...(state === 'stopped' ? [] : ports).map(({ externalPort, internalPort, protocol }) => ({
    port: externalPort,
    serviceId,
    protocol,
    state,
    targets: targetsAt(instances, internalPort),
  })),
]

/** Every address that requests may be under way to. */
export const targetsOf = (instances: readonly PlacedInstance[]): Target[] =>
  instances.flatMap((instance) => Object.values(instance.endpoints))
