/** The machines of a Kubernetes cluster, from its API. Untrusted texts: each is cut, each list is bounded. */
import { parseQuantity } from '../../lib/kubernetes/quantity.ts'
import { sanitizeText } from '../../lib/sanitize-text.ts'
import type { Capacity } from '../runtime.ts'

export interface NodeResources {
  cpuMillicores: number
  memoryMb: number
  ephemeralStorageMb: number
  pods: number
}

export interface NodeCondition {
  type: string
  status: string
  reason: string
  message: string
  /** Milliseconds since 1970. */
  heartbeatAt: number
  changedAt: number
}

export interface ClusterNode {
  name: string
  createdAt: number
  architecture: string
  instanceType: string
  kernelVersion: string
  kubeletVersion: string
  operatingSystem: string
  osImage: string
  isUnschedulable: boolean
  capacity: NodeResources
  allocatable: NodeResources
  taints: { key: string; value: string; effect: string }[]
  labels: Record<string, string>
  addresses: { type: string; address: string }[]
  conditions: NodeCondition[]
  /** Its present usage; null if the cluster has no metrics of it. */
  usage: { cpuMillicores: number; memoryMb: number } | null
}

/** The reason why no usage is reported. */
export const noMetrics =
  'The cluster has no metrics: install metrics-server in it to see what machines and instances use.'

type Json = Record<string, unknown>

const most = 50

const mapIn = (value: unknown): Json => (typeof value === 'object' && value !== null ? (value as Json) : {})
const listIn = (value: unknown): Json[] => (Array.isArray(value) ? value.slice(0, most).map(mapIn) : [])
const textIn = (value: unknown, longest = 253): string =>
  typeof value === 'string' ? sanitizeText(value).slice(0, longest) : ''
const timeIn = (value: unknown): number => Date.parse(textIn(value)) || 0

const mib = 2 ** 20

const resourcesIn = (value: unknown): NodeResources => {
  const amounts = mapIn(value)
  const amount = (name: string, unit: number): number => Math.floor((parseQuantity(amounts[name]) ?? 0) / unit)
  return {
    cpuMillicores: amount('cpu', 0.001),
    memoryMb: amount('memory', mib),
    ephemeralStorageMb: amount('ephemeral-storage', mib),
    pods: amount('pods', 1),
  }
}

const labelsIn = (value: unknown): Record<string, string> =>
  Object.fromEntries(
    Object.entries(mapIn(value))
      .slice(0, most)
      .map(([name, text]) => [textIn(name), textIn(text)]),
  )

/** Usage of machines, by their names, from metrics-server. */
export const readNodeUsage = (items: readonly unknown[]): ReadonlyMap<string, ClusterNode['usage']> =>
  new Map(
    items.map((item) => {
      const { metadata, usage } = mapIn(item)
      const { cpuMillicores, memoryMb } = resourcesIn(usage)
      return [textIn(mapIn(metadata).name), { cpuMillicores, memoryMb }]
    }),
  )

export const readNode = (value: unknown, usage: ReadonlyMap<string, ClusterNode['usage']> = new Map()): ClusterNode => {
  const { metadata, spec, status } = mapIn(value)
  const [meta, info] = [mapIn(metadata), mapIn(mapIn(status).nodeInfo)]
  const labels = labelsIn(meta.labels)
  return {
    name: textIn(meta.name),
    createdAt: timeIn(meta.creationTimestamp),
    architecture: textIn(info.architecture),
    instanceType: labels['node.kubernetes.io/instance-type'] ?? 'kubernetes',
    kernelVersion: textIn(info.kernelVersion),
    kubeletVersion: textIn(info.kubeletVersion),
    operatingSystem: textIn(info.operatingSystem),
    osImage: textIn(info.osImage),
    isUnschedulable: mapIn(spec).unschedulable === true,
    capacity: resourcesIn(mapIn(status).capacity),
    allocatable: resourcesIn(mapIn(status).allocatable),
    taints: listIn(mapIn(spec).taints).map(({ key, value: text, effect }) => ({
      key: textIn(key),
      value: textIn(text),
      effect: textIn(effect),
    })),
    labels,
    addresses: listIn(mapIn(status).addresses).map(({ type, address }) => ({
      type: textIn(type),
      address: textIn(address),
    })),
    conditions: listIn(mapIn(status).conditions).map((one) => ({
      type: textIn(one.type),
      status: textIn(one.status),
      reason: textIn(one.reason),
      message: textIn(one.message, 500),
      heartbeatAt: timeIn(one.lastHeartbeatTime),
      changedAt: timeIn(one.lastTransitionTime),
    })),
    usage: usage.get(textIn(meta.name)) ?? null,
  }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)

/** The resources of all machines together for pods; the architecture is that of most of them. */
export const capacityOf = (nodes: readonly ClusterNode[]): Capacity => {
  const arms = nodes.filter(({ architecture }) => architecture === 'arm64').length
  return {
    cpuMillicores: sum(nodes.map(({ allocatable }) => allocatable.cpuMillicores)),
    memoryMb: sum(nodes.map(({ allocatable }) => allocatable.memoryMb)),
    architecture: arms > nodes.length / 2 ? 'ARM64' : 'AMD64',
    limitsVolumes: false,
  }
}
