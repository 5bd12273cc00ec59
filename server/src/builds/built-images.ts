/**
 * The images that this installation has built, identified by their tags, which contain the organization. Not by labels:
 * each would be another step in every build, and images derived from it would inherit them.
 */
import { type Engine, ignoreGone, isEngineError, orNull } from '../lib/docker/docker-engine.ts'

const tagOf = (contentKey: string): string => contentKey.slice(0, 16)

const imageRepository = (organizationId: string, serviceId: string): string =>
  `slipway/${organizationId.toLowerCase()}/${serviceId.toLowerCase()}`

/** Gives an image the name of a service's content. */
export const tagImage = (
  engine: Engine,
  imageId: string,
  { organizationId, serviceId }: { organizationId: string; serviceId: string },
  contentKey: string,
  signal: AbortSignal,
): Promise<void> => {
  const query = { repo: imageRepository(organizationId, serviceId), tag: tagOf(contentKey) }
  return engine.call('POST', `/images/${imageId}/tag`, { query, signal })
}

const remove = (engine: Engine, name: string): Promise<void> =>
  engine.call('DELETE', `/images/${name}`).catch((error: unknown) => {
    if (!isEngineError(error, 404, 409)) throw error
  })

const tagsLike = async (engine: Engine, references: readonly string[]): Promise<string[]> => {
  const query = { filters: JSON.stringify({ reference: references }) }
  const images = await engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json', {
    query,
    keep: [{ RepoTags: [true] }],
  })
  return images.flatMap(({ RepoTags }) => RepoTags ?? [])
}

/** An image goes only after those that were made from it. */
const removeSteps = async (engine: Engine, stepIds: readonly string[]): Promise<void> => {
  for (const id of [...stepIds].reverse()) await remove(engine, id)
}

/**
 * Removes all images that an organization built and pulled on an engine of its own, and those that builds needed for
 * them.
 */
export const removeImagesOf = async (
  engine: Engine,
  organizationId: string,
  stepIds: readonly string[],
): Promise<void> => {
  const own = `slipway/${organizationId.toLowerCase()}/`
  const tags = await tagsLike(engine, ['slipway/*', 'slipway/*/*'])
  for (const tag of tags) if (tag.startsWith(own) || tag.startsWith('slipway/tool-')) await remove(engine, tag)
  await removeSteps(engine, stepIds)
}

/** Removes an organization's names of images, and with them images that have no other name and do not run. */
export const removeNamesOf = async (
  engine: Engine,
  organizationId: string,
  imageIds: readonly string[],
): Promise<void> => {
  const own = `slipway/${organizationId.toLowerCase()}/`
  for (const id of imageIds.filter((each) => /^sha256:[0-9a-f]{64}$/.test(each))) {
    const image = await orNull(engine.call<{ RepoTags: string[] | null }>('GET', `/images/${id}/json`))
    for (const tag of image?.RepoTags ?? []) if (tag.startsWith(own)) await remove(engine, tag)
  }
}

/**
 * Removes the tags of this content, and with them the images that have no other tag and do not run; then unnamed
 * leftovers of build steps.
 */
export const removeBuiltImages = async (
  engine: Engine,
  contentKeys: readonly string[],
  stepIds: readonly string[] = [],
): Promise<void> => {
  const ours = new Set(contentKeys.map(tagOf))
  const tags = await tagsLike(engine, ['slipway/*', 'slipway/*/*'])
  for (const tag of tags.filter((each) => ours.has(each.slice(each.lastIndexOf(':') + 1)))) await remove(engine, tag)
  await removeSteps(engine, stepIds)
}

/** Removes volumes of caches, except those in use by a step. */
export const removeCaches = async (engine: Engine, volumes: readonly string[]): Promise<void> => {
  for (const volume of volumes)
    await ignoreGone(engine.call('DELETE', `/volumes/${volume}`)).catch((error: unknown) => {
      if (!isEngineError(error, 409)) throw error
    })
}
