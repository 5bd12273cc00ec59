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

/** An engine deletes files before it answers. */
const removeDeadlineMs = 5 * 60_000

/** False if something still needs the image: a container, or an image that was made from it. */
const remove = async (engine: Engine, name: string): Promise<boolean> => {
  try {
    await engine.call('DELETE', `/images/${name}`, { deadlineMs: removeDeadlineMs })
    return true
  } catch (error) {
    if (!isEngineError(error, 404, 409)) throw error
    return error.status === 404
  }
}

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

const imageId = /^sha256:[0-9a-f]{64}$/
type Names = Record<'RepoTags' | 'RepoDigests', string[] | null>

/** Whether a name is that of an image which this organization built; those that it pulled have names of their own. */
const isBuiltName = (organizationId: string, name: string): boolean => {
  const own = `slipway/${organizationId.toLowerCase()}/`
  return name.startsWith(own) && !name.startsWith(`${own}pulled:`)
}

/**
 * Removes the names of images that an organization built, and with them images that have no other name and do not run.
 * Resolves to those that keep a name because something runs from them.
 */
export const removeNamesOf = async (
  engine: Engine,
  organizationId: string,
  imageIds: readonly string[],
): Promise<string[]> => {
  const kept: string[] = []
  for (const id of imageIds.filter((each) => imageId.test(each))) {
    const image = await orNull(engine.call<Names>('GET', `/images/${id}/json`))
    if (image === null) continue
    const names = [...(image.RepoTags ?? []), ...(image.RepoDigests ?? [])]
    // One without any name is left of a removal that was interrupted.
    const own = names.length === 0 ? [id] : names.filter((name) => isBuiltName(organizationId, name))
    let isGone = true
    for (const name of own) isGone = (await remove(engine, name)) && isGone
    if (!isGone) kept.push(id)
  }
  return kept
}

/** Removes images without a name, unless something needs them. Resolves to those that stay. */
export const removeLayers = async (engine: Engine, imageIds: readonly string[]): Promise<string[]> => {
  const kept: string[] = []
  for (const id of imageIds.filter((each) => imageId.test(each))) if (!(await remove(engine, id))) kept.push(id)
  return kept
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
