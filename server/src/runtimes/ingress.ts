/**
 * How the world reaches services of a cluster. What leads there (routes to instances, a gateway's objects) is the
 * runtime's own matter.
 */
import type { Policy } from '../router/policy.ts'
import type { ServiceKey } from './runtime.ts'

/** A host name, and the port of the program that it leads to. */
export interface ExposedHost {
  /** Lower case, without a port. */
  host: string
  internalPort: number
  protocol: 'HTTP' | 'GRPC'
  /** Only requests below this prefix, the longest of its host's; absent: all. */
  path?: string
  /** What the program sees in place of `path`. */
  rewrite?: string
}

/** A port of the cluster's ingress, and the port of the program that it leads to. */
export interface ExposedPort {
  externalPort: number
  internalPort: number
  protocol: 'TCP' | 'UDP'
}

/** By which names and ports the world reaches a service. */
export interface Exposure {
  hosts: readonly ExposedHost[]
  /** Of a stopped service they are closed, whereas its hosts say that it is stopped. */
  ports: readonly ExposedPort[]
  /** Of a service that makes its own way there: the hosts that it may be reached by, and wildcards of such. */
  domains?: readonly string[]
  /** How requests to its hosts are treated; absent: as usual. */
  policy?: Policy
}

/** A service as the world is to find it. */
export interface Publication {
  /** With the organization that shares the ways there among its services, if that is known. */
  service: ServiceKey & { organizationId?: string }
  /** Whose instances answer; null: the service is stopped. */
  revision: string | null
  exposure: Exposure
  /** How many of them get requests, the first ones; absent: all. */
  instances?: number
  /** None runs: its hosts hold requests until one does (`asleep`), or say that none could be started (`failed`). */
  rest?: 'asleep' | 'failed' | undefined
}

/** What is published at one moment. */
export interface Published {
  /** Ids of the services that anything is published of. */
  services: readonly string[]
  isAs(publication: Publication): boolean
}

export interface Ingress {
  /** Its ports are all of one address, where something else may hold one; else each service has an address of its own. */
  readonly sharesPorts: boolean
  /**
   * Of one whose certificates are not our router's: who orders them in the cluster, if anybody does.
   */
  readonly certificates?: { issuer: string | null }
  /**
   * Publishes this, and nothing else, of a service whose instances run or not. Answers in sentences what cannot be had:
   * a port that something else holds must not keep the rest.
   */
  publish(publication: Publication): Promise<readonly string[]>
  /** Of a service that may be known by its id alone. */
  unpublish(serviceId: string): Promise<void>
  /** Goes on with what was found to be published so: an instance that is not ready any more is left out at once. */
  keep(publication: Publication): void
  /** What is published of these services, or of all: one look however many they are. */
  look(services?: readonly ServiceKey[]): Promise<Published>
  /** Whether what the service itself has made there leads this domain. Rejects when the cluster does not say. */
  leads?(service: ServiceKey, domain: string): Promise<boolean>
  /** Address for people of a host name: `http://<host>:<port>`. */
  url(host: string): string
  /** Address for people of a published port, `<host>:<port>`; null while it has none yet. */
  address(port: number): string | null
}
