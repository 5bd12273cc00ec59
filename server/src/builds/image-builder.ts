/**
 * The builder of one Docker engine, on this machine or another (see builder.ts for its promises). Does not know
 * deployments. When the process dies here: the engine ends a piece whose client is gone, and steps, holders and
 * networks of the killed build are removed before the next one.
 */
import type { Readable } from 'node:stream'
import { findImage } from '../images/engine-images.ts'
import { type ListedImage, listedImages } from '../images/listed-image.ts'
import { createKeyedLock, withLock } from '../lib/concurrency/keyed-lock.ts'
import { createSemaphore } from '../lib/concurrency/semaphore.ts'
import { createEngine } from '../lib/docker/docker-engine.ts'
import { defaultConnection, type EngineConnection, isLocalEngine } from '../lib/docker/engine-connection.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Log } from '../lib/log.ts'
import type { Outbound } from '../lib/net/outbound.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Queryable } from '../store/database.ts'
import type { BuildRequest, BuiltImage, Destination, ImageBuilder, ToolBuild } from './builder.ts'
import { removeLayers, removeNamesOf, tagImage } from './built-images.ts'
import { type CacheStore, createCacheStore } from './cache-store.ts'
import { type BaseImageParts, createBaseImages } from './engine/base-image.ts'
import { createBuildContainers } from './engine/build-containers.ts'
import { type BuildLog, createBuildLog } from './engine/build-log.ts'
import { createDiskReserve } from './engine/disk-reserve.ts'
import { createDownloads } from './engine/downloads.ts'
import { createEnginePlatform } from './engine/engine-platform.ts'
import { buildImage } from './engine/image-build.ts'
import { createStepCaches } from './engine/step-caches.ts'
import type { SourceTree } from './git/source-tree.ts'
import { createImageStore, type ImageOwner, type ImageStore } from './image-store.ts'
import { baseNames, type Platform, planStages, type StagePlan, secretIds } from './preparation/build-plan.ts'
import { contentKey, type OwnDockerfile } from './preparation/context.ts'
import { pickBuildArgs } from './preparation/dockerfile.ts'
import type { Preparation } from './preparation/preparation.ts'
import { findSecret } from './preparation/run-mounts.ts'
import { usualPreparation } from './preparation-limits.ts'
import { createTools, type ToolPaths } from './tools.ts'

export interface ImageBuilderParts extends Pick<BaseImageParts, 'images' | 'registryLogins' | 'busyboxPath'> {
  database: Queryable
  /** Folder for the lists of objects that a build creates: for this engine alone. */
  folder: string
  /** Default: the engine of this machine. */
  connection?: EngineConnection
  /** An address of the engine's machine, where that is another one. */
  elsewhere?: string | undefined
  preparation: Preparation
  log: Log
  clock: Clock
  /** For downloads of ADD. */
  outbound: Outbound
  /** The size limit of a download. Default 500 MiB. */
  downloadBytes?: number | undefined
  concurrency: number
  /** See `BuildNetworkParts`. */
  allowed?: readonly string[]
  dns?: string | undefined
  /** Space on the engine's disk that is reserved for everything except builds. */
  diskReserveMb?: number
  /** Limit for the caches of an organization's steps between builds, on this engine. */
  cacheMb?: number
  /** Days after which a cache that no build has used is removed. */
  cacheDays?: number
  /** For tests. */
  store?: ImageStore
  cacheStore?: CacheStore
  tools?: ToolPaths
}

/** The plan of a build, known before anything is built. */
interface Plan {
  tree: SourceTree
  stages: StagePlan
  baseNames: string[]
  /** The name of the image around the tool, or the script, that this build is for. */
  toolImage: string | null
}

