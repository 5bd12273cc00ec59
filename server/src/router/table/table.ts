/** The route table as a value: checking, replacing, looking up. Pure. */
import { checkPolicy, type Policy } from '../policy.ts'
import { type AnyRoute, isStreamRoute, type Route, routeStates, type StreamRoute, type Target } from '../router.ts'
import { isPrefix } from './paths.ts'
import { withoutStar } from './wildcard.ts'

interface Table {
  routes: readonly AnyRoute[]
  /** More than one only for hosts with path prefixes. */
  byHost: ReadonlyMap<string, readonly Route[]>
  byPort: Record<StreamRoute['protocol'], ReadonlyMap<number, StreamRoute>>
}

/** A route that cannot be served; the message names the host or port and may be shown to the caller. */
export class InvalidRoute extends Error {}

/** The host of a Host header or `:authority`: lower case, without port and without the root's trailing dot. */
export const normalizeHost = (header: string): string => {
  const end = header.startsWith('[') ? header.indexOf(']') + 1 : header.indexOf(':')
  const name = end > 0 ? header.slice(0, end) : header
  return (name.endsWith('.') ? name.slice(0, -1) : name).toLowerCase()
}

const hostNamePattern = /^(?=.{1,253}$)(\[[0-9a-f:.]+\]|[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*)$/
export const isHostName = (text: string): boolean => hostNamePattern.test(text)
const states: readonly unknown[] = routeStates

const isTarget = (value: unknown): value is Target => {
  const { host, port } = (value ?? {}) as Partial<Target>
  return typeof host === 'string' && /^[A-Za-z0-9_.:-]{1,253}$/.test(host) && isPort(port)
}

const isPort = (port: unknown): boolean => Number.isInteger(port) && Number(port) > 0 && Number(port) < 65_536

/** The name of a route in messages. */
const nameOf = ({ host, port }: { host?: unknown; port?: unknown }): string => JSON.stringify(host ?? port ?? null)

const checkTreatment = (
  { path, rewrite, policy }: Partial<Record<keyof Route, unknown>>,
  fail: (why: string) => never,
): Pick<Route, 'path' | 'rewrite' | 'policy'> => {
  if (path !== undefined && !isPrefix(path)) fail('its path is not a prefix')
  if (rewrite !== undefined && rewrite !== '/' && !isPrefix(rewrite)) fail('its rewrite is not a path')
  const why = policy === undefined ? null : checkPolicy(policy)
  if (why !== null) fail(why)
  return {
    ...(path === undefined ? {} : { path: path as string }),
    ...(rewrite === undefined ? {} : { rewrite: rewrite as string }),
    ...(policy === undefined ? {} : { policy: policy as Policy }),
  }
}

const checkRoute = (value: unknown): AnyRoute => {
  const route = (value ?? {}) as Partial<Record<keyof Route | keyof StreamRoute, unknown>>
  const fail = (why: string): never => {
    throw new InvalidRoute(`route ${nameOf(route)}: ${why}`)
  }
  const { host, port, serviceId, organizationId, protocol, state, targets } = route
  const isStream = protocol === 'TCP' || protocol === 'UDP'
  if (isStream && (!isPort(port) || host !== undefined)) fail('its port is not a port number')
  if (!isStream && (typeof host !== 'string' || !isHostName(withoutStar(host))))
    fail('its host is not a lower-case host name')
  if (!isStream && protocol !== 'HTTP' && protocol !== 'GRPC') fail('its protocol must be HTTP, GRPC, TCP or UDP')
  if (typeof serviceId !== 'string' || serviceId === '') fail('it has no service')
  if (organizationId !== undefined && (typeof organizationId !== 'string' || organizationId === ''))
    fail('its organization is not an id')
  if (!states.includes(state)) fail('its state is unknown')
  if (!Array.isArray(targets) || !targets.every(isTarget)) fail('a target needs a host and a port')
  const place = isStream ? { port } : { host, ...checkTreatment(route, fail) }
  const own = (targets as Target[]).map(({ host, port }) => ({ host, port }))
  const owner = organizationId === undefined ? {} : { organizationId }
  return { ...place, serviceId, ...owner, protocol, state, targets: own } as AnyRoute
}

/** Validates external input. Throws `InvalidRoute`. */
export const checkRoutes = (value: unknown): AnyRoute[] => {
  if (!Array.isArray(value)) throw new InvalidRoute('routes must be an array')
  return value.map(checkRoute)
}

const byPort = (routes: readonly AnyRoute[], protocol: StreamRoute['protocol']): Map<number, StreamRoute> =>
  new Map(
    routes
      .filter((route) => isStreamRoute(route))
      .filter((route) => route.protocol === protocol)
      .map((route) => [route.port, route]),
  )

/** A host belongs to one service: routes of another service there do not count, however narrow their prefixes are. */
const byHost = (routes: readonly AnyRoute[]): Map<string, Route[]> => {
  const hosts = new Map<string, Route[]>()
  for (const route of routes) {
    if (isStreamRoute(route)) continue
    const others = (hosts.get(route.host) ?? []).filter(
      ({ serviceId, path }) => serviceId === route.serviceId && path !== route.path,
    )
    hosts.set(route.host, [...others, route])
  }
  return hosts
}

/**
 * Of two routes with the same host or port the later one is used: one that moves between services always has a route.
 */
export const buildTable = (routes: readonly AnyRoute[]): Table => ({
  routes,
  byHost: byHost(routes),
  byPort: { TCP: byPort(routes, 'TCP'), UDP: byPort(routes, 'UDP') },
})

/** Replaces the routes of one service. Throws `InvalidRoute` if one of them belongs to another service. */
export const replaceService = (
  routes: readonly AnyRoute[],
  serviceId: string,
  own: readonly AnyRoute[],
): AnyRoute[] => {
  const stray = own.find((route) => route.serviceId !== serviceId)
  if (stray !== undefined) throw new InvalidRoute(`route ${nameOf(stray)}: it belongs to another service`)
  return [...routes.filter((route) => route.serviceId !== serviceId), ...own]
}
