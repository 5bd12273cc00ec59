/** The engine's API for images: pulling one from our address, and naming it. */
import type { Readable } from 'node:stream'
import { type Engine, isEngineError } from '../lib/docker/docker-engine.ts'
import { splitTag } from '../lib/docker/image-name.ts'
import { readJson } from '../lib/foreign-text/read-json.ts'
import { isDigest } from './manifest.ts'
import { ownerOf, tagPrefix } from './tags.ts'

const pullDeadlineMs = 60 * 60_000

interface ImageDetail {
  Id: string
  /** `name@sha256:…` for each name that it was pulled by. */
  RepoDigests: string[] | null
  /** The repositories that it came from, if the engine is new enough to say. */
  Identity?: { Pull?: { Repository: string }[] | null } | null
  Metadata?: { LastTagTime?: string }
}

/** Reads a response of JSON lines to its end: the engine sends 200 first and reports a failure in the last line. */
export const finish = async (stream: Readable): Promise<void> => {
  let last = ''
  for await (const chunk of stream.setEncoding('utf8')) last = (last + chunk).slice(-65_536)
  for (const line of last.split('\n')) {
    const error = /"error":("(?:[^"\\]|\\.)*")/.exec(line)?.[1]
    if (error !== undefined) throw new Error(String(readJson(error)))
  }
}

const pathOf = (image: string): string => `/images/${image.split('/').map(encodeURIComponent).join('/')}`

/** An image on the engine; null if it does not exist. */
const readImage = async (engine: Engine, image: string, signal?: AbortSignal): Promise<ImageDetail | null> => {
  try {
    return await engine.call<ImageDetail>('GET', `${pathOf(image)}/json`, { signal })
  } catch (error) {
    if (isEngineError(error, 404, 400)) return null
    throw error
  }
}

/** The engine's own id of it. */
export const findImage = async (engine: Engine, image: string, signal?: AbortSignal): Promise<string | null> =>
  (await readImage(engine, image, signal))?.Id ?? null

/** The engine omits the default registry's host and path. */
const familiar = (name: string): string => name.replace(/^docker\.io\/(library\/)?/, '')

/**
 * A reference to exactly this image: by digest where its registry knows it by one under this name, else by the engine's
 * own id. With the containerd store an image has its id for a digest under each of its names, from wherever it came:
 * there the digest counts when the engine says that it pulled the image from that repository.
 */
export const pinnedReference = (reference: string, detail: Omit<ImageDetail, 'Metadata'>): string => {
  const { Id, RepoDigests, Identity } = detail
  const { name } = splitTag(reference)
  const known = (RepoDigests ?? []).find((each) => splitTag(each).name === familiar(name))
  const digest = known === undefined ? Id : splitTag(known).tag
  const isKnown = digest !== Id || (Identity?.Pull ?? []).some(({ Repository }) => Repository === name)
  return isKnown ? `${name}@${digest}` : Id
}

/** Engines accept this header only in padded base64: without padding, two of three lengths would not work. */
export const registryAuth = (content: object): Record<string, string> => ({
  'x-registry-auth': Buffer.from(JSON.stringify(content)).toString('base64').replaceAll('+', '-').replaceAll('/', '_'),
})

export const createEngineImages = (engine: Engine) => {
  const list = (filters: object): Promise<Record<'RepoTags' | 'RepoDigests', string[] | null>[]> =>
    engine.call('GET', '/images/json', {
      query: { filters: JSON.stringify(filters) },
      keep: [{ RepoTags: [true], RepoDigests: [true] }],
    })

  return {
    find: (image: string, signal?: AbortSignal) => readImage(engine, image, signal),
    async architecture(): Promise<string> {
      return (await engine.call<{ Arch: string }>('GET', '/version')).Arch
    },
    async pull(
      repository: string,
      digest: string,
      signal: AbortSignal,
      headers?: Record<string, string>,
    ): Promise<void> {
      const query = { fromImage: repository, tag: digest }
      const options = { query, headers, signal, deadlineMs: pullDeadlineMs }
      await finish(await engine.stream('POST', '/images/create', options))
    },
    async tag(image: string, name: string): Promise<void> {
      const { name: repo, tag } = splitTag(name)
      await engine.call('POST', `${pathOf(image)}/tag`, { query: { repo, tag } })
    },
    /** Removes a name from an image, unless something runs from it. `prune`: with its last name the image goes. */
    async untag(name: string, prune: boolean): Promise<void> {
      try {
        await engine.call('DELETE', pathOf(name), { query: { noprune: !prune }, deadlineMs: 60_000 })
      } catch (error) {
        if (!isEngineError(error, 404, 409)) throw error
      }
    },
    /** The names of an organization's pulled images. */
    async tagsOf(organizationId: string): Promise<string[]> {
      const prefix = tagPrefix(organizationId)
      const rows = await list({ reference: [prefix] })
      return rows.flatMap(({ RepoTags }) => RepoTags ?? []).filter((tag) => tag.startsWith(`${prefix}:`))
    },
    async owners(): Promise<string[]> {
      const tags = (await list({ reference: ['slipway/*/pulled'] })).flatMap(({ RepoTags }) => RepoTags ?? [])
      return [...new Set(tags.map((tag) => ownerOf(tag)).filter((id) => id !== null))]
    },
    /** The names of pulls with this mark. */
    async pullsOf(mark: string): Promise<string[]> {
      const names = (await list({})).flatMap(({ RepoDigests }) => RepoDigests ?? [])
      return names.filter((name) => name.split('/')[1] === mark && isDigest(splitTag(name).tag))
    },
  }
}

export type EngineImages = ReturnType<typeof createEngineImages>