/** `withTimeout` aborts with `build_timeout`; its `signal` has the reason; `dispose` cancels it. */
const limitTime = (timeoutMs: number, outer: AbortSignal[]) => {
  const control = new AbortController()
  const seconds = Math.ceil(timeoutMs / 1000)
  const timer = setTimeout(
    () => control.abort(new DeploymentError('build_timeout', `The build did not finish within ${seconds} s.`)),
    timeoutMs,
  )
  return {
    signal: AbortSignal.any([control.signal, ...outer]),
    [Symbol.dispose]: () => clearTimeout(timer),
  }
}

const createPlanner =
  (
    preparation: Preparation,
    platform: (signal: AbortSignal) => Promise<Platform>,
    toolImage: (tool: ToolBuild) => Promise<string>,
  ) =>
  async (request: BuildRequest, signal: AbortSignal): Promise<Plan> => {
    const { tree, dockerfile } = await preparation.read(request, signal)
    const image = request.tool === undefined ? null : await toolImage(request.tool)
    const own: Record<string, string> = image === null ? {} : { SLIPWAY_TOOL: image }
    const buildArgs = pickBuildArgs(dockerfile, { ...request.variables.reveal(), ...own })
    const stages = planStages(dockerfile, buildArgs, request.targetStage, await platform(signal))
    return { tree, stages, baseNames: baseNames(stages), toolImage: image }
  }

/** A commit that was never fetched, or cannot be built, was never built. */
const nullIfRefused = async <T>(work: () => Promise<T>): Promise<T | null> => {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DeploymentError && error.next === 'stop') return null
    throw error
  }
}

const usualCacheMb = 5120
/** Before its first byte an engine may write the image down whole. */
const saveDeadlineMs = 10 * 60_000

type Found = [name: string, id: string | null][]

const createBuildParts = (parts: ImageBuilderParts) => {
  const { folder, clock, elsewhere } = parts
  const connection = parts.connection ?? defaultConnection()
  const engine = createEngine(connection)
  const store = parts.store ?? createImageStore(parts.database)
  const bases = createBaseImages({ ...parts, engine, store })
  const tools = createTools(engine, parts.tools ?? {}, (key, reference) =>
    store.save(null, key, { reference, imageId: reference }),
  )
  const isLocal = elsewhere === undefined && isLocalEngine(connection)
  const containers = createBuildContainers(engine, folder, clock)
  const disk = createDiskReserve({ engine, isLocal, reserveMb: parts.diskReserveMb ?? 0 })
  const network = { isLocal, elsewhere, holderImage: bases.operators, allowed: parts.allowed ?? [], dns: parts.dns }
  const caches = createStepCaches({
    ...{ engine, clock, maxMb: parts.cacheMb ?? usualCacheMb, maxIdleDays: parts.cacheDays },
    store: parts.cacheStore ?? createCacheStore(parts.database),
  })
  const platform = createEnginePlatform(engine)
  const downloads = createDownloads(parts.outbound, parts.downloadBytes ?? usualPreparation.contextBytes)
  return { engine, store, bases, tools, containers, disk, caches, platform, downloads, ...network }
}

/** Images were removed from the engine by another client: the image of a step, which the next one was built on. */
const isLostStep = (error: unknown): boolean =>
  error instanceof DeploymentError &&
  error.code === 'build_failed' &&
  /unknown parent image ID|No such image: sha256:/.test(error.message)

