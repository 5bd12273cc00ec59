/** What every operation works with; wired once in app.ts. */
import type { Builder } from '../builds/builder.ts'
import type { Clusters } from '../clusters/clusters.ts'
import type { Deployments } from '../deployments/deployments.ts'
import type { Clock } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/outbound.ts'
import type { Secret } from '../lib/secret.ts'
import type { Disk } from '../limits/disk.ts'
import type { Limits } from '../limits/limits.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/seal.ts'
import type { WorkRegistry } from '../work/registry.ts'
import type { OidcSettings } from './oidc.ts'

/** The settings that the API reads. */
export interface ApiSettings {
  dataDir: string
  /** `SLIPWAY_ADMIN_TOKEN`, taken as it is; without it one is generated at the first start. */
  adminToken?: Secret | undefined
  /** Where we and the router listen: no service gets these. */
  port: number
  routerPort: number
  /** Ports of this machine for services, both ends included. */
  portRange: { first: number; last: number }
  /** Those that a service may name beside them. */
  extraPorts: readonly { first: number; last: number }[]
  /** Of a database on this machine, which no service gets either. */
  databasePort?: number | undefined
  /** Requests a minute per token, 0 is off. */
  rateLimit: number
  /** Failed authentications a minute per address; default 30, 0 is off, as it is when `rateLimit` is. */
  failedLoginLimit?: number | undefined
  /** Addresses and networks of proxies that say who a request is from; none without. */
  trustedProxies?: readonly string[] | undefined
  /** What one organization may have; the usual without. */
  limits?: Limits | undefined
  statusVocabulary: 'auto' | 'running' | 'deployment'
  /** The first start deploys a sample application. */
  sample: boolean
  /** Whose JWTs are accepted; none without. */
  oidc?: OidcSettings | undefined
}

export interface Parts {
  database: Database
  sealer: Sealer
  deployments: Deployments
  builder: Builder
  clusters: Clusters
  outbound: Outbound
  /** The same, and the address of the OIDC issuer beside. */
  issuerOutbound?: Outbound | undefined
  /** What is free and what is used; absent where nothing is watched. */
  disk?: Disk | undefined
  /** Sends what waits in the outbox; absent where nothing is delivered. */
  delivery?: { deliver(outboxId: string): Promise<unknown> } | undefined
  settings: ApiSettings
  /** What is done in the background tells here how it goes. */
  work: WorkRegistry
  clock: Clock
  log: Log
}
