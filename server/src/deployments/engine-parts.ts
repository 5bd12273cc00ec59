/** What the deployment engine works with; wired once in app.ts. */
import type { Builder, GitSource } from '../builds/builder.ts'
import type { Clusters } from '../clusters/clusters.ts'
import type { Kind } from '../kinds.ts'
import type { Clock } from '../lib/clock.ts'
import type { KeyedLock } from '../lib/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import type { Disk } from '../limits/disk.ts'
import type { Limits } from '../limits/limits.ts'
import type { Database, Queryable } from '../store/database.ts'
import type { Sealer } from '../store/seal.ts'
import type { EnqueueDeploymentEvent } from '../webhooks/webhooks.ts'
import type { WorkRegistry } from '../work/registry.ts'
import type { DeployableKind } from './deployments.ts'
import type { RegistryCredentials } from './registry-credentials.ts'
import type { EffectiveVariables } from './workload.ts'

export interface EngineParts {
  database: Database
  sealer: Sealer
  clusters: Clusters
  builder: Builder
  enqueue: EnqueueDeploymentEvent
  kinds: readonly DeployableKind[]
  /** Everything that each service sees, resolved, as of now; read by `db`, where the caller is in a transaction. */
  variables(serviceIds: readonly string[], db?: Queryable): Promise<ReadonlyMap<string, EffectiveVariables>>
  /** User and password of a git token; a 4xx-free `DeploymentError` when it is gone. */
  gitCredentials(organizationId: string, gitTokenId: string): Promise<GitSource['credentials']>
  /** Address and login of a container registry; null when it was deleted. */
  registryCredentials(organizationId: string, registryId: string): Promise<RegistryCredentials | null>
  /** Rejects with `OutboundRefused` for an address that nothing may be fetched from. */
  checkAddress(url: URL): Promise<unknown>
  /** What one organization may have; the usual without. */
  limits?: Limits | undefined
  /** Whether there is room for images; without, there always is. */
  disk?: Pick<Disk, 'refuseDeploy' | 'refuseImage'> | undefined
  /** Key of the fingerprints, 32 bytes, the same on every replica and over restarts. */
  fingerprintKey: Buffer
  /** Environments somebody works on in this process: a deployment, or reconcile. */
  environmentLock: KeyedLock
  /** Deployments worked on at once. */
  concurrency: number
  /** True when no other control plane can work on this database: leases of a dead process end at once. */
  alone: boolean
  /** What is done in the background tells here how it goes. */
  work: WorkRegistry
  clock: Clock
  log: Log
}

/** What the resource of a kind handed over; none is a bug. */
export const kindOf = (parts: Pick<EngineParts, 'kinds'>, kind: Kind): DeployableKind => {
  const found = parts.kinds.find((each) => each.kind === kind)
  if (found === undefined) throw new Error(`unknown service kind ${kind}`)
  return found
}
