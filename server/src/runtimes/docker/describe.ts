/** Workload + index + place → the body for the Engine API. Pure: the same input gives the same container. */
import { createHmac } from 'node:crypto'
import { isReservedLabel } from '../../lib/docker/reserved-labels.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { PipedTask } from '../pipes.ts'
import type { Task, Workload, WorkloadPort } from '../runtime.ts'

/** Every container may have this many processes and threads. */
const pidsLimit = 4096

/** Internal port → port at which the engine publishes it. */
export type HostPorts = Record<number, number>

/** Where an instance is reached: at its own address, or at ports that the engine publishes for it. */
export type InstancePlace =
  | { address: string; ports: readonly number[] }
  /** At 127.0.0.1, or at an address of the engine's machine. */
  | { hostPorts: HostPorts; hostIp?: string }

export interface ContainerBody {
  Image: string
  Entrypoint?: string[]
  Cmd?: string[]
  Env: string[]
  Labels: Record<string, string>
  ExposedPorts: Record<string, object>
  HostConfig: Record<string, unknown>
  /** For a program whose standard streams are connected; its input ends with the connection. */
  AttachStdin?: boolean
  OpenStdin?: boolean
  StdinOnce?: boolean
  NetworkingConfig: {
    EndpointsConfig: Record<string, { Aliases: string[]; IPAMConfig?: { IPv4Address: string } }>
  }
}

export const labels = {
  owner: 'slipway.owner',
  organization: 'slipway.organization',
  environment: 'slipway.environment',
  service: 'slipway.service',
  revision: 'slipway.revision',
  index: 'slipway.index',
  /** Its ports and address. */
  ports: 'slipway.ports',
  config: 'slipway.config',
  /** JSON of the liveness probe, if it has one. */
  liveness: 'slipway.liveness',
  /** The same of the readiness probe. */
  readiness: 'slipway.readiness',
  /** JSON of the commands that are run after a start and before an end. */
  postStart: 'slipway.post-start',
  preStop: 'slipway.pre-stop',
  task: 'slipway.task',
  attempt: 'slipway.attempt',
  volume: 'slipway.volume',
  record: 'slipway.record',
} as const

// Ids begin with the time: services created in one minute share their first eight digits, so names use the random
// tail.
const tail = (id: string): string => id.replaceAll('-', '').slice(-12)

export const containerName = (serviceId: string, revision: string, index: number): string =>
  `slipway-${tail(serviceId)}-${tail(revision)}-${index}`

export const taskName = (taskId: string): string => `slipway-task-${taskId}`
/**
 * Whether a container of this name can be one of ours. The engine's own builder makes containers with the labels of
 * the image that it builds, so that anyone can set labels; it gives them names of its own.
 */
export const isOwnName = (name: string): boolean => name.startsWith('slipway-') && !name.startsWith('slipway-build-')

export const networkName = (environmentId: string): string => `slipway-${environmentId}`
export const volumeName = (volumeId: string): string => `slipway-${volumeId}`

/** For every container of ours: a label of the image must not fill in one that we leave out. An unused one is ''. */
const noLabels: Readonly<Record<string, string>> = Object.fromEntries(Object.values(labels).map((name) => [name, '']))

/** The engine sends all labels with every event. */
const mostLabelBytes = 64 * 1024

/** Labels of the owners, without those that could be taken for ours or the engine's. */
const ownersLabels = (given: Workload['labels'] = {}): Record<string, string> => {
  const pairs = Object.entries(given).filter(([key]) => !isReservedLabel(key))
  if (JSON.stringify(pairs).length <= mostLabelBytes) return Object.fromEntries(pairs)
  const message =
    'The groups of labels and annotations of the service are larger than 64 KiB together: make them smaller.'
  throw new DeploymentError('labels_too_large', message)
}

const jsonOf = (value: unknown): string => (value === undefined || value === null ? '' : JSON.stringify(value))

/** The value of a container's label; undefined if it is missing or ''. */
export const labelOf = (of: Readonly<Record<string, string>> | null | undefined, name: string): string | undefined =>
  of?.[name] || undefined

/** A container's task, from name and labels. Only we choose names: no image turns an instance into a task. */
export const taskIdIn = (name: string, of: Readonly<Record<string, string>>): string | undefined => {
  const taskId = labelOf(of, labels.task)
  return taskId !== undefined && name === taskName(taskId) ? taskId : undefined
}

