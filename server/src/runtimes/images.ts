/** Images where a cluster's services start from them. */
import type { Secret } from '../lib/secret.ts'
import type { Progress } from './runtime.ts'

/** An image of a registry, for an organization: what others hold is not there for it. */
export interface ImageRequest {
  organizationId: string
  /** With its host: `docker.io/library/postgres:16`, or with a digest after `@`. */
  reference: string
  /** Where its registry answers; null: https of the name's host. */
  origin: URL | null
  /** Login of the registry; opened only to be sent there, or kept beside the workload where machines pull by themselves. */
  login: Secret<{ username: string; password: string }> | null
}

export interface Images {
  /**
   * The reference that the image's registry resolves it to now, by digest; null for what it does not say within 5 s.
   * Rejects with `image_denied` when it refuses the login. */
  resolve(image: ImageRequest, signal: AbortSignal): Promise<string | null>
  /** Whether services of this organization can start from what a release names. */
  isHeld(organizationId: string, reference: string, signal: AbortSignal): Promise<boolean>
  /**
   * Sees to it that services of the organization can start from an image, and resolves to a reference that never moves:
   * by digest, where there is one. What the operator put on an engine may stand in for the public registry, and
   * `progress` says so. `refresh`: also when it is held, for its tag may have moved; without, `reference` is one that a
   * release names. Rejects with a `DeploymentError` that names the image: `image_missing`, `image_denied`,
   * `image_unreachable`, `image_refused`, `registry_refused`; at the latest 30 s after the registry was last heard.
   */
  hold(image: ImageRequest & { refresh: boolean }, progress: Progress, signal: AbortSignal): Promise<string>
  /** Ids of the organizations that images are held for, those of other installations too. */
  owners(): Promise<string[]>
  /** The organization needs these no more: they go, unless something runs from them. */
  drop(organizationId: string, references: readonly string[], signal: AbortSignal): Promise<void>
  /** What is held for the organization, is not needed and was not used for so long goes. */
  sweep(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<void>
}
