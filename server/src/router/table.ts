/** The host table as a value: checking, replacing, looking up. Pure. */
import type { Route, Target } from './router.ts'

export interface Table {
  routes: readonly Route[]
  byHost: ReadonlyMap<string, Route>
}

/** A route that cannot be served; the message names the host and is fit for the caller's eyes. */
export class InvalidRoute extends Error {}

/** The host of a Host header or `:authority`: lower case, without port and without the root's trailing dot. */
export const normalizeHost = (header: string): string => {
  const end = header.startsWith('[') ? header.indexOf(']') + 1 : header.indexOf(':')
  const name = end > 0 ? header.slice(0, end) : header
  return (name.endsWith('.') ? name.slice(0, -1) : name).toLowerCase()
}

const hostName = /^(?=.{1,253}$)(\[[0-9a-f:.]+\]|[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*)$/
const states: readonly unknown[] = ['up', 'stopped', 'starting']

const isTarget = (value: unknown): value is Target => {
  const { host, port } = (value ?? {}) as Partial<Target>
  return typeof host === 'string' && /^[A-Za-z0-9_.:-]{1,253}$/.test(host) && isPort(port)
}

const isPort = (port: unknown): boolean => Number.isInteger(port) && Number(port) > 0 && Number(port) < 65_536

const checkRoute = (value: unknown): Route => {
  const route = (value ?? {}) as Partial<Route>
  const fail = (why: string): never => {
    throw new InvalidRoute(`route ${JSON.stringify(route.host ?? null)}: ${why}`)
  }
  if (typeof route.host !== 'string' || !hostName.test(route.host)) fail('its host is not a lower-case host name')
  if (typeof route.serviceId !== 'string' || route.serviceId === '') fail('it names no service')
  if (route.protocol === 'GRPC') fail('GRPC is not supported by the router of a single machine yet')
  if (route.protocol !== 'HTTP') fail('its protocol must be HTTP')
  if (!states.includes(route.state)) fail('its state must be up, stopped or starting')
  if (!Array.isArray(route.targets) || !route.targets.every(isTarget)) fail('a target needs a host and a port')
  const { host, serviceId, protocol, state, targets } = route as Route
  return { host, serviceId, protocol, state, targets: targets.map(({ host, port }) => ({ host, port })) }
}

/** Checks what came from outside. Throws `InvalidRoute`. */
export const checkRoutes = (value: unknown): Route[] => {
  if (!Array.isArray(value)) throw new InvalidRoute('routes must be an array')
  return value.map(checkRoute)
}

/** Of two routes with one host the later serves: a host that moves between services is never without one. */
export const buildTable = (routes: readonly Route[]): Table => ({
  routes,
  byHost: new Map(routes.map((route) => [route.host, route])),
})

/** The routes with those of one service replaced. Throws `InvalidRoute` when one of them is another service's. */
export const replaceService = (routes: readonly Route[], serviceId: string, own: readonly Route[]): Route[] => {
  const stray = own.find((route) => route.serviceId !== serviceId)
  if (stray !== undefined) throw new InvalidRoute(`route "${stray.host}": it belongs to another service`)
  return [...routes.filter((route) => route.serviceId !== serviceId), ...own]
}