/** `10.192.4.9=80,53`, or published: `80=15000,53=15001`. */
export const formatPlace = (place: InstancePlace): string =>
  'address' in place
    ? `${place.address}=${place.ports.join(',')}`
    : Object.entries(place.hostPorts)
        .map(([inner, outer]) => `${inner}=${outer}`)
        .join(',')

const isIPv4 = (text: string): boolean => /^((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(?!$)|$)){4}$/.test(text)
const isPort = (port: number | undefined): port is number => Number.isInteger(port) && port! >= 1 && port! <= 65_535

/** Anything that is not a port is left out. */
export const parsePlace = (text = ''): InstancePlace => {
  const [address = '', list = ''] = text.split('=', 2)
  if (isIPv4(address)) return { address, ports: list.split(',').map(Number).filter(isPort) }
  const pairs = text.split(',').map((pair) => pair.split('=').map(Number))
  return { hostPorts: Object.fromEntries(pairs.filter(([inner, outer]) => isPort(inner) && isPort(outer))) }
}

const transport = (protocol: string): 'tcp' | 'udp' => (protocol === 'UDP' ? 'udp' : 'tcp')

const idLabels = (ownerId: string, of: Pick<Workload, 'organizationId' | 'environmentId' | 'serviceId'>) => ({
  [labels.owner]: ownerId,
  [labels.organization]: of.organizationId,
  [labels.environment]: of.environmentId,
  [labels.service]: of.serviceId,
})

const limits = (of: Pick<Workload, 'cpuMillicores' | 'memoryMb' | 'readOnlyRoot'>) => ({
  NanoCpus: Math.max(10, of.cpuMillicores) * 1_000_000,
  Memory: of.memoryMb * 1024 * 1024,
  MemorySwap: of.memoryMb * 1024 * 1024,
  PidsLimit: pidsLimit,
  Init: true,
  ...(of.readOnlyRoot === true ? { ReadonlyRootfs: true } : {}),
  SecurityOpt: ['no-new-privileges'],
  // Raw packets and devices: services need neither.
  CapDrop: ['NET_RAW', 'MKNOD'],
  LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
})

const program = (of: Pick<Workload, 'image' | 'entrypoint' | 'arguments' | 'env'>) => ({
  Image: of.image,
  ...(of.entrypoint === null ? {} : { Entrypoint: of.entrypoint }),
  ...(of.arguments === null ? {} : { Cmd: of.arguments }),
  Env: Object.entries(of.env.reveal()).map(([key, value]) => `${key}=${value}`),
})

const network = (environmentId: string, aliases: string[], address?: string) => ({
  EndpointsConfig: {
    [networkName(environmentId)]: {
      Aliases: aliases,
      ...(address === undefined ? {} : { IPAMConfig: { IPv4Address: address } }),
    },
  },
})

export interface Mount {
  Type: 'volume'
  Source: string
  Target: string
  VolumeOptions: { Labels: Record<string, string>; DriverConfig?: { Name: string; Options: Record<string, string> } }
}

const mounts = (
  workload: Pick<Workload, 'organizationId' | 'environmentId' | 'serviceId' | 'volumes' | 'record'>,
  ownerId: string,
): Mount[] =>
  workload.volumes.map((volume) => ({
    Type: 'volume',
    Source: volumeName(volume.id),
    Target: volume.mountPath,
    VolumeOptions: {
      Labels: {
        ...idLabels(ownerId, workload),
        [labels.volume]: volume.id,
        ...(workload.record === undefined ? {} : { [labels.record]: workload.record }),
      },
      // Left out if the engine does not limit sizes.
      DriverConfig: { Name: 'local', Options: { size: `${volume.sizeGb}G` } },
    },
  }))

/** The port that determines whether a service without a readiness probe is ready. */
export const usualPort = ({ ports }: Pick<Workload, 'ports'>): WorkloadPort | undefined =>
  ports.find(({ protocol }) => protocol === 'HTTP') ??
  ports.find(({ protocol }) => protocol === 'TCP' || protocol === 'GRPC')

/** Ports to which something outside the environment's network connects: the router or a probe. */
export const askedPorts = (workload: Pick<Workload, 'ports' | 'readiness' | 'liveness'>): WorkloadPort[] => {
  const { ports, readiness, liveness } = workload
  const probed = [readiness, liveness].map((probe) =>
    probe === null || probe.check.kind === 'exec' ? undefined : probe.check.port,
  )
  if (readiness === null) probed.push(usualPort(workload)?.internalPort)
  return ports.filter(({ internalPort, publiclyAccessible }) => publiclyAccessible || probed.includes(internalPort))
}

