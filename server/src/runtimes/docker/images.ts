/** Images: pulled from their registries with a login that only the engine's API sees, and named so that they never move. */
import type { Readable } from 'node:stream'
import type { Clock } from '../../lib/clock.ts'
import { type Engine, isEngineError } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { joinTag, splitTag } from '../../lib/image-name.ts'
import type { ImageRequest, Progress } from '../runtime.ts'
import { untilAborted } from './limit.ts'

const silenceMs = 30_000
const pullDeadlineMs = 60 * 60_000
const lookUpDeadlineMs = 5000
const maxTries = 3
const pauseMs = 500

/** True when the first part of the name is a host. A bare name could be anyone's on a public registry. */
export const isPullable = (image: string): boolean => {
  const slash = image.indexOf('/')
  const host = image.slice(0, Math.max(slash, 0))
  return host === 'localhost' || host.includes('.') || host.includes(':')
}

export const isImageMissing = (error: unknown): boolean =>
  isEngineError(error, 404) && /no such image|image not known|not found: .*image/i.test(error.message)

interface Detail {
  Id: string
  /** `name@sha256:…` for each registry it was pulled from or pushed to. */
  RepoDigests: string[] | null
}

/** The engine leaves out what its default registry makes of itself. */
const familiar = (name: string): string => name.replace(/^docker\.io\/(library\/)?/, '')

/** A reference to exactly this image: by digest where its registry knows it by one, else by the engine's own id. */
export const steadyReference = (reference: string, { Id, RepoDigests }: Detail): string => {
  const { name } = splitTag(reference)
  const known = (RepoDigests ?? []).find((each) => splitTag(each).name === familiar(name))
  return known === undefined ? Id : `${name}@${splitTag(known).tag}`
}

const said = (error: unknown): string => (error as Error).message.slice(0, 200).replace(/[\s.:]+$/, '')

/** What a failed pull means; null for what may pass: a registry that does not answer, or not well. */
const refusalOf = (reference: string, error: unknown): DeploymentError | null => {
  // What an image is called says nothing about why it cannot be had.
  const text = (error as Error).message.replaceAll(splitTag(reference).name, '')
  const refuse = (code: string, why: string) =>
    new DeploymentError(code, `The image ${reference} cannot be pulled: ${why} (${said(error)}).`, { cause: error })
  if (/unauthorized|denied|authentication required|no basic auth|forbidden|incorrect username/i.test(text))
    return refuse('image_denied', 'its registry has no such image or does not admit this login')
  if (/manifest unknown|name unknown|no matching manifest|not found|invalid reference/i.test(text))
    return refuse('image_missing', 'its registry does not have it')
  return isEngineError(error, 400, 404) ? refuse('image_missing', 'its registry does not have it') : null
}

const unreachable = (reference: string, why: string, cause: unknown) =>
  new DeploymentError('image_unreachable', `The image ${reference} cannot be pulled: ${why}.`, { cause })

/** The engine answers 200 first and tells a failure as the last line of the stream. */
const finish = async (stream: Readable, onChunk: () => void): Promise<void> => {
  let last = ''
  for await (const chunk of stream.setEncoding('utf8')) {
    last = (last + chunk).slice(-4096)
    if (!String(chunk).includes('"error"')) onChunk()
  }
  const error = /"error":("(?:[^"\\]|\\.)*")/.exec(last)?.[1]
  if (error !== undefined) throw new Error(JSON.parse(error) as string)
}

/** Aborts when `heard` was not called for a while. */
const createSilence = () => {
  const controller = new AbortController()
  const end = () => controller.abort(new Error('silence'))
  let timer = setTimeout(end, silenceMs).unref()
  return {
    signal: controller.signal,
    heard: () => {
      clearTimeout(timer)
      timer = setTimeout(end, silenceMs).unref()
    },
    end: () => clearTimeout(timer),
  }
}

const headersOf = ({ reference, login }: ImageRequest): Record<string, string> => {
  if (login === null) return {}
  const serveraddress = reference.slice(0, reference.indexOf('/'))
  const text = JSON.stringify({ ...login.reveal(), serveraddress })
  return { 'x-registry-auth': Buffer.from(text).toString('base64url') }
}

/** What the engine holds may stand in, unless it came from a registry that now denies it. */
const mayStandIn = (error: unknown, { RepoDigests }: Detail): boolean => {
  const code = error instanceof DeploymentError ? error.code : ''
  return code === 'image_unreachable' || (code === 'image_missing' && (RepoDigests ?? []).length === 0)
}

