/** What every operation works with; wired once in wiring/services.ts. */
import type { Builder } from '../builds/builder.ts'
import type { Repositories } from '../builds/pushed/repositories.ts'
import type { Clusters } from '../clusters/clusters.ts'
import type { DatabaseModules } from '../clusters/database-modules.ts'
import type { ClusterModules } from '../clusters/modules.ts'
import type { Deployments } from '../deployments/deployments.ts'
import type { OwnPushes } from '../deployments/sources/git/own.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Secret } from '../lib/secret.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Disk } from '../limits/disk.ts'
import type { Limits } from '../limits/limits.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { WorkRegistry } from '../work/registry.ts'

import type { Streams } from './streams.ts'

export interface OidcSettings {
  /** Exactly as in the `iss` claim of tokens. */
  issuer: string
  audience: readonly string[]
  /** Addresses whose owners become owner or admins of the first organization, in lower case. */
  adminEmails: readonly string[]
  /** Enables sign-in by browser. */
  clientId?: string | undefined
  clientSecret?: Secret | undefined
}

/** The settings that the API reads. */
export interface ApiSettings {
  dataDir: string
  /** `SLIPWAY_ADMIN_TOKEN`; without it a token is generated at the first start. */
  adminToken?: Secret | undefined
  /** Where the server and the router listen: no service can have these. */
  port: number
  routerPort: number
  routerTlsPort?: number | undefined
  /** The domain of services' names; default `localhost`. */
  domain?: string | undefined
  /** Where the router publishes the API; default nowhere. */
  apiHost?: string | undefined
  /** Below which zones custom domains can be wildcards; default none can. */
  acme?: { dns?: { zones: readonly string[] } | undefined } | undefined
  /** Ports of this machine for services, both ends included. */
  portRange: { first: number; last: number }
  /** Further ports that a service may ask for. */
  extraPorts: readonly { first: number; last: number }[]
  /** Port of a database on this machine: no service can use it either. */
  databasePort?: number | undefined
  /** Requests per minute and token; 0 disables the limit. */
  rateLimit: number
  /** Failed authentications per minute and address; default 30; 0, or a `rateLimit` of 0, disables the limit. */
  failedLoginLimit?: number | undefined
  /** Requests without a caller (pages, files, webhooks, sign-ins) per minute and address; default 6000; 0: no limit. */
  anonymousLimit?: number | undefined
  /** The same of all addresses together; default 30000. */
  anonymousTotal?: number | undefined
  /** For `/metrics`; without it the operator's token and programs on this machine may read them. */
  metricsToken?: Secret | undefined
  /** Addresses and networks of proxies whose forwarding headers are trusted; default none. */
  trustedProxies?: readonly string[] | undefined
  /** Origins of web pages that may call the API from a browser; default none. */
  corsOrigins?: readonly string[] | undefined
  /** Where people use the console, for links; default the address of the request. */
  consoleUrl?: string | undefined
  /** Where the built console is; default: none is served. */
  consoleFolder?: string | undefined
  /** The address of the API for other machines, for git hosts; without it webhooks cannot be set up. */
  publicUrl?: string | undefined
  /** How long events of the audit log are kept; 0: for good; default 400. */
  auditDays?: number | undefined
  /** How long an environment of a pull request is kept without a push; default a week. */
  previewHours?: number | undefined
  /** How often git hosts are polled for pull requests; 0: only after a webhook's delivery; default 60. */
  gitPollSeconds?: number | undefined
  /** Limits of one organization; defaults apply without it. */
  limits?: Limits | undefined
  /** How long a whole request may take to arrive; default 30 s. */
  requestMs?: number | undefined
  /** The size limit of one push to a repository on this server; default 200. */
  pushMaxMb?: number | undefined
  /** By which clusters are made at cloud providers; default none. */
  clusterModules?: ClusterModules | undefined
  /** By which databases in MANAGED mode are made; default none. */
  databaseModules?: DatabaseModules | undefined
  statusVocabulary: 'auto' | 'running' | 'deployment'
  /** The first start deploys a sample application. */
  sample: boolean
  /** Whose JWTs are accepted; default none. */
  oidc?: OidcSettings | undefined
}

export interface Parts {
  database: Database
  sealer: Sealer
  /** `own`: pushes to the repositories that applications have on this server. */
  deployments: Deployments & { readonly own: OwnPushes }
  builder: Builder
  /** Those that applications have on this server; absent if it keeps none. */
  repositories?: Repositories | undefined
  clusters: Clusters
  outbound: Outbound
  /** The same, plus the address of the OIDC issuer. */
  issuerOutbound?: Outbound | undefined
  /** Free and used space; absent if nothing is watched. */
  disk?: Disk | undefined
  /** Sends what waits in the outbox; absent if nothing is delivered. */
  delivery?: { deliver(outboxId: string): Promise<unknown> } | undefined
  settings: ApiSettings
  streams: Streams
  /** Background work reports here. */
  work: WorkRegistry
  clock: Clock
  log: Log
}
