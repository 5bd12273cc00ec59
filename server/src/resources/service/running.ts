/**
 * Shared by services with instances: resources, instances, ports, storage, probes, and the workload made from them.
 */
import { pointerTo } from '../../api/operations/effects.ts'
import type { Context } from '../../api/operations/operation.ts'
import type { Change, Spec } from '../../api/operations/resource.ts'
import {
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Open,
  Recorded,
  Refused,
  Text,
  Whole,
} from '../../api/operations/schema.ts'
import { readCapacityFor } from '../../clusters/capacity.ts'
import type { TaskCommand, WorkloadSpec } from '../../deployments/deployments.ts'
import { containerSettingsIn } from '../../facets/settings/container-settings.ts'
import { placementIn } from '../../facets/settings/placement.ts'
import { cpuPercentIn, ingressIn, memoryPercentIn, stopGraceMs } from '../../facets/settings/settings.ts'
import { invalidField } from '../../lib/errors.ts'
import type { Capacity } from '../../runtimes/runtime.ts'
import {
  checkProbes,
  completePorts,
  completeStorage,
  Gpus,
  Healthchecks,
  type KeptHealthchecks,
  type Port,
  Ports,
  readyTimeoutMs,
  Storage,
  type StorageItem,
  toProbe,
  wordsOf,
  workloadPorts,
} from './parts.ts'
import { choosePorts } from './published-ports.ts'

const architectures = ['AMD64', 'ARM64']

/** CPU in millicores, memory in MB. */
export const Resources = (defaults = { cpu: 500, memory: 512 }) => ({
  cpu: Maybe(Whole(10, 1_000_000, { default: defaults.cpu })),
  memory: Maybe(Whole(6, 100_000_000, { default: defaults.memory })),
  gpu: Maybe(Gpus()),
  ephemeral_storage_in_gib: Maybe(Recorded(Whole(0, 65_536))),
  cpu_architecture: Maybe(Nullable(OneOf(architectures))),
})

/** The configuration of every service with instances. */
export const Running = () => ({
  ...Resources(),
  min_running_instances: Maybe(
    Whole(0, 100, {
      default: 1,
      description:
        '0: the service sleeps while it has no requests, without instances, and the next request wakes it; requests wait for that. It needs a public HTTP or gRPC port and no public TCP or UDP port; otherwise one instance always runs.',
    }),
  ),
  max_running_instances: Maybe(
    Whole(-1, 1000, {
      default: 1,
      description:
        'Instances are added up to this number while they use more of their `cpu` than the advanced setting `hpa.cpu.average_utilization_percent` says, and removed when fewer are enough. -1: as many as the minimum, and so with storage. 0: nothing runs. All of them count toward the limits of the organization.',
    }),
  ),
  healthchecks: Maybe(Healthchecks({ default: {} })),
  auto_deploy: Maybe(Nullable(Flag(), { default: false })),
  ports: Maybe(Ports()),
  storage: Maybe(Storage()),
  arguments: Maybe(List(Text(4096), 200, { default: [] })),
  entrypoint: Maybe(Nullable(Text(4096))),
  autoscaling: Maybe(
    Refused(
      Nullable(Open()),
      'requires a Kubernetes cluster with KEDA; set `min_running_instances` and `max_running_instances` instead',
    ),
  ),
})

export type RunningSpec = {
  cpu: number
  memory: number
  min_running_instances: number
  max_running_instances: number
  healthchecks: KeptHealthchecks
  ports: Port[]
  /** The ports chosen by the server, as `TCP 30012`. */
  drawn_ports?: string[]
  storage: StorageItem[]
  arguments: string[]
  entrypoint?: string | null
}

/** The fields of `Running`, with their defaults. */
export type RunningRequest = Omit<RunningSpec, 'ports' | 'storage'> & {
  ports?: unknown
  storage?: unknown
  auto_deploy?: boolean | null
  autoscaling?: unknown
}

/**
 * The capacity of the environment's cluster; 400 for a request beyond it. Nothing is checked while a cluster has never
 * answered, which is null.
 */
export const refuseBeyondCluster = async ({ db, parent }: Change, body: Spec): Promise<Capacity | null> => {
  const capacity = await readCapacityFor(db, parent.id)
  if (capacity !== null) refuseBeyond(capacity, body)
  return capacity
}

