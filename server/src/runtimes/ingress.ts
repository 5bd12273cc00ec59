/**
 * How services of a cluster are reached from outside. The way there (routes to instances, a gateway's objects) is up
 * to the runtime.
 */
import type { Policy } from '../router/policy.ts'
import type { ServiceKey } from './runtime.ts'

/** A host name, and the port of the program that it is routed to. */
export interface ExposedHost {
  /** Lower case, without a port. */
  host: string
  internalPort: number
  protocol: 'HTTP' | 'GRPC'
  /** Only requests below this prefix, the longest of its host; absent: all. */
  path?: string
  /** The path that the program gets in place of `path`. */
  rewrite?: string
}

/** A port of the cluster's ingress, and the port of the program that it is routed to. */
export interface ExposedPort {
  externalPort: number
  internalPort: number
  protocol: 'TCP' | 'UDP'
}

/** The public names and ports of a service. */
export interface Exposure {
  hosts: readonly ExposedHost[]
  /** Closed for a stopped service, whereas its hosts answer that it is stopped. */
  ports: readonly ExposedPort[]
  /** For a service that publishes itself: the hosts that it may use, and wildcards of such. */
  domains?: readonly string[]
  /** How requests to its hosts are treated; absent: the default. */
  policy?: Policy
}

/** A service as it should be reached from outside. */
export interface Publication {
  /** With its organization, whose services share resources of the router, if that is known. */
  service: ServiceKey & { organizationId?: string }
  /** The revision whose instances answer; null: the service is stopped. */
  revision: string | null
  exposure: Exposure
  /** How many of them get requests, the first ones; absent: all. */
  instances?: number
  /** None runs: its hosts park requests until one does (`asleep`), or answer that none could be started (`failed`). */
  rest?: 'asleep' | 'failed' | undefined
}

/** The publications at one moment. */
export interface Published {
  /** Ids of the published services. */
  services: readonly string[]
  isAs(publication: Publication): boolean
}

export interface Ingress {
  /** Its ports share one address, where one may be taken; else each service has its own address. */
  readonly sharesPorts: boolean
  /** For one with certificates other than our router's: who issues them in the cluster, if any. */
  readonly certificates?: { issuer: string | null }
  /**
   * Publishes exactly this for a service, whether its instances run or not. Resolves to sentences about parts that are
   * impossible: a port that is taken must not prevent the rest.
   */
  publish(publication: Publication): Promise<readonly string[]>
  /** For a service that may be known by its id alone. */
  unpublish(serviceId: string): Promise<void>
  /** Follows an existing publication: an instance that is no longer ready is left out at once. */
  keep(publication: Publication): void
  /** The publications of these services, or of all: one call however many they are. */
  look(services?: readonly ServiceKey[]): Promise<Published>
  /** Whether the service itself publishes this domain. Rejects if the cluster does not say. */
  leads?(service: ServiceKey, domain: string): Promise<boolean>
  /** A host name's address for users: `http://<host>:<port>`. */
  url(host: string): string
  /** A published port's address for users, `<host>:<port>`; null while it has none yet. */
  address(port: number): string | null
}
