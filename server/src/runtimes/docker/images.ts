/**
 * Images of a workload: a release's image is on the engine under a name of its organization (server/src/images), or, if
 * built here, under the engine's id. No other name on the engine is used.
 */

import { findImage } from '../../images/engine-images.ts'
import type { OrganizationImages } from '../../images/images.ts'
import { pulledTag } from '../../images/tags.ts'
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import { joinTag, splitTag } from '../../lib/docker/image-name.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { ImageRequest, Images } from '../images.ts'
import type { Progress } from '../runtime.ts'

const lookUpDeadlineMs = 5000

/** `sha256:…`: the engine's own name of an image. */
const isId = (reference: string): boolean => reference.startsWith('sha256:')

/** Names an image that a registry has, and never another one. */
const isPinned = (reference: string): boolean => /^[^@]+\/[^@]+@sha256:[0-9a-f]{64}$/.test(reference)

export const isImageMissing = (error: unknown): boolean =>
  isEngineError(error, 404) && /no such image|image not known|not found: .*image/i.test(error.message)

/** The name from which a container is created. */
export const localName = (organizationId: string, reference: string): string =>
  isPinned(reference) ? pulledTag(organizationId, reference) : reference

const missing = (image: string, why: string) =>
  new DeploymentError('image_missing', `Image ${image} does not exist${why}.`)

const unnamed = (image: string) => missing(image, ', and its name has no registry to pull it from')

const accessOf = ({ organizationId, reference, origin, login }: ImageRequest) => {
  const { name: repository, tag } = splitTag(reference)
  return { organizationId, repository, tag, origin, login }
}

export interface EngineImages extends Images {
  /** For an image that was removed: one attempt for all waiters. Rejects with `image_missing`. */
  restore(organizationId: string, reference: string, progress: Progress, signal: AbortSignal): Promise<void>
}

/** `images`: none for a runtime that only ends existing containers. */
export const createImages = (engine: Engine, images: OrganizationImages | undefined): EngineImages => {
  /** Whether the engine has the image of a release of this organization. */
  const isHeld: Images['isHeld'] = async (organizationId, reference, signal) => {
    if (isId(reference)) return (await findImage(engine, reference, signal)) !== null
    if (images === undefined || !isPinned(reference)) return false
    const held = await images.held(organizationId, reference, signal)
    // It was pulled before images had organizations: its release names the owner.
    return (held ?? (await images.adopt(organizationId, reference, signal))) !== null
  }

  /** The present digest of an image in its registry; null if it is unknown. A refused login is an error. */
  const askDigest: Images['resolve'] = async (image, signal) => {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(lookUpDeadlineMs)])
    try {
      const told = await images?.resolve(accessOf(image), limited)
      return told === undefined ? null : joinTag(splitTag(image.reference).name, told.digest)
    } catch (error) {
      signal.throwIfAborted()
      const isUnknown = error instanceof DeploymentError && error.code !== 'image_denied'
      if (isUnknown || limited.aborted) return null
      throw error
    }
  }

  const hold: Images['hold'] = async (image, progress, signal) => {
    const { organizationId, reference, refresh } = image
    if (!refresh && (await isHeld(organizationId, reference, signal))) return reference
    if (isId(reference) || images === undefined) throw unnamed(reference)
    return (await images.pull(accessOf(image), progress, signal)).reference
  }

  return {
    hold,
    isHeld,
    resolve: askDigest,
    restore: async (organizationId, reference, progress, signal) => {
      if (images === undefined || !isPinned(reference)) throw unnamed(reference)
      if (await isHeld(organizationId, reference, signal)) return
      await images.restore(organizationId, reference, progress, signal)
    },
    owners: async () => (await images?.owners()) ?? [],
    drop: async (organizationId, references, signal) => images?.drop(organizationId, references, signal),
    stale: async (organizationId, needed, unusedMs, signal) =>
      (await images?.stale(organizationId, needed, unusedMs, signal)) ?? [],
    sweep: async (organizationId, needed, unusedMs, signal) => images?.sweep(organizationId, needed, unusedMs, signal),
  }
}
