/**
 * The builder over git mirrors and the Docker engine (see builder.ts for what it promises). Refuses to know deployments.
 * When the process dies here: the engine ends a build whose client is gone, mirrors are freed of locks when next used,
 * and containers of the killed build are removed at the next start.
 */
import { join } from 'node:path'
import type { Clock } from '../lib/clock.ts'
import { createEngine } from '../lib/docker-engine.ts'
import { DeploymentError } from '../lib/errors.ts'
import { createKeyedLock } from '../lib/keyed-lock.ts'
import type { Log } from '../lib/log.ts'
import type { Queryable } from '../store/database.ts'
import { createBaseImages, findImage } from './base-image.ts'
import { createBuildContainers } from './build-containers.ts'
import { createBuildLog } from './build-log.ts'
import type { Builder, BuildRequest, BuiltImage } from './builder.ts'
import { imageTag } from './built-images.ts'
import { contentKey, extraDockerfile } from './context.ts'
import { baseImages, pickBuildArgs } from './dockerfile.ts'
import { buildOnEngine } from './engine-build.ts'
import type { CheckHost, GitLimits } from './git-remote.ts'
import { createImageStore, type ImageStore } from './image-store.ts'
import type { Preparation } from './preparation.ts'
import type { PreparationLimits } from './preparation-limits.ts'
import type { SourceTree } from './source-tree.ts'
import { createSources } from './sources.ts'
import { createTools, type ToolPaths } from './tools.ts'
import { createSemaphore, withLock } from './waiting.ts'

export interface BuilderParts {
  dataDir: string
  database: Queryable
  dockerHost?: string
  checkHost: CheckHost
  log: Log
  clock: Clock
  /** Builds at a time. */
  concurrency: number
  /** What reading a repository and handing its files over may take. */
  preparation?: Partial<PreparationLimits>
  gitMemoryMb?: number
  /** For tests. */
  images?: ImageStore
  gitLimits?: Partial<GitLimits>
  busyboxPath?: string
  tools?: ToolPaths
}

/** What a build does, known before anything is built. */
interface Plan {
  tree: SourceTree
  buildArgs: Record<string, string>
  baseNames: string[]
}

/** `withTimeout` aborts with `build_timeout`; its `signal` carries the reason, which `dispose` takes back. */
const limitTime = (timeoutMs: number, outer: AbortSignal[]) => {
  const control = new AbortController()
  const seconds = Math.ceil(timeoutMs / 1000)
  const timer = setTimeout(
    () => control.abort(new DeploymentError('build_timeout', `The build did not end within ${seconds} s.`)),
    timeoutMs,
  )
  return {
    signal: AbortSignal.any([control.signal, ...outer]),
    [Symbol.dispose]: () => clearTimeout(timer),
  }
}

/** Reads what a build would do from the mirror. */
const createPlanner =
  (preparation: Preparation, toolImage: (name: string) => Promise<string>) =>
  async (request: BuildRequest, signal: AbortSignal): Promise<Plan> => {
    const { tree, dockerfile: file } = await preparation.read(request, signal)
    // The engine would fetch it from the host's own network, past the policy for outgoing requests.
    if (file.addsRemote)
      throw new DeploymentError(
        'build_refused',
        'ADD of a remote address is refused: fetch it in a RUN step, which has the network of the build.',
      )
    const own: Record<string, string> =
      request.tool === undefined ? {} : { SLIPWAY_TOOL: await toolImage(request.tool.name) }
    const buildArgs = pickBuildArgs(file, { ...request.variables.reveal(), ...own })
    return { tree, buildArgs, baseNames: baseImages(file, buildArgs, request.targetStage) }
  }

/** What was never fetched, or cannot be built, was never built. */
const nullIfRefused = async <T>(work: () => Promise<T>): Promise<T | null> => {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DeploymentError && error.next === 'stop') return null
    throw error
  }
}

