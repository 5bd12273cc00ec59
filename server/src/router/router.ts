/**
 * The router, as the control plane sees it: a separate process that outlives us and keeps its table on disk. Every call
 * is idempotent.
 */
import type { Policy } from './policy.ts'

export interface Target {
  host: string
  port: number
}

/**
 * `up`: traffic goes to the targets. `asleep`: a request waits until this changes. `stopped`, `starting` and `failed`:
 * the router says so, or closes connections at once.
 */
export const routeStates = ['up', 'asleep', 'stopped', 'starting', 'failed'] as const
type RouteState = (typeof routeStates)[number]

/** Requests to a host name, on the one port that all host names share. */
export interface Route {
  /** Lower-case host name without port. */
  host: string
  /** Only requests for this path and what is below it; of several prefixes of a host the longest counts. Absent: all. */
  path?: string
  /** What the target sees in place of `path`. */
  rewrite?: string
  serviceId: string
  /** Whose share of the router its connections are; absent: the service has one for itself. */
  organizationId?: string
  /** `GRPC`: HTTP/2 up to the target, with trailers and streams both ways. */
  protocol: 'HTTP' | 'GRPC'
  state: RouteState
  targets: Target[]
  /** Absent: the usual one. */
  policy?: Policy
}

/** Connections or datagrams to a port of this machine, on which the router listens while the route is there. */
export interface StreamRoute {
  port: number
  serviceId: string
  /** As of a route. */
  organizationId?: string
  protocol: 'TCP' | 'UDP'
  state: RouteState
  targets: Target[]
}

/** In place of a service's id, of the route to the API. */
export const apiRouteId = 'api'

export type AnyRoute = Route | StreamRoute

/** Who shares what the router has: an organization, or a service whose organization is not known. */
export const partyOf = ({ organizationId, serviceId }: AnyRoute): string => organizationId ?? serviceId

export const isStreamRoute = (route: AnyRoute): route is StreamRoute =>
  route.protocol === 'TCP' || route.protocol === 'UDP'

/** The router cannot listen on a port; the message names it and may be shown to the caller. */
export class PortUnavailable extends Error {
  readonly port: number

  constructor(message: string, port: number) {
    super(message)
    this.port = port
  }
}

/** What the router is given to serve HTTPS for a host, and to answer a certificate authority. */
export interface HostTls {
  /** PEM: the chain, and its key. Both or neither. */
  certificate?: string
  key?: string
  /** Over HTTP: `/.well-known/acme-challenge/<token>`. */
  challenge?: { token: string; answer: string } | undefined
  /** What a client is shown that offers `acme-tls/1`. */
  alpn?: { certificate: string; key: string } | undefined
}

/** What a router has been given for a host: its digest (`tlsDigest`), and whether HTTPS is served. */
export interface KnownTls {
  digest: string
  isServed: boolean
}

export interface Router {
  /** Starts the process unless one of this data directory is running, which is then adopted. */
  start(): Promise<void>
  /**
   * Replaces the routes of one service atomically: a request sees all old ones or all new ones. [] removes them. When
   * it resolves, the ports of its stream routes accept connections. Rejects with `PortUnavailable`, and with nothing
   * changed, if one of them is not available.
   */
  setService(serviceId: string, routes: AnyRoute[]): Promise<void>
  routes(): Promise<AnyRoute[]>
  /**
   * Resolves when no request, gRPC stream or TCP connection to any of these targets is open, or after `timeoutMs`, with
   * how many are left. TCP connections that are left then are closed, unless their target is still routed to: their
   * programs never close them. Websockets and other upgraded connections are neither waited for nor closed; UDP has no
   * connections.
   */
  drain(targets: Target[], timeoutMs: number, signal: AbortSignal): Promise<{ remaining: number }>
  /**
   * Serves HTTPS for this host as it says; {} ends it. Connections and handshakes under way are not disturbed. Rejects
   * if the certificate cannot be served; the one before stays.
   */
  setTls(host: string, value: HostTls): Promise<void>
  /** By host name. */
  tls(): Promise<Record<string, KnownTls>>
  /** From now on `tell` hears of each service that sleeps while requests wait for it, and again as long as they do. */
  wanted(tell: (serviceId: string) => void): void
  /** Those of these services that nobody has asked for in so many milliseconds. Of one that is not routed nothing is known. */
  idle(serviceIds: readonly string[], ms: number): Promise<string[]>
  /** The public address: `http://<host>:<port>`, or `https://…` if the host has a certificate here. */
  url(host: string): string
  /** The public address of a stream route's port: `<host>:<port>`. */
  address(port: number): string
  /** Stops the process (only `npm stop` and tests do). */
  stop(): Promise<void>
}
