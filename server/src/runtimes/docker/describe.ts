/** Workload + index + host ports → what the Engine API is told. Pure: the same input gives the same container. */
import { createHmac } from 'node:crypto'
import type { Task, Workload } from '../runtime.ts'

/** Every container may have this many processes and threads. */
export const pidsLimit = 4096

/** Internal port → port of 127.0.0.1 at which the engine publishes it. */
export type HostPorts = Record<number, number>

export interface ContainerBody {
  Image: string
  Entrypoint?: string[]
  Cmd?: string[]
  Env: string[]
  Labels: Record<string, string>
  ExposedPorts: Record<string, object>
  HostConfig: Record<string, unknown>
  NetworkingConfig: { EndpointsConfig: Record<string, { Aliases: string[] }> }
}

export const labels = {
  owner: 'slipway.owner',
  organization: 'slipway.organization',
  environment: 'slipway.environment',
  service: 'slipway.service',
  revision: 'slipway.revision',
  index: 'slipway.index',
  ports: 'slipway.ports',
  config: 'slipway.config',
  /** JSON of the liveness probe, where there is one. */
  liveness: 'slipway.liveness',
  task: 'slipway.task',
  attempt: 'slipway.attempt',
  volume: 'slipway.volume',
} as const

// Ids begin with the time: services made in one minute share their first eight digits, so names use the random tail.
const tail = (id: string): string => id.replaceAll('-', '').slice(-12)

export const containerName = (serviceId: string, revision: string, index: number): string =>
  `slipway-${tail(serviceId)}-${tail(revision)}-${index}`

export const taskName = (taskId: string): string => `slipway-task-${taskId}`
export const networkName = (environmentId: string): string => `slipway-${environmentId}`
export const volumeName = (volumeId: string): string => `slipway-${volumeId}`

export const formatPorts = (ports: HostPorts): string =>
  Object.entries(ports)
    .map(([inner, outer]) => `${inner}=${outer}`)
    .join(',')

export const parsePorts = (text: string | undefined): HostPorts =>
  Object.fromEntries((text ? text.split(',') : []).map((pair) => pair.split('=').map(Number)))

const transport = (protocol: string): 'tcp' | 'udp' => (protocol === 'UDP' ? 'udp' : 'tcp')

const idLabels = (ownerId: string, of: Pick<Workload, 'organizationId' | 'environmentId' | 'serviceId'>) => ({
  [labels.owner]: ownerId,
  [labels.organization]: of.organizationId,
  [labels.environment]: of.environmentId,
  [labels.service]: of.serviceId,
})

const limits = (of: Pick<Workload, 'cpuMillicores' | 'memoryMb'>) => ({
  NanoCpus: Math.max(10, of.cpuMillicores) * 1_000_000,
  Memory: of.memoryMb * 1024 * 1024,
  MemorySwap: of.memoryMb * 1024 * 1024,
  PidsLimit: pidsLimit,
  Init: true,
  SecurityOpt: ['no-new-privileges'],
  LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
})

const program = (of: Pick<Workload, 'image' | 'entrypoint' | 'arguments' | 'env'>) => ({
  Image: of.image,
  ...(of.entrypoint === null ? {} : { Entrypoint: of.entrypoint }),
  ...(of.arguments === null ? {} : { Cmd: of.arguments }),
  Env: Object.entries(of.env.reveal()).map(([key, value]) => `${key}=${value}`),
})

const network = (environmentId: string, aliases: string[]) => ({
  EndpointsConfig: { [networkName(environmentId)]: { Aliases: aliases } },
})

const mounts = (workload: Workload, ownerId: string) =>
  workload.volumes.map((volume) => ({
    Type: 'volume',
    Source: volumeName(volume.id),
    Target: volume.mountPath,
    VolumeOptions: { Labels: { ...idLabels(ownerId, workload), [labels.volume]: volume.id } },
  }))

const portKeys = (workload: Workload, hostPorts: HostPorts): [string, { HostIp: string; HostPort: string }[]][] =>
  workload.ports.map(({ internalPort, protocol }) => [
    `${internalPort}/${transport(protocol)}`,
    [{ HostIp: '127.0.0.1', HostPort: String(hostPorts[internalPort] ?? '') }],
  ])

/**
 * Tells whether a container was made from this configuration. Host ports and the number of instances do not count.
 * Whoever may read labels may read the environment too, so the key only keeps owners apart.
 */
export const configHash = (workload: Workload, ownerId: string): string => {
  const { instances: _, readiness: _r, readyTimeoutMs: _t, stopGraceMs: _s, ...rest } = workload
  const text = JSON.stringify([rest, workload.env.reveal(), workload.files.reveal()])
  return createHmac('sha256', ownerId).update(text).digest('hex').slice(0, 32)
}

export const describeInstance = (
  workload: Workload,
  index: number,
  hostPorts: HostPorts,
  ownerId: string,
): ContainerBody => {
  const ports = portKeys(workload, hostPorts)
  return {
    ...program(workload),
    Labels: {
      ...idLabels(ownerId, workload),
      [labels.revision]: workload.revision,
      [labels.index]: String(index),
      [labels.ports]: formatPorts(hostPorts),
      [labels.config]: configHash(workload, ownerId),
      ...(workload.liveness === null ? {} : { [labels.liveness]: JSON.stringify(workload.liveness) }),
    },
    ExposedPorts: Object.fromEntries(ports.map(([key]) => [key, {}])),
    HostConfig: {
      ...limits(workload),
      RestartPolicy: { Name: 'unless-stopped' },
      PortBindings: Object.fromEntries(ports),
      Mounts: mounts(workload, ownerId),
      NetworkMode: networkName(workload.environmentId),
    },
    NetworkingConfig: network(workload.environmentId, workload.aliases),
  }
}

export const describeTask = (task: Task, ownerId: string): ContainerBody => ({
  ...program(task),
  Labels: {
    ...idLabels(ownerId, task),
    [labels.revision]: task.taskId,
    [labels.index]: '0',
    [labels.task]: task.taskId,
    [labels.attempt]: String(task.attempt ?? 1),
  },
  ExposedPorts: {},
  HostConfig: { ...limits(task), RestartPolicy: { Name: 'no' }, NetworkMode: networkName(task.environmentId) },
  NetworkingConfig: network(task.environmentId, []),
})
