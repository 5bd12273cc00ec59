/**
 * The images that this installation has built, told by their tags. Not by labels: each would be a step more in every
 * build, and would pass to whatever a person makes from the image.
 */
import { type Engine, isEngineError } from '../lib/docker-engine.ts'

const tagOf = (contentKey: string): string => contentKey.slice(0, 16)

export const imageTag = (serviceId: string, contentKey: string): string =>
  `slipway/${serviceId.toLowerCase()}:${tagOf(contentKey)}`

/** Removes the tags of this content, and with them the images that nobody else has tagged or runs. */
export const removeBuiltImages = async (engine: Engine, contentKeys: readonly string[]): Promise<void> => {
  const ours = new Set(contentKeys.map(tagOf))
  const query = { filters: JSON.stringify({ reference: ['slipway/*'] }) }
  const images = await engine.call<{ RepoTags: string[] | null }[]>('GET', '/images/json', { query })
  const tags = images.flatMap(({ RepoTags }) => RepoTags ?? [])
  for (const tag of tags.filter((each) => ours.has(each.slice(each.lastIndexOf(':') + 1))))
    await engine.call('DELETE', `/images/${tag}`).catch((error: unknown) => {
      if (!isEngineError(error, 404, 409)) throw error
    })
}
