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
 * the router answers with a page, or closes connections at once.
 */
export const routeStates = ['up', 'asleep', 'stopped', 'starting', 'failed'] as const
type RouteState = (typeof routeStates)[number]

export interface Route {
  /** Lower-case host name without port. */
  host: string
  /** Only requests for this path and below; the longest matching prefix of a host counts. Absent: all. */
  path?: string
  /** The path that the target gets in place of `path`. */
  rewrite?: string
  serviceId: string
  /** The organization whose share of the router its connections take; absent: the service has its own share. */
  organizationId?: string
  /** `GRPC`: HTTP/2 up to the target, with trailers and streams both ways. */
  protocol: 'HTTP' | 'GRPC'
  state: RouteState
  targets: Target[]
  /** Absent: the default policy. */
  policy?: Policy
}

/** Connections or datagrams to a port of this machine, on which the router listens while the route exists. */
export interface StreamRoute {
  port: number
  serviceId: string
  organizationId?: string
  protocol: 'TCP' | 'UDP'
  state: RouteState
  targets: Target[]
}

/** Replaces a service's id in the route to the API. */
export const apiRouteId = 'api'

export type AnyRoute = Route | StreamRoute

/** The party that shares resources of the router: an organization, or a service whose organization is not known. */
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

/** The certificate with which the router serves HTTPS for a host, and its answers to a certificate authority. */
export interface HostTls {
  /** PEM: the chain, and its key. Both or neither. */
  certificate?: string
  key?: string
  /** Over HTTP: `/.well-known/acme-challenge/<token>`. */
  challenge?: { token: string; answer: string } | undefined
  /** The certificate for clients that offer `acme-tls/1`. */
  alpn?: { certificate: string; key: string } | undefined
}

/** The present value of a host: its digest (`tlsDigest`), and whether HTTPS is served. */
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
   * Serves HTTPS for this host with the given value; {} ends it. Connections and handshakes in progress are not
   * disturbed. Rejects if the certificate cannot be served; the former one stays.
   */
  setTls(host: string, value: HostTls): Promise<void>
  /** By host name. */
  tls(): Promise<Record<string, KnownTls>>
  /** From now on calls `tell` with each sleeping service that requests wait for, and again as long as they wait. */
  wanted(tell: (serviceId: string) => void): void
  /**
   * Returns those of these services that had no request in so many milliseconds. Services that are not routed are left
   * out.
   */
  idle(serviceIds: readonly string[], ms: number): Promise<string[]>
  /** The public address: `http://<host>:<port>`, or `https://…` if the host has a certificate here. */
  url(host: string): string
  /** The public address of a stream route's port: `<host>:<port>`. */
  address(port: number): string
  /** Stops the process (only `npm stop` and tests do). */
  stop(): Promise<void>
}
