/** The parts that the deployment engine works with; wired once in wiring/services.ts. */
import type { Builder, GitSource } from '../builds/builder.ts'
import type { Repositories } from '../builds/pushed/repositories.ts'
import type { Clusters } from '../clusters/clusters.ts'
import type { DatabaseModules } from '../clusters/database-modules.ts'
import type { Kind } from '../kinds.ts'
import type { KeyedLock } from '../lib/concurrency/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Secret } from '../lib/secret.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Disk } from '../limits/disk.ts'
import type { Keeping } from '../limits/keeping.ts'
import type { Limits } from '../limits/limits.ts'
import type { Router } from '../router/router.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import type { SecretManagers } from '../variables/external/managers.ts'
import type { ExternalReference } from '../variables/resolve.ts'
import type { EnqueueDeploymentEvent } from '../webhooks/webhooks.ts'
import type { WorkRegistry } from '../work/registry.ts'
import type { DeployableKind } from './deployments.ts'

import type { PortRoom } from './traffic/port-claims.ts'

/** The part of a resolved environment that a deployment needs. */
export interface EffectiveVariables {
  env: Record<string, string>
  files: { path: string; content: string }[]
  secretValues: string[]
  /** Where each key of `env` is defined. */
  origins: Record<string, { scope: string }>
  /** Keys whose values are in secret managers. Without `value` it has not been read: `env` has the reference. */
  external?: readonly (ExternalReference & { value?: string })[]
  /** The same with these values, by the ids of their variables. */
  fill?(values: ReadonlyMap<string, string>): EffectiveVariables
  /** The texts that count as the configuration if not the values: references to external secrets. */
  asWritten?: Pick<EffectiveVariables, 'env' | 'files' | 'external'>
  /** Keys without a value: their target does not exist. */
  leftOut?: readonly string[]
}

export interface GitTokenUse {
  organizationId: string
  gitTokenId: string
  url: string
  /** An administrator of the organization has just named this repository. */
  isApproved?: boolean
}

export interface GitAccess {
  credentials: GitSource['credentials']
  /** A sentence for a token that expires soon. */
  warning: string | null
}

export interface RegistryCredentials {
  url: string
  /** Both null if images are pulled without a login. */
  username: string | null
  password: Secret<string> | null
}

export interface ScaleTimes {
  /** How long a service has no request before it sleeps; 0: it never does. */
  sleepAfterMs: number
  /** How long its instances use more, or less, than their target before there are more, or fewer. */
  upMs: number
  downMs: number
}

export interface DeploymentParts {
  database: Database
  sealer: Sealer
  clusters: Clusters
  builder: Builder
  /** Repositories of applications on this server itself; without them pushes are refused. */
  repositories?: Pick<Repositories, 'intake'> | undefined
  enqueue: EnqueueDeploymentEvent
  kinds: readonly DeployableKind[]
  /**
   * All variables that each service sees now, resolved; read through `db` if the caller is in a transaction. With the
   * commits that are being deployed, by service.
   */
  variables(
    serviceIds: readonly string[],
    db?: Queryable,
    commits?: Readonly<Record<string, string>>,
  ): Promise<ReadonlyMap<string, EffectiveVariables>>
  /** Where the values of external secrets are read. */
  secretManagers: SecretManagers
  /** The user and password of a git token; rejects with a `DeploymentError` if it no longer exists. */
  gitCredentials(use: GitTokenUse): Promise<GitAccess>
  /** The address and login of a container registry; null if it was deleted. */
  registryCredentials(organizationId: string, registryId: string): Promise<RegistryCredentials | null>
  /** For requests to git hosts; without it nothing is reported to them. */
  outbound?: Outbound | undefined
  /** Rejects with `OutboundRefused` for an address that nothing may be fetched from. */
  checkAddress(url: URL): Promise<unknown>
  /** By which databases in MANAGED mode are made; default none. */
  databaseModules?: DatabaseModules | undefined
  /** Limits of one organization; defaults apply without it. */
  limits?: Limits | undefined
  /** How much of what has ended is kept; defaults apply without it. */
  keeping?: Keeping | undefined
  /** Ports of this machine for services; the default range without it. */
  ports?: Omit<PortRoom, 'limits'> | undefined
  /** Whether there is room for images; without it there always is. */
  disk?: Pick<Disk, 'refuseDeploy' | 'refuseImage'> | undefined
  /** The key of the fingerprints, 32 bytes, the same on every replica and across restarts. */
  fingerprintKey: Buffer
  /** Environments being worked on in this process, by a deployment or the reconciler. */
  environmentLock: KeyedLock
  /** How many deployments run at once on each cluster, besides the first of an organization with none in progress. */
  concurrency: number
  /** Whether a service needs a cluster that limits its volumes; `auto` without. */
  volumeSizes?: 'auto' | 'enforce' | undefined
  /** Percent of a machine's memory that may be promised to its running services; 0: any; default 0. */
  memoryOvercommit?: number | undefined
  /** How long a deployment waits for an engine that does not answer; the default without it. */
  engineWaitMs?: number | undefined
  /** Reports requests to services; without it none sleeps. */
  router?: Pick<Router, 'wanted' | 'idle'> | undefined
  /** When the number of a service's instances follows its use; the default times without it. */
  scaleTimes?: ScaleTimes | undefined
  /** How often each repository is polled for new commits; 0: only after a git host's delivery; default 60. */
  gitPollSeconds?: number | undefined
  /** How often each followed image tag is polled; 0: never; default 300. */
  imagePollSeconds?: number | undefined
  /** After how many days orphans are removed; 0 or absent: never automatically. */
  orphanDays?: number | undefined
  /** True when no other control plane can work on this database: leases of a dead process end at once. */
  alone: boolean
  /** Background work reports here. */
  work: WorkRegistry
  clock: Clock
  log: Log
}

/** The functions that the resource of a kind provides; it is a bug if there are none. */
export const kindOf = (parts: Pick<DeploymentParts, 'kinds'>, kind: Kind): DeployableKind => {
  const found = parts.kinds.find((each) => each.kind === kind)
  if (found === undefined) throw new Error(`unknown service kind ${kind}`)
  return found
}