export const createBuilder = (parts: BuilderParts): Builder => {
  const { dataDir, log, clock, checkHost } = parts
  const engine = createEngine(parts.dockerHost)
  const images = parts.images ?? createImageStore(parts.database)
  const sources = createSources(parts)
  const tools = createTools(engine, parts.tools ?? {}, (key, reference) =>
    images.save(key, { reference, imageId: reference }),
  )
  const bases = createBaseImages({ engine, checkHost, busyboxPath: parts.busyboxPath, makeTool: tools.make })
  const containers = createBuildContainers(engine, join(dataDir, 'builds'), clock)
  const withPlace = createSemaphore(parts.concurrency)
  const perKey = createKeyedLock()
  const closing = new AbortController()
  const plan = createPlanner(sources.preparation, tools.reference)
  const running = new Set<Promise<unknown>>()
  const swept = containers.sweep().catch((error: unknown) => {
    log.warn({ err: error }, 'containers of an ended build could not be removed')
  })

  const keyOf = ({ tree, buildArgs }: Plan, request: BuildRequest, found: [string, string | null][]): string =>
    contentKey({ ...tree, targetStage: request.targetStage, buildArgs, bases: found })

  const findBuilt = async (key: string, signal: AbortSignal): Promise<BuiltImage | null> => {
    const stored = await images.find(key)
    if (stored === null || (await findImage(engine, stored.imageId, signal)) === null) return null
    return { ...stored, contentKey: key, skipped: true }
  }

  const findAll = async (names: string[], signal: AbortSignal): Promise<[string, string | null][]> =>
    Promise.all(names.map(async (name): Promise<[string, string | null]> => [name, await bases.find(name, signal)]))

  const construct = async (plan: Plan, key: string, request: BuildRequest, onLog: BuildOutput, signal: AbortSignal) => {
    const { tree } = plan
    const dockerfile = tree.isPlain ? tree.dockerfilePath! : extraDockerfile
    const own = { name: dockerfile, text: tree.dockerfile.toString('utf8') }
    const imageId = await buildOnEngine(
      engine,
      containers,
      {
        context: { ...(await sources.preparation.context(tree, own, signal)), dockerfile },
        tag: imageTag(request.serviceId, key),
        targetStage: request.targetStage,
        buildArgs: plan.buildArgs,
        memoryMb: request.memoryMb,
        cpuMillicores: request.cpuMillicores,
        deadlineMs: request.timeoutMs + 60_000,
      },
      onLog,
      signal,
    )
    await images.save(key, { reference: imageId, imageId })
    return { reference: imageId, imageId, contentKey: key, skipped: false }
  }

  type BuildOutput = ReturnType<typeof createBuildLog>

  const buildNow = async (plan: Plan, request: BuildRequest, output: BuildOutput, signal: AbortSignal) => {
    await swept
    const found: [string, string][] = []
    for (const name of plan.baseNames) found.push([name, await bases.ensure(name, output.write, signal)])
    const key = keyOf(plan, request, found)
    return withLock(perKey, key, signal, async () => {
      return (await findBuilt(key, signal)) ?? (await construct(plan, key, request, output, signal))
    })
  }

  const findPlanned = async (what: Plan, request: BuildRequest, signal: AbortSignal): Promise<BuiltImage | null> =>
    findBuilt(keyOf(what, request, await findAll(what.baseNames, signal)), signal)

  const build = async (request: BuildRequest, onLog: (text: string) => void, outer: AbortSignal) => {
    outer.throwIfAborted()
    const what = await plan(request, outer)
    const found = await findPlanned(what, request, outer)
    if (found !== null) return found
    const output = createBuildLog(request.secrets.reveal(), onLog)
    return withPlace(outer, async () => {
      using limit = limitTime(request.timeoutMs, [outer])
      try {
        return await buildNow(what, request, output, limit.signal)
      } catch (error) {
        if (!(error instanceof DeploymentError) || error.code !== 'build_timeout') throw error
        output.end()
        throw new DeploymentError(error.code, error.message, { lines: output.lastLines() })
      }
    })
  }

  const track = <T>(work: Promise<T>): Promise<T> => {
    const ended = work.catch(() => {}).finally(() => running.delete(ended))
    running.add(ended)
    return work
  }

  return {
    fetch: sources.fetch,
    head: sources.head,
    branches: sources.branches,
    commits: sources.commits,
    folders: sources.folders,
    build: (request, onLog, signal) => track(build(request, onLog, AbortSignal.any([signal, closing.signal]))),
    built: (request, signal) =>
      nullIfRefused(async () => (await findPlanned(await plan(request, signal), request, signal))?.reference ?? null),
    missingTool: tools.missing,
    async close() {
      closing.abort(new Error('the server is stopping'))
      await Promise.all([sources.close(), ...running, swept])
      await engine.close()
    },
  }
}
