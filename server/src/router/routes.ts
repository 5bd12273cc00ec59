/** Routes of one service: comparing two sets of them, and setting those that are possible. */
import { isDeepStrictEqual } from 'node:util'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Router } from './router.ts'

/** Keys in order: a policy may come from a database that has an order of its own. */
const ordered = (_key: string, value: unknown): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
    : value

const treatmentOf = (route: AnyRoute): unknown[] =>
  isStreamRoute(route) || (route.path ?? route.rewrite ?? route.policy) === undefined
    ? []
    : [route.path ?? null, route.rewrite ?? null, JSON.stringify(route.policy ?? null, ordered)]

/** In whatever order targets are listed. */
const comparable = (route: AnyRoute): string =>
  JSON.stringify([
    route.protocol,
    isStreamRoute(route) ? route.port : route.host,
    route.state,
    route.organizationId ?? null,
    route.targets.map((target) => `${target.host}:${target.port}`).sort(),
    ...treatmentOf(route),
  ])

export const areEqual = (some: readonly AnyRoute[], others: readonly AnyRoute[]): boolean =>
  isDeepStrictEqual(some.map(comparable).sort(), others.map(comparable).sort())

/**
 * Sets all routes of a service except those whose ports are not available, and returns the errors about those: for
 * when the rest must not wait for them.
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
