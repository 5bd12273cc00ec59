/** From what is to be published and the instances that answer to what the router is told, and how the two compare. Pure, but for telling. */
import { isDeepStrictEqual } from 'node:util'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Router, type Target } from '../../router/router.ts'
import type { Exposure } from '../ingress.ts'
import type { PlacedInstance } from './instances.ts'

const targetsAt = (instances: readonly PlacedInstance[], port: number): Target[] =>
  instances.flatMap((instance) => instance.endpoints[port] ?? [])

/** Each leads to the port it names on every instance that has it. The ports of a stopped service are closed. */
export const routesFor = (
  serviceId: string,
  { hosts, ports }: Exposure,
  state: AnyRoute['state'],
  instances: readonly PlacedInstance[],
): AnyRoute[] => [
  ...hosts.map(({ host, internalPort, protocol }) => ({
    host,
    serviceId,
    protocol,
    state,
    targets: targetsAt(instances, internalPort),
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

/** In whatever order an engine lists its instances. */
const comparable = (route: AnyRoute): string =>
  JSON.stringify([
    route.protocol,
    isStreamRoute(route) ? route.port : route.host,
    route.state,
    route.targets.map((target) => `${target.host}:${target.port}`).sort(),
  ])

export const areEqual = (some: readonly AnyRoute[], others: readonly AnyRoute[]): boolean =>
  isDeepStrictEqual(some.map(comparable).sort(), others.map(comparable).sort())

/**
 * Tells the router all routes of a service but those whose ports cannot be had, and answers what was said of those:
 * for when the rest must not wait for them.
 */
export const routeWhatCan = async (
  router: Pick<Router, 'setService'>,
  serviceId: string,
  routes: readonly AnyRoute[],
): Promise<PortUnavailable[]> => {
  const refused: PortUnavailable[] = []
  for (let rest = [...routes]; ; ) {
    try {
      await router.setService(serviceId, rest)
      return refused
    } catch (error) {
      if (!(error instanceof PortUnavailable)) throw error
      const left = rest.filter((route) => !isStreamRoute(route) || route.port !== error.port)
      if (left.length === rest.length) throw error
      refused.push(error)
      rest = left
    }
  }
}
