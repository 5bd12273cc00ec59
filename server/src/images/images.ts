/**
 * Images of registries, kept on the engine per organization.
 *
 * Promises: a registry is asked with the organization's own login before any of its images is used, by our own client
 * and under the policy for outgoing requests; the engine sees no credential and chooses no address. A pulled image has
 * a name of its organization on the engine, and no other. Does not know: services, releases and the database. If the
 * process dies: a pull ends with it; its temporary name is removed at the next start.
 */
import type { Secret } from '../lib/secret.ts'

export interface ImageAccess {
  organizationId: string
  /** `docker.io/library/nginx`, `127.0.0.1:5000/team/app` */
  repository: string
  /** A tag, or `sha256:…`. */
  tag: string
  /** The address of its registry, since the name does not say http or https. Null: https of the name's host. */
  origin: URL | null
  login: Secret<{ username: string; password: string }> | null
}

export interface HeldImage {
  /** The engine's own. */
  imageId: string
  /** `repository@sha256:…`, or the engine's id: it never moves. */
  reference: string
}

/** An organization's login for a registry, or its use of one without a login. */
export interface RegistryLogin {
  origin: URL
  login: ImageAccess['login']
}

/** The organization's own registries for the host of an image's name. */
export type RegistryLogins = (organizationId: string, host: string) => Promise<RegistryLogin[]>

export interface OrganizationImages {
  /**
   * Asks the registry with this login what the name refers to now; pulls nothing. Rejects like `pull`, and with
   * `image_unreachable` if the registry does not answer.
   */
  resolve(access: ImageAccess, signal: AbortSignal): Promise<{ digest: string }>
  /**
   * Asks the registry (always), then ensures that the engine has the image for this organization. Rejects with a
   * `DeploymentError`: `image_denied`, `image_missing`, `image_unreachable`, `image_refused` (too large, or not what
   * its digest says) or `registry_refused` (by the policy for outgoing requests). An image that the operator loaded
   * into the engine is used if the public registry does not answer or does not know the name, and `progress` says so.
   */
  pull(access: ImageAccess, progress: (text: string) => void, signal: AbortSignal): Promise<HeldImage>
  /** The engine's id of what this organization pulled by this immutable reference; else null. Asks no registry. */
  held(organizationId: string, reference: string, signal: AbortSignal): Promise<string | null>
  /** Pulls lost ones by digest with any login for the host, once for all waiters. Rejects with `image_missing`. */
  restore(
    organizationId: string,
    reference: string,
    progress: (text: string) => void,
    signal: AbortSignal,
  ): Promise<string>
  /**
   * Assigns the engine's image with this reference to the organization: for images that were pulled before they
   * belonged to organizations. Only for references of its own releases. Null if the engine has no such image.
   */
  adopt(organizationId: string, reference: string, signal: AbortSignal): Promise<string | null>
  /** The ids of the organizations that have images on the engine. */
  owners(): Promise<string[]>
  /** Removes the names of images that an organization no longer needs; images in use stay on the engine. */
  drop(organizationId: string, references: readonly string[], signal: AbortSignal): Promise<void>
  /** The names of all images that it pulled, does not need, and has not used for so long. */
  stale(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<string[]>
  /** Removes them. */
  sweep(organizationId: string, needed: readonly string[], unusedMs: number, signal: AbortSignal): Promise<void>
  close(): Promise<void>
}
