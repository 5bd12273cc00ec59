/** Images that the engine lacks: pulled once when their name says from where, else named in the error. */
import type { Readable } from 'node:stream'
import { type Engine, isEngineError } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { splitTag } from '../../lib/image-name.ts'
import type { Progress } from '../runtime.ts'

const pullDeadlineMs = 30_000

/** True when the first part of the name is a host. A bare name could be anyone's on a public registry. */
export const isPullable = (image: string): boolean => {
  const slash = image.indexOf('/')
  const host = image.slice(0, Math.max(slash, 0))
  return host === 'localhost' || host.includes('.') || host.includes(':')
}

export const isImageMissing = (error: unknown): boolean =>
  isEngineError(error, 404) && /no such image|image not known|not found: .*image/i.test(error.message)

/** The engine answers 200 first and tells a failure as the last line of the stream. */
const finish = async (stream: Readable): Promise<void> => {
  let last = ''
  for await (const chunk of stream.setEncoding('utf8')) last = (last + chunk).slice(-4096)
  const error = /"error":"((?:[^"\\]|\\.)*)"/.exec(last)?.[1]
  if (error !== undefined) throw new Error(error)
}

export const createImages = (engine: Engine) => {
  const pulling = new Map<string, Promise<void>>()

  const missing = (image: string, why: string, cause?: unknown) =>
    new DeploymentError('image_missing', `The image ${image} is not there${why}.`, { cause })

  const pullOnce = async (image: string): Promise<void> => {
    const { name, tag } = splitTag(image)
    const signal = AbortSignal.timeout(pullDeadlineMs)
    try {
      const query = { fromImage: name, tag }
      await finish(await engine.stream('POST', '/images/create', { query, signal, deadlineMs: pullDeadlineMs }))
    } catch (error) {
      if (signal.aborted) throw missing(image, ', and pulling it took longer than 30 s', error)
      if (error instanceof DeploymentError) throw error
      throw missing(image, ` and could not be pulled: ${(error as Error).message.slice(0, 200)}`, error)
    }
  }

  /** Makes a missing image be there, one attempt for all who wait; rejects with `image_missing`. */
  return {
    pull: (image: string, progress: Progress): Promise<void> => {
      if (!isPullable(image)) return Promise.reject(missing(image, ', and its name does not say from where to pull it'))
      const running = pulling.get(image)
      if (running !== undefined) return running
      progress(`Pulling the image ${image}`)
      const pull = pullOnce(image).finally(() => pulling.delete(image))
      pulling.set(image, pull)
      return pull
    },
  }
}

export type Images = ReturnType<typeof createImages>
