/** What the engine has for an organization, identified by the names of images there. */
import type { Clock } from '../lib/time/clock.ts'
import type { EngineImages } from './engine-images.ts'
import type { HeldImage, OrganizationImages } from './images.ts'
import { pulledTag } from './tags.ts'

export const createHeldImages = (engine: EngineImages, clock: Clock) => {
  const held: OrganizationImages['held'] = async (organizationId, reference, signal) =>
    (await engine.find(pulledTag(organizationId, reference), signal))?.Id ?? null

  /** Names it again even if it already has the name, so that it counts as used today. */
  const keep = async (organizationId: string, image: HeldImage): Promise<HeldImage> => {
    await engine.tag(image.imageId, pulledTag(organizationId, image.reference))
    return image
  }

  const adopt: OrganizationImages['adopt'] = async (organizationId, reference, signal) => {
    const found = await engine.find(reference, signal)
    if (found === null) return null
    await keep(organizationId, { imageId: found.Id, reference })
    return found.Id
  }

  const drop: OrganizationImages['drop'] = async (organizationId, references, signal) => {
    for (const reference of references) {
      signal.throwIfAborted()
      await engine.untag(pulledTag(organizationId, reference), true)
    }
  }

  const sweep: OrganizationImages['sweep'] = async (organizationId, needed, unusedMs, signal) => {
    const kept = new Set(needed.map((reference) => pulledTag(organizationId, reference)))
    for (const tag of await engine.tagsOf(organizationId)) {
      signal.throwIfAborted()
      if (kept.has(tag)) continue
      const usedAt = Date.parse((await engine.find(tag, signal))?.Metadata?.LastTagTime ?? '')
      if (clock.now().getTime() - usedAt > unusedMs) await engine.untag(tag, true)
    }
  }

  return { held, keep, adopt, drop, sweep, owners: engine.owners }
}
