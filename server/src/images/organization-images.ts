/** See images.ts: the registry is asked, the engine pulls through us, and the image gets a name of its organization. */
import { createHash } from 'node:crypto'
import { untilAborted } from '../lib/concurrency/waiting.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { type EngineConnection, isLocalEngine } from '../lib/docker/engine-connection.ts'
import { splitTag } from '../lib/docker/image-name.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Clock } from '../lib/time/clock.ts'
import { type AskedImage, askDigest, askRegistry, explain, nameOf, splitHost } from './ask-registry.ts'
import { createAsking, engineFailed, maxTries, pauseMs } from './asking.ts'
import { createEngineImages, type EngineImages, pinnedReference } from './engine-images.ts'
import { createEnginePull } from './engine-pull.ts'
import type { HeldImage, ImageAccess, OrganizationImages, RegistryLogins } from './images.ts'
import { isDigest } from './manifest.ts'
import type { PullThrough } from './pull-through.ts'
import { pulledTag } from './tags.ts'

interface Running<T> {
  result: Promise<T>
  control: AbortController
  waiting: number
}

/** Work that is shared by several waiters and done once. It is aborted when no waiter is left. */
const createSharedWork = <T>() => {
  const running = new Map<string, Running<T>>()

  const begin = (key: string, work: (signal: AbortSignal) => Promise<T>): Running<T> => {
    const control = new AbortController()
    const started: Running<T> = { result: work(control.signal), control, waiting: 0 }
    const forget = () => {
      if (running.get(key) === started) running.delete(key)
    }
    started.result.then(forget, forget)
    running.set(key, started)
    return started
  }

  return {
    async join(key: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
      signal.throwIfAborted()
      const one = running.get(key) ?? begin(key, work)
      one.waiting += 1
      try {
        return await untilAborted(one.result, signal)
      } finally {
        one.waiting -= 1
        if (one.waiting === 0) {
          if (running.get(key) === one) running.delete(key)
          one.control.abort(new Error('nobody is waiting for it anymore'))
        }
      }
    },
    async close(): Promise<void> {
      const left = [...running.values()]
      for (const { control } of left) control.abort(new Error('the server is stopping'))
      await Promise.allSettled(left.map(({ result }) => result))
    },
  }
}

/** The images of an organization on the engine, identified by their names there. */
const createHeldImages = (engine: EngineImages, clock: Clock) => {
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

  const stale: OrganizationImages['stale'] = async (organizationId, needed, unusedMs, signal) => {
    const kept = new Set(needed.map((reference) => pulledTag(organizationId, reference)))
    const found: string[] = []
    for (const tag of await engine.tagsOf(organizationId)) {
      signal.throwIfAborted()
      if (kept.has(tag)) continue
      const usedAt = Date.parse((await engine.find(tag, signal))?.Metadata?.LastTagTime ?? '')
      if (clock.now().getTime() - usedAt > unusedMs) found.push(tag)
    }
    return found
  }

  const sweep: OrganizationImages['sweep'] = async (organizationId, needed, unusedMs, signal) => {
    for (const tag of await stale(organizationId, needed, unusedMs, signal)) {
      signal.throwIfAborted()
      await engine.untag(tag, true)
    }
  }

  return { held, keep, adopt, drop, stale, sweep, owners: engine.owners }
}

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

/**
 * Images that the operator loaded into the engine, used if the public registry does not answer: only under the names
 * listed in SLIPWAY_ENGINE_IMAGES. An image with any other name may belong to an organization.
 */
const mayFallBack = (error: unknown): boolean =>
  error instanceof DeploymentError && (error.code === 'image_unreachable' || error.code === 'image_missing')

interface OrganizationImagesParts {
  connection: EngineConnection
  /** An address of the engine's machine, where that is another one. */
  elsewhere?: string | undefined
  outbound: Outbound
  pullThrough: PullThrough
  registryLogins: RegistryLogins
  /** Names from SLIPWAY_ENGINE_IMAGES. */
  engineImages: readonly string[]
  maxMb: number
  /** Runs what fills the engine's disk, and stops it in time. */
  disk?: { watch<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> }
  clock: Clock
}

type Progress = (text: string) => void
type Pull = OrganizationImages['pull']
type HeldImages = ReturnType<typeof createHeldImages>

const pullMs = 60 * 60_000

/** The mark of an installation in the names of its pulls. */
export const markOf = (ownerId: string): string =>
  `slipway-${createHash('sha256').update(ownerId).digest('hex').slice(0, 12)}`

const missing = (image: string, why: string, cause?: unknown) =>
  new DeploymentError('image_missing', `Image ${image} does not exist${why}.`, { cause })

/** Asks until the architecture is known, then never again. */
const createArchitecture = (engine: EngineImages) => {
  let known: Promise<string> | undefined
  return (): Promise<string> => {
    known ??= engine.architecture()
    known.catch(() => {
      known = undefined
    })
    return known
  }
}

type Parts = OrganizationImagesParts & { engine: EngineImages; heldImages: HeldImages }