const portKeys = (workload: Workload): string[] =>
  workload.ports.map(({ internalPort, protocol }) => `${internalPort}/${transport(protocol)}`)

/** Instances with an address of their own publish no ports, and nothing is published on all addresses. */
const portBindings = (workload: Workload, place: InstancePlace) =>
  'address' in place
    ? {}
    : Object.fromEntries(
        workload.ports.flatMap(({ internalPort, protocol }) => {
          const port = place.hostPorts[internalPort]
          if (port === undefined) return []
          const binding = { HostIp: place.hostIp ?? '127.0.0.1', HostPort: String(port) }
          return [[`${internalPort}/${transport(protocol)}`, [binding]]]
        }),
      )

/**
 * Whether a container was made from this configuration. Its place and the number of instances do not count, nor how
 * requests are routed and treated. A user who can read labels can read the environment too, so the key only separates
 * owners.
 */
export const configHash = (workload: Workload, ownerId: string): string => {
  const {
    artifact: _a,
    instances: _,
    scaling: _c,
    readiness: _r,
    readyTimeoutMs: _t,
    stopGraceMs: _s,
    ingress: _i,
    record: _k,
    ...rest
  } = workload
  const ports = workload.ports.map(({ publicPath: _p, publicPathRewrite: _w, ...port }) => port)
  const text = JSON.stringify([{ ...rest, ports }, workload.env.reveal(), workload.files.reveal()])
  return createHmac('sha256', ownerId).update(text).digest('hex').slice(0, 32)
}

export const describeInstance = (
  workload: Workload,
  index: number,
  place: InstancePlace,
  ownerId: string,
): ContainerBody => ({
  ...program(workload),
  Labels: {
    ...ownersLabels(workload.labels),
    ...noLabels,
    ...idLabels(ownerId, workload),
    [labels.revision]: workload.revision,
    [labels.index]: String(index),
    [labels.ports]: formatPlace(place),
    [labels.config]: configHash(workload, ownerId),
    [labels.liveness]: jsonOf(workload.liveness),
    [labels.readiness]: workload.eagerReadiness === true ? '' : jsonOf(workload.readiness),
    [labels.postStart]: jsonOf(workload.postStart),
    [labels.preStop]: jsonOf(workload.preStop),
    [labels.record]: workload.record ?? '',
  },
  ExposedPorts: Object.fromEntries(portKeys(workload).map((key) => [key, {}])),
  HostConfig: {
    ...limits(workload),
    RestartPolicy: { Name: 'unless-stopped' },
    PortBindings: portBindings(workload, place),
    Mounts: mounts(workload, ownerId),
    NetworkMode: networkName(workload.environmentId),
  },
  NetworkingConfig: network(workload.environmentId, workload.aliases, 'address' in place ? place.address : undefined),
})

export const describeTask = (task: Task, ownerId: string): ContainerBody => ({
  ...program(task),
  Labels: {
    ...ownersLabels(task.labels),
    ...noLabels,
    ...idLabels(ownerId, task),
    [labels.revision]: task.taskId,
    [labels.index]: '0',
    [labels.task]: task.taskId,
    [labels.attempt]: String(task.attempt ?? 1),
  },
  ExposedPorts: {},
  HostConfig: {
    ...limits(task),
    RestartPolicy: { Name: 'no' },
    Mounts: mounts(task, ownerId),
    NetworkMode: networkName(task.environmentId),
  },
  NetworkingConfig: network(task.environmentId, []),
})

/** The engine keeps nothing of what it reads and writes. */
export const describePipe = ({ isAlone, ...task }: PipedTask, ownerId: string): ContainerBody => {
  const body = describeTask({ ...task, outputs: [] }, ownerId)
  const HostConfig = { ...body.HostConfig, LogConfig: { Type: 'none' } }
  return {
    ...body,
    ...{ AttachStdin: true, OpenStdin: true, StdinOnce: true },
    HostConfig: isAlone === true ? { ...HostConfig, NetworkMode: 'none' } : HostConfig,
    NetworkingConfig: isAlone === true ? { EndpointsConfig: {} } : body.NetworkingConfig,
  }
}
