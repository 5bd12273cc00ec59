/**
 * Images that the operator loaded into the engine, used if the public registry does not answer: only under the names
 * listed in SLIPWAY_ENGINE_IMAGES. An image with any other name may belong to somebody.
 */
import { DeploymentError } from '../lib/errors.ts'

const publicPrefix = 'docker.io/library/'

/** `redis:7` of `docker.io/library/redis:7`, if it is among these, else null. */
export const fallbackName = (
  { repository, tag }: { repository: string; tag: string },
  allowed: readonly string[],
): string | null => {
  if (!repository.startsWith(publicPrefix)) return null
  const name = repository.slice(publicPrefix.length)
  if (name === '' || name.includes('/')) return null
  const full = `${name}${tag.includes(':') ? '@' : ':'}${tag}`
  return allowed.some((each) => each === '*' || each === name || each === full) ? full : null
}

export const mayFallBack = (error: unknown): boolean =>
  error instanceof DeploymentError && (error.code === 'image_unreachable' || error.code === 'image_missing')
