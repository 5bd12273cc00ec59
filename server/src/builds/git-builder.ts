/**
 * The builder over git mirrors and the Docker engine (see builder.ts for what it promises). Refuses to know deployments.
 * When the process dies here: the engine ends a build whose client is gone, mirrors are freed of locks when next used,
 * and containers of the killed build are removed at the next start.
 */
import { mkdirSync } from 'node:fs'
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
import { contentKey, openContext } from './context.ts'
import { baseImages, parseDockerfile, pickBuildArgs } from './dockerfile.ts'
import { buildOnEngine } from './engine-build.ts'
import { createMirrors, type Mirrors } from './git.ts'
import { createGit, type Git } from './git-process.ts'
import type { CheckHost, GitLimits } from './git-remote.ts'
import { createImageStore, type ImageStore } from './image-store.ts'
import { readSourceTree, readTreeFor, type SourceTree } from './source-tree.ts'
import { createTools, type ToolPaths, toolDockerfile } from './tools.ts'
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

const maxTrees = 500

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

/** The whole repository, for modules refer to others beside their own folder. */
const readToolTree = (git: Git, mirror: string, commitId: string, { rootPath, tool }: BuildRequest) => {
  const { fragment } = tool!
  const path = fragment !== null && 'path' in fragment ? `${rootPath}/${fragment.path}` : null
  const text = fragment !== null && 'text' in fragment ? fragment.text : null
  return readTreeFor(git, mirror, commitId, path, (read) => toolDockerfile(read ?? text))
}

/** Reads what a build would do from the mirror. */
const createPlanner = (git: Git, mirrors: Mirrors, toolImage: (name: string) => Promise<string>) => {
  const trees = new Map<string, SourceTree>()

  /** A commit never changes: what was read of it once stays true. */
  const readTree = async (request: BuildRequest): Promise<SourceTree> => {
    const { source, commitId, rootPath, dockerfilePath, tool } = request
    const name = JSON.stringify([source.url, commitId, rootPath, dockerfilePath, tool])
    const known = trees.get(name)
    if (known !== undefined) return known
    const mirror = await mirrors.find(source.url, commitId)
    const tree =
      tool === undefined
        ? await readSourceTree(git, mirror, commitId, rootPath, dockerfilePath)
        : await readToolTree(git, mirror, commitId, request)
    if (tree.dockerfile.length < 65_536) trees.set(name, tree)
    if (trees.size > maxTrees) trees.delete(trees.keys().next().value!)
    return tree
  }

  return async (request: BuildRequest): Promise<Plan> => {
    const tree = await readTree(request)
    const file = parseDockerfile(tree.dockerfile.toString('utf8'))
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
  const home = join(dataDir, 'git-home')
  mkdirSync(home, { recursive: true, mode: 0o700 })
  const git = createGit(home)
  const engine = createEngine(parts.dockerHost)
  const images = parts.images ?? createImageStore(parts.database)
  const mirrors = createMirrors({
    git,
    folder: join(dataDir, 'mirrors'),
    checkHost,
    log,
    clock,
    limits: parts.gitLimits,
  })
  const tools = createTools(engine, parts.tools ?? {}, (key, reference) =>
    images.save(key, { reference, imageId: reference }),
  )
  const bases = createBaseImages({ engine, checkHost, busyboxPath: parts.busyboxPath, makeTool: tools.make })
  const containers = createBuildContainers(engine, join(dataDir, 'builds'), clock)
  const withPlace = createSemaphore(parts.concurrency)
  const perKey = createKeyedLock()
  const closing = new AbortController()
  const plan = createPlanner(git, mirrors, tools.reference)
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
    const imageId = await buildOnEngine(
      engine,
      containers,
      {
        context: await openContext(git, plan.tree),
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
    const what = await plan(request)
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
    fetch: mirrors.fetch,
    head: mirrors.head,
    branches: mirrors.branches,
    commits: mirrors.commits,
    folders: mirrors.folders,
    build: (request, onLog, signal) => track(build(request, onLog, AbortSignal.any([signal, closing.signal]))),
    built: (request, signal) =>
      nullIfRefused(async () => (await findPlanned(await plan(request), request, signal))?.reference ?? null),
    missingTool: tools.missing,
    async close() {
      closing.abort(new Error('the server is stopping'))
      await mirrors.close()
      await Promise.all([...running, swept])
      await engine.close()
    },
  }
}
