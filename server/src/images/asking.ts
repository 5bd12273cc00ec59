/** How often a registry is asked and retried; a failure becomes one sentence about the image. */

import { isHub } from '../lib/docker/registry-session.ts'
import { DeploymentError } from '../lib/errors.ts'
import { OutboundFailed } from '../lib/net/outbound.ts'
import type { Clock } from '../lib/time/clock.ts'
import { explain, nameOf, splitHost } from './ask-registry.ts'
import type { ImageAccess } from './images.ts'

const unreachableMs = 10_000
export const pauseMs = 500
export const maxTries = 3

/** Caches briefly that the public registry does not answer, so that a burst of deploys asks it once. */
const createReach = (clock: Clock) => {
  let untilMs = Number.NEGATIVE_INFINITY
  let last: OutboundFailed | undefined
  return {
    /** Throws the cached failure. */
    check: ({ repository }: ImageAccess): void => {
      if (last !== undefined && isHub(splitHost(repository).host) && clock.monotonicMs() < untilMs) throw last
    },
    note: ({ repository }: ImageAccess, error: unknown): void => {
      if (!(error instanceof OutboundFailed) || error.code === 'aborted' || !isHub(splitHost(repository).host)) return
      last = error
      untilMs = clock.monotonicMs() + unreachableMs
    },
  }
}

/** The engine's own message for a pull from us. */
export const engineFailed = (access: ImageAccess, error: unknown) => {
  // The temporary name, which means nothing to a reader.
  const text = (error as Error).message.replaceAll(
    /127\.0\.0\.1:\d+\/slipway-[0-9a-f]+\/[0-9a-f]{32}/g,
    access.repository,
  )
  const said = text.slice(0, 200).replace(/[\s.:]+$/, '')
  const message = `Image ${nameOf(access)} cannot be pulled: ${said}.`
  return new DeploymentError('image_unreachable', message, { cause: error })
}

export const createAsking = (clock: Clock) => {
  const reach = createReach(clock)
  /** Retries transient failures; a registry that stays silent has already had its time. */
  return async <T>(access: ImageAccess, tries: number, signal: AbortSignal, ask: () => Promise<T>): Promise<T> => {
    for (let tried = 1; ; tried += 1)
      try {
        reach.check(access)
        return await ask()
      } catch (error) {
        signal.throwIfAborted()
        const { code } = error as { code?: string }
        if (tried < tries && (code === 'connection' || code === 'failed')) await clock.sleep(pauseMs * tried, signal)
        else {
          reach.note(access, error)
          throw explain(access, error)
        }
      }
  }
}