/** Builds missing images, each content once. */
const createWork = (ours: ReturnType<typeof createBuildParts>, preparation: Preparation) => {
  const { engine, store, bases, tools } = ours
  const perKey = createKeyedLock()

  const keyOf = ({ tree, stages }: Plan, request: BuildRequest, found: Found): string => {
    const { organizationId, cacheScope, targetStage } = request
    return contentKey({ ...tree, organizationId, cacheScope, targetStage, buildArgs: stages.buildArgs, bases: found })
  }

  const findHere = async (owner: ImageOwner, key: string, signal: AbortSignal): Promise<BuiltImage | null> => {
    const stored = await store.find(owner, key)
    if (stored === null || (await findImage(engine, stored.imageId, signal)) === null) return null
    return { ...stored, contentKey: key, skipped: true }
  }

  const findBuilt = async (owner: ImageOwner, key: string, signal: AbortSignal, destination?: Destination) => {
    if (destination === undefined) return findHere(owner, key, signal)
    const there = await destination.find(key, signal)
    return there && { ...there, contentKey: key, skipped: true }
  }

  /** The content with the base images as last pulled, without asking their registries. */
  const findPlanned = async (plan: Plan, request: BuildRequest, signal: AbortSignal, destination?: Destination) => {
    const { organizationId } = request
    const find = async (name: string): Promise<[string, string | null]> =>
      name === plan.toolImage
        ? [name, await findImage(engine, name, signal)]
        : [name, await bases.find({ organizationId, name }, signal)]
    const key = keyOf(plan, request, await Promise.all(plan.baseNames.map(find)))
    return findBuilt(request, key, signal, destination)
  }

  const ensureBases = async (plan: Plan, { organizationId }: BuildRequest, output: BuildLog, signal: AbortSignal) => {
    const found = new Map<string, string>()
    for (const name of plan.baseNames) {
      const tool = name === plan.toolImage ? await tools.ensure(name, () => bases.operators(signal)) : null
      found.set(name, tool ?? (await bases.ensure({ organizationId, name }, output.write, signal)))
    }
    return found
  }

  const construct = async (
    plan: Plan,
    found: Map<string, string>,
    request: BuildRequest,
    output: BuildLog,
    signal: AbortSignal,
    later: (work: Promise<void>) => void,
  ): Promise<string> => {
    const { organizationId, clusterId, cacheScope, timeoutMs } = request
    const context = (own: OwnDockerfile, inner: AbortSignal): Promise<{ tar: Readable }> =>
      preparation.context(plan.tree, own, inner)
    const noCache = request.noCache === true
    const owner = { organizationId, clusterId, cacheScope }
    const build = { ...owner, noCache, plan: plan.stages, bases: found, context, limits: request }
    const secrets = request.variables.reveal()
    const run = () => buildImage(ours, { ...build, secrets, deadlineMs: timeoutMs + 60_000 }, output, signal, later)
    try {
      return await run()
    } catch (error) {
      if (!isLostStep(error) || signal.aborted) throw error
      output.write('An image of a step was removed from the engine while it was used: building again.\n')
      return run()
    }
  }

  const build = async (
    plan: Plan,
    request: BuildRequest,
    output: BuildLog,
    signal: AbortSignal,
    later: (work: Promise<void>) => void,
    destination?: Destination,
  ): Promise<BuiltImage> => {
    const found = await ensureBases(plan, request, output, signal)
    const key = keyOf(plan, request, [...found])
    const isFresh = request.noCache === true
    const buildHere = async (): Promise<BuiltImage> => {
      // Also where the result is not used: an image that is being built is not removed meanwhile (keeping/images.ts).
      const here = await findHere(request, key, signal)
      if (here !== null && !isFresh) return here
      const imageId = await construct(plan, found, request, output, signal, later)
      await tagImage(engine, imageId, request, key, signal)
      await store.save(request, key, { reference: imageId, imageId })
      return { reference: imageId, imageId, contentKey: key, skipped: false }
    }
    return withLock(perKey, key, signal, async () => {
      if (destination === undefined) return buildHere()
      const there = isFresh ? null : await findBuilt(request, key, signal, destination)
      if (there !== null) return there
      const built = await buildHere()
      const save = (inner: AbortSignal) =>
        engine.stream('GET', `/images/${built.imageId}/get`, { signal: inner, deadlineMs: saveDeadlineMs })
      try {
        return { ...built, ...(await destination.take({ ...built, save }, output.write, signal)) }
      } finally {
        output.end()
      }
    })
  }
  return { findPlanned, build }
}

/** Texts that the log must not show: secret values, and all secrets of steps. */
const hiddenOf = ({ secrets, variables }: BuildRequest, { stages }: Plan): string[] => {
  const known = variables.reveal()
  const given = secretIds(stages).flatMap((id) => findSecret(known, id) ?? [])
  return [...new Set([...secrets.reveal(), ...given])]
}

