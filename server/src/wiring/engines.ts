/** The engines that services and builds run on. */
import { join } from 'node:path'
import { simulatedTools } from '../backups/tools/simulated.ts'
import type { Builder, ImageBuilder } from '../builds/builder.ts'
import { createFakeBuilder } from '../builds/fake-builder.ts'
import { createBuilder } from '../builds/git-builder.ts'
import type { Repositories } from '../builds/pushed/repositories.ts'
import { createSources, type Sources } from '../builds/sources.ts'
import { missingTool, toolVersions } from '../builds/tools.ts'
import type { Clusters } from '../clusters/clusters.ts'
import { createDockerEngines } from '../clusters/docker-engines.ts'
import type { Engines } from '../clusters/engines.ts'
import { defaultConnection } from '../lib/docker/engine-connection.ts'
import { systemClock } from '../lib/time/clock.ts'
import { limitSentence } from '../limits/limits.ts'
import { createFakeRuntime } from '../runtimes/fake/fake.ts'
import { createOpenKubernetes, type OpenKubernetes } from '../runtimes/kubernetes/kubernetes.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import { type DockerMachine, type DockerTarget, openDockerMachine } from './docker-machine.ts'
import type { Foundation } from './foundation.ts'
import { reachSample } from './sample-repository.ts'

export type EngineKind = 'docker' | 'fake' | 'none'

/** The engine of this machine, those of other machines, and the builders on all of them. */
export interface RuntimeParts {
  repositories: Repositories
  /** Null without an engine of this machine. */
  runtime: Runtime | null
  imageBuilder: ImageBuilder | undefined
  engines: Engines
  openKubernetes: OpenKubernetes
  builderOver(clusters: Clusters): Builder
}

const createFakeMachine = ({ settings, ownerId, router }: Foundation, sources: Sources): DockerMachine => {
  const builder = createFakeBuilder(sources.prepare())
  const persistFolder = join(settings.dataDir, 'fake')
  const runtime = createFakeRuntime({ ownerId, clock: systemClock, persistFolder, router, pipe: simulatedTools })
  const close = async (): Promise<void> => {
    await Promise.all([builder.close(), runtime.close()])
  }
  return { runtime: { ...runtime, close }, builder, clear: async () => {} }
}

export const createRuntimeParts = (foundation: Foundation, kind: EngineKind, sampleUrl: string): RuntimeParts => {
  const { settings, outbound, log } = foundation
  const fake = kind === 'fake'
  const network = reachSample(outbound, sampleUrl)
  const { dataDir, preparation, gitMemoryMb, tools, buildConcurrency: concurrency } = settings
  const { database } = foundation
  const { mirrorsMb } = settings.limits
  const room = {
    organizationMb: mirrorsMb,
    reserveMb: settings.diskReserveMb,
    sentence: (wantedMb: number) => limitSentence('mirrorsMb', mirrorsMb, wantedMb),
  }
  const limits = { preparation, gitMemoryMb, concurrency, room }
  const sources = createSources({ dataDir, database, network, ...limits, log, clock: systemClock })
  const open = (target: DockerTarget) => openDockerMachine({ ...foundation, sources }, target)
  const own = kind === 'docker' ? defaultConnection(settings.dockerHost) : null
  const real = own && open({ connection: own, serviceAddress: null, clusterId: null, organizationId: null })
  const here = fake ? createFakeMachine(foundation, sources) : real
  const missing = (name: string) => missingTool(name, tools)
  return {
    repositories: sources.repositories,
    runtime: here?.runtime ?? null,
    imageBuilder: here?.builder,
    engines: createDockerEngines({
      own,
      open,
      pin: outbound.checkMachine,
      sockets: settings.engineSockets,
    }),
    openKubernetes: createOpenKubernetes(outbound.checkMachine),
    builderOver: (clusters) =>
      createBuilder({
        sources,
        missingTool: fake ? async () => null : missing,
        toolVersions: () => toolVersions(tools),
        imageBuilder: async (clusterId) => (await clusters.of(clusterId)).builder,
      }),
  }
}