/** Reports sizes of volumes that have no effect on a cluster. */
export const noteSizes = (
  { onlyRecorded }: Pick<Context, 'onlyRecorded'>,
  capacity: Capacity | null,
  sizes: readonly (readonly string[])[],
): void => {
  if (capacity?.limitsVolumes === false) for (const path of sizes) onlyRecorded(path)
}

const sizePaths = (storage: readonly unknown[]): string[][] =>
  storage.map((_, index) => ['storage', String(index), 'size'])

/** See `DeployableKind.sizeFields`. */
export const sizeFields = ({ storage }: Pick<RunningSpec, 'storage'>): string[] => sizePaths(storage).map(pointerTo)

const refuseBeyond = ({ cpuMillicores, memoryMb, architecture }: Capacity, body: Spec): void => {
  if (Number(body.cpu) > cpuMillicores)
    throw invalidField('/cpu', `must be at most ${cpuMillicores}: the cluster has no more CPU`)
  if (Number(body.memory) > memoryMb)
    throw invalidField('/memory', `must be at most ${memoryMb}: the cluster has no more memory`)
  if (typeof body.cpu_architecture === 'string' && body.cpu_architecture !== architecture)
    throw invalidField('/cpu_architecture', `requires a cluster with that architecture; this one has ${architecture}`)
}

const refuseBadInstances = ({ min_running_instances: min, max_running_instances: max }: Spec): void => {
  if (Number(max) !== -1 && Number(min) > Number(max))
    throw invalidField('/min_running_instances', 'must not be more than max_running_instances')
}

/** Validates and completes the fields of `Running`; other fields are passed through. */
export const completeRunning = async (body: RunningRequest, context: Context, change: Change<RunningSpec>) => {
  const before: Partial<RunningSpec> = change.previous?.spec ?? {}
  noteSizes(context, await refuseBeyondCluster(change, body), sizePaths((body.storage ?? []) as unknown[]))
  refuseBadInstances(body)
  const { autoscaling: _, ...kept } = body
  const ports = completePorts(body.ports ?? [], before.ports ?? [])
  checkProbes(body.healthchecks ?? {}, ports)
  return {
    ...kept,
    auto_deploy: body.auto_deploy === true,
    ...(await choosePorts(context, change, ports, { named: true })),
    storage: completeStorage(body.storage ?? [], before.storage ?? []),
  }
}

/** A program's command; null for the image's own. */
export const commandOf = (command: { entrypoint?: string | null; arguments?: string[] }): TaskCommand => ({
  entrypoint: wordsOf(command.entrypoint),
  arguments: command.arguments === undefined || command.arguments.length === 0 ? null : command.arguments,
})

/** A request finds it by a host name and waits there; a connection to a port of its own would not. */
const canBeWoken = (ports: readonly Port[]): boolean => {
  const open = workloadPorts([...ports]).filter(({ publiclyAccessible }) => publiclyAccessible)
  return open.length > 0 && open.every(({ protocol }) => protocol === 'HTTP' || protocol === 'GRPC')
}

/** How many instances a new version starts, and how their number follows their use. */
const instancesOf = (running: RunningSpec): Pick<WorkloadSpec, 'instances' | 'scaling'> => {
  const { min_running_instances: min, max_running_instances: most } = running
  if (most === 0) return { instances: 0 }
  const instances = Math.max(1, min)
  // Two programs never write to one volume.
  const max = most === -1 || running.storage.length > 0 ? instances : most
  if (min > 0 && max === min) return { instances }
  const sleeps = min === 0 && canBeWoken(running.ports)
  return { instances, scaling: { min, max, cpuPercent: cpuPercentIn(running), ...memoryPercentIn(running), sleeps } }
}

/** The workload that the engine runs. */
export const workloadOf = (running: RunningSpec): WorkloadSpec => {
  const { ports, healthchecks } = running
  const readiness = toProbe(healthchecks.readiness_probe, ports)
  const ingress = ingressIn(running)
  return {
    ...commandOf(running),
    cpuMillicores: running.cpu,
    memoryMb: running.memory,
    ...instancesOf(running),
    ports: workloadPorts(ports),
    volumes: running.storage.map(({ id, mount_point: mountPath, size: sizeGb }) => ({ id, mountPath, sizeGb })),
    readiness,
    liveness: toProbe(healthchecks.liveness_probe, ports),
    readyTimeoutMs: readyTimeoutMs(readiness),
    stopGraceMs: stopGraceMs(running),
    ...containerSettingsIn(running),
    ...placementIn(running),
    ...(ingress === undefined ? {} : { ingress }),
  }
}