export const createImages = (engine: Engine, clock: Clock) => {
  const pulling = new Map<string, Promise<void>>()

  const find = async (reference: string, signal?: AbortSignal): Promise<Detail | null> => {
    try {
      const path = reference.split('/').map(encodeURIComponent).join('/')
      return await engine.call<Detail>('GET', `/images/${path}/json`, { signal })
    } catch (error) {
      if (isEngineError(error, 404, 400)) return null
      throw error
    }
  }

  const pullOnce = async (image: ImageRequest, onChunk: () => void, signal: AbortSignal): Promise<void> => {
    const { name, tag } = splitTag(image.reference)
    const options = { query: { fromImage: name, tag }, headers: headersOf(image), signal, deadlineMs: pullDeadlineMs }
    await finish(await engine.stream('POST', '/images/create', options), onChunk)
  }

  /** Up to three tries, and no longer than the registry is silent. */
  const pullNow = async (image: ImageRequest, signal: AbortSignal): Promise<void> => {
    const { reference } = image
    const silence = createSilence()
    const both = AbortSignal.any([signal, silence.signal])
    try {
      for (let tries = 1; ; tries += 1)
        try {
          return await pullOnce(image, silence.heard, both)
        } catch (error) {
          signal.throwIfAborted()
          if (silence.signal.aborted) throw unreachable(reference, 'nothing came from its registry for 30 s', error)
          if (error instanceof DeploymentError) throw error
          const refusal = refusalOf(reference, error)
          if (refusal !== null) throw refusal
          if (tries === maxTries) throw unreachable(reference, said(error), error)
          await clock.sleep(pauseMs * tries, both).catch(() => {})
        }
    } finally {
      silence.end()
    }
  }

  const pull = async (image: ImageRequest, progress: Progress, signal: AbortSignal): Promise<string> => {
    const { reference } = image
    const held = await find(reference, signal)
    if (held !== null && !image.refresh) return steadyReference(reference, held)
    progress(`Pulling the image ${reference}`)
    try {
      await pullNow(image, signal)
    } catch (error) {
      if (held === null || !mayStandIn(error, held)) throw error
      progress(`${(error as Error).message} The engine holds one of this name, which is used.`)
      return steadyReference(reference, held)
    }
    const pulled = await find(reference, signal)
    if (pulled === null) throw new DeploymentError('image_missing', `The image ${reference} was pulled and is gone.`)
    return steadyReference(reference, pulled)
  }

  /** What the registry calls the image now; null when it does not say. */
  const askDigest = async (image: ImageRequest, signal: AbortSignal): Promise<string | null> => {
    const { name, tag } = splitTag(image.reference)
    const path = joinTag(name, tag).split('/').map(encodeURIComponent).join('/')
    const options = { headers: headersOf(image), signal, deadlineMs: lookUpDeadlineMs }
    try {
      const told = await engine.call<{ Descriptor: { digest: string } }>('GET', `/distribution/${path}/json`, options)
      return `${name}@${told.Descriptor.digest}`
    } catch {
      signal.throwIfAborted()
      return null
    }
  }

  const lookUp = async (image: ImageRequest, signal: AbortSignal): Promise<string | null> => {
    const told = image.refresh ? await askDigest(image, signal) : null
    if (told !== null) return told
    const held = await find(image.reference, signal)
    return held === null ? null : steadyReference(image.reference, held)
  }

  const missing = (image: string, why: string, cause?: unknown) =>
    new DeploymentError('image_missing', `The image ${image} is not there${why}.`, { cause })

  return {
    pull,
    lookUp,
    /** For an image that went away: one attempt for all who wait. Rejects with `image_missing`. */
    restore: (image: string, progress: Progress, signal: AbortSignal): Promise<void> => {
      if (!isPullable(image)) return Promise.reject(missing(image, ', and its name does not say from where to pull it'))
      const running = pulling.get(image)
      if (running !== undefined) return untilAborted(running, signal)
      progress(`Pulling the image ${image}`)
      const work = pullNow({ reference: image, login: null, refresh: true }, AbortSignal.timeout(pullDeadlineMs))
        .catch((error: unknown) => {
          if (error instanceof DeploymentError && error.code === 'engine_unavailable') throw error
          throw missing(image, ` and could not be pulled: ${said(error)}`, error)
        })
        .finally(() => pulling.delete(image))
      pulling.set(image, work)
      return untilAborted(work, signal)
    },
  }
}

export type Images = ReturnType<typeof createImages>
