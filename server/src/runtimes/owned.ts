/**
 * The objects with our labels on an engine or cluster, as it reports them: ids may be of services that no longer exist
 * anywhere else.
 */
import type { Instance, ServiceKey } from './runtime.ts'

export interface OwnedVolume extends ServiceKey {
  id: string
  /** From its labels; absent if they are missing. */
  organizationId?: string
  /** RFC 3339. */
  createdAt?: string
  /** Its maximum size in GB; absent without a limit. */
  sizeGb?: number
}

export interface Owned {
  instances: Instance[]
  /** Environments that have a network or namespace. */
  environments: string[]
  volumes: OwnedVolume[]
}
