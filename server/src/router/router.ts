/**
 * The traffic switch of the single machine, as the control plane sees it. The router is a process of its own that
 * outlives us; it keeps its table on disk. Every call is idempotent.
 */
export interface Target {
  host: string
  port: number
}

export interface Route {
  /** Lower-case host name without port. */
  host: string
  serviceId: string
  protocol: 'HTTP' | 'GRPC'
  /** `up`: requests go to the targets. `stopped` and `starting`: the router answers a page that says so (503). */
  state: 'up' | 'stopped' | 'starting'
  targets: Target[]
}

export interface Router {
  /** Starts the process unless one of this data directory answers; adopts it otherwise. */
  start(): Promise<void>
  /** Replaces the routes of one service at once: a request sees all old ones or all new ones. [] removes them. */
  setService(serviceId: string, routes: Route[]): Promise<void>
  /** Replaces the whole table, for reconcile: services not named are removed. */
  setAll(routes: Route[]): Promise<void>
  routes(): Promise<Route[]>
  /**
   * Resolves when no request is under way to any of these targets, or after `timeoutMs`, with what is left.
   * Websockets and other upgraded connections are not waited for.
   */
  drain(targets: Target[], timeoutMs: number, signal: AbortSignal): Promise<{ remaining: number }>
  /** Address for people: `http://<host>:<port>`. */
  url(host: string): string
  /** Ends the process (only `npm stop` and tests do). */
  stop(): Promise<void>
}
