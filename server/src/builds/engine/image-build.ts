/** One build on the engine: the stages that its target needs, one after the other. */
import { createHmac, randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import type { ImageOwner, ImageStore } from '../image-store.ts'
import type { StagePlan } from '../preparation/build-plan.ts'
import type { ContextShape } from '../preparation/context-shape.ts'
import { ownDockerfile } from '../preparation/own-dockerfile.ts'
import type { BuildContainers, BuildLeftovers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'
import { type BuildNetworkParts, createBuildNetwork } from './build-network.ts'
import { readOutput } from './container-output.ts'
import type { DiskReserve } from './disk-reserve.ts'
import type { Downloads } from './downloads.ts'
import type { EnginePlatform } from './engine-platform.ts'
import type { ImageDetail } from './image-config.ts'
import { ownArchive } from './own-archive.ts'
import type { StepLimits } from './run-step.ts'
import { buildStage } from './stage-build.ts'
import type { StepCaches } from './step-caches.ts'

/** A cache with more files than can be counted in this time is removed. */
const measureMs = 120_000
const unknownKb = 2 ** 40

interface CacheSizeParts {
  engine: Engine
  containers: BuildContainers
  caches: StepCaches
  holderImage(signal: AbortSignal): Promise<string>
}

const folder = '/slipway-cache'

const bodyOf = (Image: string, volumes: readonly string[]) => ({
  Image,
  User: '0',
  Entrypoint: ['/bin/sh', '-c', `du -sk ${folder}/*`],
  Cmd: [],
  HostConfig: {
    NetworkMode: 'none',
    CapDrop: ['ALL'],
    CapAdd: ['DAC_READ_SEARCH'],
    SecurityOpt: ['no-new-privileges'],
    ReadonlyRootfs: true,
    PidsLimit: 16,
    Memory: 256 * 2 ** 20,
    LogConfig: { Type: 'none' },
    Mounts: volumes.map((Source, index) => ({
      ...{ Type: 'volume', Source, Target: `${folder}/${index}`, ReadOnly: true },
      VolumeOptions: { NoCopy: true },
    })),
  },
})

/** Kilobytes of each, in their order; `unknownKb` for what could not be counted. */
const readSizes = async (
  { engine, containers, holderImage }: CacheSizeParts,
  volumes: readonly string[],
): Promise<number[]> => {
  const signal = AbortSignal.timeout(measureMs)
  const made = containers.open()
  const name = made.name('container')
  let said = ''
  try {
    const body = bodyOf(await holderImage(signal), volumes)
    const { Id } = await engine.call<{ Id: string }>('POST', '/containers/create', { query: { name }, body })
    for await (const text of readOutput(engine, Id, signal)) said = (said + text).slice(-65_536)
  } catch (error) {
    if (!signal.aborted) throw error
  } finally {
    await made.end()
  }
  return volumes.map((_, index) => {
    const size = new RegExp(`^(\\d+)\\s+${folder}/${index}$`, 'm').exec(said)?.[1]
    return size === undefined ? unknownKb : Number(size)
  })
}

/** Measures the caches that a build used; then the excess is removed. Runs after the build. */
const measureCaches = async (parts: CacheSizeParts, owner: ImageOwner, volumes: readonly string[]): Promise<void> => {
  const sizes = volumes.length === 0 ? [] : await readSizes(parts, volumes)
  for (const [index, volume] of volumes.entries()) await parts.caches.measure(owner, volume, sizes[index]!)
  await parts.caches.tidy(owner.clusterId)
}

interface ImageBuildParts extends BuildNetworkParts {
  engine: Engine
  store: ImageStore
  containers: BuildContainers
  disk: DiskReserve
  caches: StepCaches
  downloads: Downloads
  platform(signal: AbortSignal): Promise<EnginePlatform>
}

interface ImageBuild {
  organizationId: string
  clusterId: string
  cacheScope: string
  noCache: boolean
  plan: StagePlan
  bases: ReadonlyMap<string, string>
  /** The files of the build with our own Dockerfile. */
  context(
    dockerfile: { name: string; text: string; shape?: ContextShape },
    signal: AbortSignal,
  ): Promise<{ tar: Readable }>
  secrets: Readonly<Record<string, string>>
  limits: StepLimits
  deadlineMs: number
}

/** Known only to builds of the same organization and scope: the engine's own cache is not shared beyond them. */
const cacheSecretOf = async (
  store: ImageStore,
  { organizationId, cacheScope }: Pick<ImageBuild, 'organizationId' | 'cacheScope'>,
): Promise<string> =>
  createHmac('sha256', await store.cacheSecret(organizationId))
    .update(cacheScope)
    .digest('hex')

/** A volume with the busybox of the holder's image, made when it is first needed. */
const createTools = (
  engine: Engine,
  made: BuildLeftovers,
  image: (signal: AbortSignal) => Promise<string>,
  signal: AbortSignal,
) => {
  let making: Promise<string> | null = null
  const make = async (): Promise<string> => {
    const Image = await image(signal)
    const volume = made.name('volume')
    const name = made.name('container')
    await engine.call('POST', '/volumes/create', { body: { Name: volume } })
    const Mounts = [{ Type: 'volume', Source: volume, Target: '/bin' }]
    const body = { Image, Entrypoint: ['/bin/sh'], Cmd: [], HostConfig: { NetworkMode: 'none', Mounts } }
    await engine.call('POST', '/containers/create', { query: { name }, body })
    await made.removeContainer(name)
    return volume
  }
  const settled = async (): Promise<void> => {
    await making?.catch(() => {})
  }
  return {
    volume: (): Promise<string> => {
      making ??= make()
      return making
    },
    settled,
  }
}

/**
 * Returns the image's id. Rejects with `build_failed`, or the signal's reason once nothing of the build is running.
 * `later` gets work that may continue afterwards: the removal of intermediate results.
 */
export const buildImage = async (
  parts: ImageBuildParts,
  build: ImageBuild,
  log: BuildLog,
  signal: AbortSignal,
  later: (work: Promise<void>) => void,
): Promise<string> => {
  const { engine, store, disk, caches, downloads } = parts
  const { plan } = build
  const made = parts.containers.open()
  const control = new AbortController()
  const both = AbortSignal.any([signal, control.signal])
  const network = createBuildNetwork(parts, made, log.write, both)
  const tools = createTools(engine, made, parts.holderImage, both)
  const usedCaches = new Set<string>()
  const end = async (reason: unknown): Promise<void> => {
    // A network that was never needed ends with the build.
    control.abort(reason)
    await Promise.all([network.settled(), tools.settled()])
    await made.end()
  }
  try {
    const stages = new Map<number, string>()
    const scene = {
      ...{ engine, store, made, log, signal: both, stages },
      ...build,
      network,
      // A secret that no layer was made with matches none.
      cacheSecret: build.noCache ? randomUUID() : await cacheSecretOf(store, build),
      ...{ downloads, knowsStartInterval: (await parts.platform(both)).knowsStartInterval },
      ...{ caches, usedCaches, tools: tools.volume, holderImage: parts.holderImage },
      inspect: (id: string) => engine.call<ImageDetail>('GET', `/images/${id}/json`, { signal: both }),
      context: async (text: string, needsFiles: boolean, shape?: ContextShape) => {
        const own = { name: ownDockerfile, text, ...(shape === undefined ? {} : { shape }) }
        const { tar } = needsFiles ? await build.context(own, both) : { tar: ownArchive(text) }
        return { tar, dockerfile: ownDockerfile }
      },
      watch: <T>(work: (watched: AbortSignal) => Promise<T>) => disk.watch(work, both),
    }
    for (const planned of plan.stages) stages.set(planned.index, await buildStage(scene, planned))
    const image = stages.get(plan.stages.at(-1)!.index)!
    log.write(`Successfully built ${image.replace('sha256:', '').slice(0, 12)}\n`)
    log.end()
    later(end(new Error('the build is over')))
    return image
  } catch (error) {
    await end(error)
    throw error
  } finally {
    later(measureCaches(parts, build, [...usedCaches]))
  }
}
