/**
 * Services as containers of one Docker engine, on this machine or another.
 *
 * Promises: every container, network and volume is named and labeled with our ids and this data directory's owner
 * mark; nothing else is changed. No container is privileged or sees the engine's socket, the host's network or its
 * files. Does not know: deployments, kinds and the database. Which version gets requests is decided in blue-green/.
 * When the process dies: containers keep running and the engine restarts them. Unfinished objects are found by their
 * names: the next `converge` or `run` adopts, replaces or removes them.
 */

import type { OrganizationImages } from '../../images/images.ts'
import { createEngine, type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import type { EngineConnection } from '../../lib/docker/engine-connection.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Log } from '../../lib/log.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import { type BlueGreenParts, createBlueGreen, noRouter } from '../blue-green/blue-green.ts'
import type { Instances } from '../blue-green/instances.ts'
import { type Capacity, engineAbilities, type Runtime, type ServiceKey } from '../runtime.ts'
import { createContainers } from './containers.ts'
import { createCreator } from './create.ts'
import { labelOf, labels } from './describe.ts'
import { createEvents, watchEvents } from './events.ts'
import { createHooks } from './hooks.ts'
import { createImages } from './images.ts'
import { createInstances } from './instances.ts'
import { createLogs } from './logs/logs.ts'
import { createMarks } from './marks.ts'
import { createAddresses } from './network/addresses.ts'
import { createNetworks, type Networks } from './network/network.ts'
import { createPlaces } from './network/places.ts'
import { createPorts, isFreeHere } from './network/ports.ts'
import { createReadiness } from './probes/readiness.ts'
import { createReady } from './probes/ready.ts'
import { createTroubles } from './probes/troubles.ts'
import { watchInstances } from './probes/watch.ts'
import { createPipe } from './tasks/pipe.ts'
import { createTasks } from './tasks/tasks.ts'
import { createUsage } from './usage.ts'
import { createVolumes, ownedVolume, type Volumes } from './volumes.ts'

export interface DockerRuntimeOptions {
  /** Default: the engine of this machine. */
  connection?: EngineConnection
  /** The address at which an engine on another machine publishes ports for us; absent for this machine's. */
  elsewhere?: string | undefined
  /** Mark of this data directory, on everything we make. */
  ownerId: string
  /** Without it, nothing is pulled: for a runtime that only ends existing containers. */
  images?: OrganizationImages
  /** Routes requests to instances. Without it, nothing is published. */
  router?: BlueGreenParts['router']
  log: Log
  clock?: Clock
}

export interface DockerRuntime extends Runtime {
  /** The operations of its rollouts. */
  readonly instances: Instances
}

const pingDeadlineMs = 3000
/** For services that are removed permanently: long enough to write their buffers. */
const removalGraceMs = 10_000

const readCapacity = async (engine: Engine, volumes: Volumes): Promise<Capacity> => {
  const [{ NCPU, MemTotal, Architecture }, limitsVolumes] = await Promise.all([
    engine.call<{ NCPU: number; MemTotal: number; Architecture: string }>('GET', '/info', {
      deadlineMs: pingDeadlineMs,
    }),
    volumes.askAgain(),
  ])
  return {
    cpuMillicores: NCPU * 1000,
    memoryMb: Math.floor(MemTotal / 2 ** 20),
    architecture: /^(aarch64|arm64)$/.test(Architecture) ? 'ARM64' : 'AMD64',
    limitsVolumes,
  }
}

const removeNetwork = async (networks: Networks, environmentId: string, signal: AbortSignal): Promise<void> => {
  try {
    await networks.remove(environmentId, signal)
  } catch (error) {
    if (!isEngineError(error, 403, 409)) throw error
    const message = 'The environment still has running instances on its network.'
    throw new DeploymentError('environment_in_use', message, { next: 'wait', cause: error })
  }
}

export const createDockerRuntime = ({
  connection,
  elsewhere,
  ownerId,
  images: organizationImages,
  router = noRouter,
  log,
  clock = systemClock,
}: DockerRuntimeOptions): DockerRuntime => {
  const engine = createEngine(connection)
  const events = createEvents(engine, ownerId, clock)
  const readiness = createReadiness((instance, isReady) => {
    const { name, environmentId, serviceId, revision, id: instanceId } = instance
    log.info(
      { serviceId, instance: name },
      isReady ? 'ready again: it gets requests' : 'not ready: it gets no requests',
    )
    follow({ environmentId, serviceId })
    events.notify({ serviceId, revision, instanceId, kind: isReady ? 'ready' : 'unready' })
  })
  const troubles = createTroubles()
  const containers = createContainers({ engine, ownerId, events, readiness, troubles, elsewhere })
  const networks = createNetworks(engine, ownerId, elsewhere)
  const volumes = createVolumes(engine, ownerId, clock)
  const logs = createLogs(engine, containers, events, clock)
  const images = createImages(engine, organizationImages)
  const creator = createCreator({ engine, networks, images, volumes, inspect: containers.inspect })
  const tasks = createTasks({ engine, containers, creator, logs, ownerId, clock })
  const addresses = createAddresses(clock)
  const ports = createPorts(elsewhere === undefined ? isFreeHere : async () => true)
  const places = createPlaces({ containers, networks, addresses, ports, elsewhere })
  const hooks = createHooks(engine, clock)
  const made = createInstances({ engine, containers, creator, places, hooks, ownerId, clock })

  const see: Instances['see'] = async (services) => {
    const ids = services && new Set(services.map(({ serviceId }) => serviceId))
    const only: Record<string, string> = services?.length === 1 ? { [labels.service]: services[0]!.serviceId } : {}
    const rows = await containers.list(only)
    return containers.describe(
      ids === undefined ? rows : rows.filter((row) => ids.has(row.Labels[labels.service] ?? '')),
    )
  }

  const waitReady = createReady({ engine, containers, events, logs, clock })
  const instances: Instances = {
    apply: made.apply,
    ready: async (workload, progress, signal) => {
      const found = await waitReady(workload, progress, signal)
      for (const instance of found) readiness.ready(instance)
      return found.map((instance) => ({ ...instance, unready: false }))
    },
    retire: made.retire,
    shrink: made.shrink,
    remove: async ({ serviceId }, signal) => {
      await made.endAll(serviceId, removalGraceMs, signal)
      await volumes.removeOf(serviceId, signal)
      log.debug({ serviceId }, 'service removed from the engine')
    },
    see,
  }

  const owned: Runtime['owned'] = async () => {
    const [rows, networkRows, volumeRows] = await Promise.all([
      containers.list({}, { tasks: true }),
      networks.list(),
      volumes.list(),
    ])
    places.learn(rows)
    return {
      instances: await containers.describe(rows),
      environments: networkRows.flatMap(({ Labels }) => labelOf(Labels, labels.environment) ?? []),
      volumes: volumeRows.map(ownedVolume),
    }
  }

  const records: Runtime['records'] = async (services) => {
    const found = new Map(services.map(({ serviceId }) => [serviceId, new Set<string>()]))
    for (const { Labels } of [...(await containers.list({})), ...(await volumes.list())]) {
      const record = labelOf(Labels, labels.record)
      if (record !== undefined) found.get(labelOf(Labels, labels.service) ?? '')?.add(record)
    }
    return new Map([...found].map(([serviceId, texts]) => [serviceId, [...texts]]))
  }

  const { follow: followNow, ...blueGreen } = createBlueGreen({ instances, router })
  const follow = (service: ServiceKey): void => {
    followNow(service).catch((error: unknown) => log.warn({ err: error, ...service }, 'the routes wait for a minute'))
  }
  return {
    ...blueGreen,
    abilities: engineAbilities,
    scalesItself: false,
    rollsItself: false,
    growsVolumes: false,
    marks: createMarks(engine, ownerId),
    images,
    instances,
    ping: () => engine.call('GET', '/_ping', { deadlineMs: pingDeadlineMs }),
    capacity: () => readCapacity(engine, volumes),
    volumeSizes: volumes.sizesOf,
    removeEnvironment: (environmentId, signal) => removeNetwork(networks, environmentId, signal),
    observe: see,
    usage: createUsage(engine, clock),
    watch: (signal) => watchEvents(events, signal),
    keepAlive: (signal) =>
      watchInstances({ engine, containers, events, hooks, readiness, troubles, clock, log }, signal),
    logs: logs.ofService,
    run: tasks.run,
    pipe: createPipe({ engine, containers, creator, ownerId, clock }),
    stopTask: tasks.stop,
    endTask: tasks.end,
    owned,
    records,
    close: async () => {
      events.close()
      await engine.close()
    },
  }
}
