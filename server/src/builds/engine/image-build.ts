/** One build on the engine: the stages that its target needs, one after the other. */
import { randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import { pack } from 'tar-stream'
import type { Engine } from '../../lib/docker/docker-engine.ts'
import { readableOf } from '../../lib/tar-streams.ts'
import type { ImageStore } from '../image-store.ts'
import type { StagePlan } from '../preparation/build-plan.ts'
import { ownDockerfile } from '../preparation/own-dockerfile.ts'
import type { BuildContainers } from './build-containers.ts'
import type { BuildLog } from './build-log.ts'
import { type BuildNetworkParts, createBuildNetwork } from './build-network.ts'
import type { DiskReserve } from './disk-reserve.ts'
import type { StepLimits } from './run-step.ts'
import { buildStage } from './stage-build.ts'

export interface ImageBuildParts extends BuildNetworkParts {
  engine: Engine
  store: ImageStore
  containers: BuildContainers
  disk: DiskReserve
}

export interface ImageBuild {
  organizationId: string
  clusterId: string
  /** Nothing that was built before is used. */
  noCache: boolean
  plan: StagePlan
  /** The ids of the base images by name. */
  bases: ReadonlyMap<string, string>
  /** The files of the build with our own Dockerfile. */
  context(dockerfile: { name: string; text: string }, signal: AbortSignal): Promise<{ tar: Readable }>
  limits: StepLimits
  deadlineMs: number
}

const alone = (text: string): Readable => {
  const archive = pack()
  archive.entry({ name: ownDockerfile }, text)
  archive.finalize()
  return readableOf(archive)
}

/**
 * Returns the image's id. Rejects with `build_failed`, or the signal's reason once nothing of the build is running.
 * `later` gets what may continue afterwards: the removal of intermediate results.
 */
export const buildImage = async (
  parts: ImageBuildParts,
  build: ImageBuild,
  log: BuildLog,
  signal: AbortSignal,
  later: (work: Promise<void>) => void,
): Promise<string> => {
  const { engine, store, disk } = parts
  const { organizationId, plan } = build
  const made = parts.containers.open()
  const control = new AbortController()
  const both = AbortSignal.any([signal, control.signal])
  const network = createBuildNetwork(parts, made, log.write, both)
  const end = async (reason: unknown): Promise<void> => {
    // A network that was never needed ends with the build.
    control.abort(reason)
    await network.settled()
    await made.end()
  }
  try {
    const stages = new Map<number, string>()
    const scene = {
      ...{ engine, store, made, log, signal: both, stages },
      ...build,
      network,
      // A secret that no layer was made with finds none.
      cacheSecret: build.noCache ? randomUUID() : await store.cacheSecret(organizationId),
      context: async (text: string, needsFiles: boolean) => {
        const { tar } = needsFiles ? await build.context({ name: ownDockerfile, text }, both) : { tar: alone(text) }
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
  }
}