const waitingText = (running: number): string =>
  `Waiting for a build slot: ${running} ${running === 1 ? 'build is running' : 'builds are running'}.\n`

export const createImageBuilder = (parts: ImageBuilderParts): ImageBuilder => {
  const { log, preparation } = parts
  const ours = createBuildParts(parts)
  const work = createWork(ours, preparation)
  // One slot is kept for others: no organization can fill the machine.
  const withPlace = createSemaphore(parts.concurrency, Math.max(1, parts.concurrency - 1))
  const closing = new AbortController()
  const plan = createPlanner(preparation, ours.platform, ours.tools.reference)
  const running = new Set<Promise<unknown>>()
  let swept: Promise<void> | undefined
  /** Once; again before the next build if the engine did not answer. */
  const sweep = (): Promise<void> => {
    swept ??= ours.containers.sweep().catch((error: unknown) => {
      swept = undefined
      log.warn({ err: error }, 'leftovers of a finished build could not be removed from the engine')
    })
    return swept
  }

  const track = <T>(work: Promise<T>): Promise<T> => {
    const ended = work.catch(() => {}).finally(() => running.delete(ended))
    running.add(ended)
    return work
  }

  const later = (removal: Promise<void>): void => {
    track(removal).catch((error: unknown) => {
      log.warn({ err: error }, 'intermediate results of a build could not be removed')
    })
  }

  const build = async (
    request: BuildRequest,
    onLog: (text: string) => void,
    outer: AbortSignal,
    destination?: Destination,
  ) => {
    outer.throwIfAborted()
    const what = await plan(request, outer)
    const found = request.noCache === true ? null : await work.findPlanned(what, request, outer, destination)
    if (found !== null) return found
    const output = createBuildLog(hiddenOf(request, what), onLog)
    const onWait = (count: number) => onLog(waitingText(count))
    const inPlace = async () => {
      using limit = limitTime(request.timeoutMs, [outer])
      try {
        await sweep()
        return await work.build(what, request, output, limit.signal, later, destination)
      } catch (error) {
        if (!(error instanceof DeploymentError) || error.code !== 'build_timeout') throw error
        output.end()
        throw new DeploymentError(error.code, error.message, { lines: output.lastLines() })
      }
    }
    return withPlace(request.organizationId, inPlace, { signal: outer, onWait })
  }

  const built: ImageBuilder['built'] = (request, signal, destination) =>
    nullIfRefused(async () => {
      if (request.noCache === true) return null
      return (await work.findPlanned(await plan(request, signal), request, signal, destination))?.reference ?? null
    })

  const toolImage = async (name: string, signal: AbortSignal): Promise<string> => {
    const reference = await ours.tools.reference({ name })
    const image = await ours.tools.ensure(reference, () => ours.bases.operators(signal))
    if (image === null) throw new DeploymentError('tool_missing', 'The tool was replaced meanwhile.', { next: 'retry' })
    return image
  }

  void sweep()
  return {
    build: (request, onLog, signal, destination) =>
      track(build(request, onLog, AbortSignal.any([signal, closing.signal]), destination)),
    built,
    toolImage: (name, signal) => track(toolImage(name, AbortSignal.any([signal, closing.signal]))),
    forget: (organizationId, imageIds) => removeNamesOf(ours.engine, organizationId, imageIds),
    images: (signal) =>
      ours.engine.call<ListedImage[]>('GET', '/images/json', { query: { all: true }, signal, keep: listedImages }),
    removeLayers: (imageIds) => removeLayers(ours.engine, imageIds),
    tidyCaches: (clusterId) => ours.caches.tidy(clusterId),
    async close() {
      closing.abort(new Error('the server is stopping'))
      await Promise.all([...running, swept])
      await preparation.close()
      await ours.engine.close()
    },
  }
}
