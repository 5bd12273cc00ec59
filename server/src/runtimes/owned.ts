/** What an engine or cluster has with our labels, as it says: ids may be of services that nobody knows any more. */
import type { Instance, ServiceKey } from './runtime.ts'

export interface OwnedVolume extends ServiceKey {
  id: string
  /** As its labels say; absent where they do not. */
  organizationId?: string
  /** RFC 3339. */
  createdAt?: string
  /** What it may hold at most, in GB; absent where nothing limits it. */
  sizeGb?: number
}

export interface Owned {
  instances: Instance[]
  /** Those that have a network or namespace. */
  environments: string[]
  volumes: OwnedVolume[]
}
