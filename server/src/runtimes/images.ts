/** Images where a cluster's services start from them. */
import type { Secret } from '../lib/secret.ts'
import type { Progress } from './runtime.ts'

/** An image of a registry, for an organization: images of other organizations do not exist for it. */
export interface ImageRequest {
  organizationId: string
  /** With its host: `docker.io/library/postgres:16`, or with a digest after `@`. */
  reference: string
  /** Where its registry answers; null: https of the name's host. */
  origin: URL | null
  /** Login of the registry; decrypted only to be sent there, or for machines that pull by themselves. */
  login: Secret<{ username: string; password: string }> | null
}

export interface Images {
  /**
   * The reference to which the image's registry resolves it now, by digest; null if it does not answer within 5 s.
   * Rejects with `image_denied` if it refuses the login.
   */
  resolve(image: ImageRequest, signal: AbortSignal): Promise<string | null>
  /** Whether services of this organization can start from a release's image. */
  isHeld(organizationId: string, reference: string, signal: AbortSignal): Promise<boolean>
  /**
   * Ensures that services of the organization can start from an image, and resolves to a reference that never moves:
   * by digest, if there is one. An image that the operator put on an engine may replace the public registry's, and
   * `progress` says so. `refresh`: also if it is held, because its tag may have moved; without, `reference` is one of
   * a release. Rejects with a `DeploymentError` that names the image: `image_missing`, `image_denied`,
   * `image_unreachable`, `image_refused`, `registry_refused`; at the latest 30 s after the registry's last answer.
   */
  hold(image: ImageRequest & { refresh: boolean }, progress: Progress, signal: AbortSignal): Promise<string>
  /** Ids of the organizations that images are held for, those of other installations too. */
  owners(): Promise<string[]>
  /** Releases images that the organization no longer needs: they are removed, unless something runs from them. */
  drop(organizationId: string, references: readonly string[], signal: AbortSignal): Promise<void>
  /** The names of images that `sweep` would remove; absent where none are held. */
  stale?(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<string[]>
  /** Removes images that are held for the organization, not needed and not used for so long. */
  sweep(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<void>
}
