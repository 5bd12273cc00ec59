/** What every operation works with; wired once in wiring/services.ts. */
import type { Builder } from '../builds/builder.ts'
import type { Repositories } from '../builds/pushed/repositories.ts'
import type { Clusters } from '../clusters/clusters.ts'
import type { DatabaseModules } from '../clusters/database-modules.ts'
import type { ClusterModules } from '../clusters/modules.ts'
import type { Deployments } from '../deployments/deployments.ts'
import type { OwnPushes } from '../deployments/sources/git/own.ts'
import type { Finding } from '../lib/finding.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Secret } from '../lib/secret.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Disk } from '../limits/disk.ts'
import type { Keeping } from '../limits/keeping.ts'
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

/** The settings that the API reads: settings/settings.ts says what they mean, and their defaults. */
export interface ApiSettings {
  dataDir: string
  /** Of backup storages on this server; `backups` in the data directory without it. */
  backupFolder?: string | undefined
  adminToken?: Secret | undefined
  port: number
  routerPort: number
  routerTlsPort?: number | undefined
  domain?: string | undefined
  apiHost?: string | undefined
  acme?: { dns?: { zones: readonly string[] } | undefined } | undefined
  portRange: { first: number; last: number }
  extraPorts: readonly { first: number; last: number }[]
  databasePort?: number | undefined
  rateLimit: number
  /** Failed authentications per minute and address; default 30; 0, or a `rateLimit` of 0, disables the limit. */
  failedLoginLimit?: number | undefined
  /** Requests without a caller (pages, files, webhooks, sign-ins) per minute and address; default 6000; 0: no limit. */
  anonymousLimit?: number | undefined
  anonymousTotal?: number | undefined
  metricsToken?: Secret | undefined
  trustedProxies?: readonly string[] | undefined
  corsOrigins?: readonly string[] | undefined
  consoleUrl?: string | undefined
  /** Where the built console is; default: none is served. */
  consoleFolder?: string | undefined
  publicUrl?: string | undefined
  auditDays?: number | undefined
  keeping?: Keeping | undefined
  /** Without a place there are no scheduled backups of this installation. */
  ownBackups?: { to?: string | undefined } | undefined
  previewHours?: number | undefined
  gitPollSeconds?: number | undefined
  limits?: Limits | undefined
  /** How long a whole request may take to arrive; default 30 s. */
  requestMs?: number | undefined
  pushMaxMb?: number | undefined
  clusterModules?: ClusterModules | undefined
  databaseModules?: DatabaseModules | undefined
  statusVocabulary: 'auto' | 'running' | 'deployment'
  sample: boolean
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
  /** What is wrong with this installation, for its operator; absent if nothing is checked. */
  doctor?: { look(): Promise<Finding[]> } | undefined
  settings: ApiSettings
  streams: Streams
  /** Background work reports here. */
  work: WorkRegistry
  clock: Clock
  log: Log
}