/** From a registry only. */
const createPull = (parts: Parts) => {
  const { outbound, clock, maxMb, engine, heldImages, pullThrough } = parts
  const enginePull = createEnginePull(
    engine,
    pullThrough,
    parts.elsewhere === undefined && isLocalEngine(parts.connection),
  )
  const readArchitecture = createArchitecture(engine)
  const asking = createAsking(clock)
  const pulls = createSharedWork<string>()

  const pullNow = async (access: ImageAccess, asked: AskedImage, name: string, ended: AbortSignal): Promise<string> => {
    const signal = AbortSignal.any([ended, AbortSignal.timeout(pullMs)])
    for (let tries = 1; ; tries += 1)
      try {
        const work = (inner: AbortSignal) => enginePull(access, asked, name, inner)
        return await (parts.disk === undefined ? work(signal) : parts.disk.watch(work, signal))
      } catch (error) {
        ended.throwIfAborted()
        if (signal.aborted) throw engineFailed(access, new Error('it took longer than an hour'))
        const explained = explain(access, error)
        if (explained instanceof DeploymentError) throw explained
        // A problem of the engine: it shares downloads between pulls, and another one may just have ended.
        if (tries === maxTries) throw engineFailed(access, explained)
        await clock.sleep(pauseMs * tries, signal)
      }
  }

  const pull: Pull = async (access, progress, signal) => {
    const { organizationId, repository } = access
    const platform = { architecture: await readArchitecture(), maxMb }
    const asked = await asking(access, maxTries, signal, () => askRegistry(outbound, access, platform, signal))
    const reference = `${repository}@${asked.digest}`
    const there = await heldImages.held(organizationId, reference, signal)
    if (there !== null) return heldImages.keep(organizationId, { imageId: there, reference })
    progress(`Pulling image ${nameOf(access)}`)
    const name = pulledTag(organizationId, reference)
    return { imageId: await pulls.join(name, signal, (own) => pullNow(access, asked, name, own)), reference }
  }

  const resolve: OrganizationImages['resolve'] = (access, signal) =>
    asking(access, 1, signal, async () => ({ digest: await askDigest(outbound, access, signal) }))

  return { pull, resolve, close: pulls.close }
}

/** Uses an image that the operator loaded into the engine, if the registry itself fails. */
const createFallback =
  ({ engine, heldImages, engineImages }: Parts) =>
  async (access: ImageAccess, error: unknown, progress: Progress, signal: AbortSignal): Promise<HeldImage> => {
    const name = mayFallBack(error) ? fallbackName(access, engineImages) : null
    const found = name === null ? null : await engine.find(name, signal)
    if (found === null) throw error
    progress(`${(error as Error).message} Using the image with this name that the engine already has.`)
    const reference = pinnedReference(nameOf(access), found)
    return heldImages.keep(access.organizationId, { imageId: found.Id, reference })
  }

/** With each login in turn. */
const createRestore =
  (registryLogins: RegistryLogins, pull: Pull) =>
  async (organizationId: string, reference: string, progress: Progress, signal: AbortSignal): Promise<string> => {
    const { name: repository, tag } = splitTag(reference)
    if (!repository.includes('/') || !isDigest(tag))
      throw missing(reference, ', and its name has no registry to pull it from')
    const logins = await registryLogins(organizationId, splitHost(repository).host)
    let first: unknown
    for (const way of [...logins, { origin: null, login: null }])
      try {
        return (await pull({ organizationId, repository, tag, ...way }, progress, signal)).imageId
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof DeploymentError) || error.code === 'engine_unavailable') throw error
        first ??= error
      }
    throw missing(reference, ` and could not be pulled: ${(first as Error).message.replace(/\.$/, '')}`, first)
  }

/** Temporary names left by pulls of a killed process: nothing answers at their address. */
const sweepPulls = async (engine: EngineImages, { mark, address }: PullThrough): Promise<void> => {
  for (const name of await engine.pullsOf(mark)) if (!name.startsWith(`${address}/`)) await engine.untag(name, true)
}

export const createOrganizationImages = (parts: OrganizationImagesParts): OrganizationImages => {
  const client = createEngine(parts.connection)
  const engine = createEngineImages(client)
  const heldImages = createHeldImages(engine, parts.clock)
  const all = { ...parts, engine, heldImages }
  const registry = createPull(all)
  const standIn = createFallback(all)
  const restores = createSharedWork<string>()
  // An unavailable engine must not delay the start; the next one cleans up.
  const swept = sweepPulls(engine, parts.pullThrough).catch(() => {})

  const pull: Pull = async (access, progress, signal) => {
    try {
      return await registry.pull(access, progress, signal)
    } catch (error) {
      signal.throwIfAborted()
      return standIn(access, error, progress, signal)
    }
  }
  const restore = createRestore(parts.registryLogins, pull)
  const { held, adopt, owners, drop, stale, sweep } = heldImages

  return {
    resolve: registry.resolve,
    pull,
    held,
    restore: (organizationId, reference, progress, signal) =>
      restores.join(pulledTag(organizationId, reference), signal, (own) =>
        restore(organizationId, reference, progress, own),
      ),
    adopt,
    owners,
    drop,
    stale,
    sweep,
    async close() {
      await Promise.all([registry.close(), restores.close(), swept])
      await client.close()
    },
  }
}
