/** The machines of a Kubernetes cluster in the words of the public streams. Pure. */
import { type ClusterNode, type NodeCondition, type NodeResources, noMetrics } from '../../runtimes/kubernetes/nodes.ts'
import type { Usage } from '../../runtimes/runtime.ts'

const resources = ({ cpuMillicores, memoryMb, ephemeralStorageMb, pods }: NodeResources) => ({
  cpu_milli: cpuMillicores,
  memory_mib: memoryMb,
  ephemeral_storage_mib: ephemeralStorageMb,
  pods,
})

const conditionOf = ({ type, status, heartbeatAt, changedAt, reason, message }: NodeCondition) => ({
  type,
  status,
  last_heartbeat_time: heartbeatAt,
  last_transition_time: changedAt,
  reason,
  message,
})

/** For a machine without metrics, in addition to its own data. */
const withoutMetrics = (askedAt: Date) => ({
  type: 'MetricsAvailable',
  status: 'False',
  ...{ last_heartbeat_time: askedAt.getTime(), last_transition_time: askedAt.getTime() },
  ...{ reason: 'MetricsMissing', message: noMetrics },
})

const percentOf = (part: number, whole: number | null | undefined): number | null =>
  whole === null || whole === undefined || whole === 0 ? null : Math.round((100 * part) / whole)

/** What is used, and its share of `cpu` and `memory`, where they are known. */
export const usageOf = (
  used: Pick<Usage, 'cpuMillicores' | 'memoryMb' | 'memoryRssMb'>,
  cpu?: number | null,
  memory?: number | null,
) => ({
  cpu_milli_usage: used.cpuMillicores,
  cpu_percent_usage: percentOf(used.cpuMillicores, cpu),
  memory_mib_rss_usage: used.memoryRssMb,
  memory_mib_working_set_usage: used.memoryMb,
  memory_percent_rss_usage: percentOf(used.memoryRssMb, memory),
  memory_percent_working_set_usage: percentOf(used.memoryMb, memory),
})

const nodeUsage = ({ usage, allocatable }: ClusterNode) =>
  usage === null
    ? {}
    : usageOf({ ...usage, memoryRssMb: usage.memoryMb }, allocatable.cpuMillicores, allocatable.memoryMb)

/** `allocated`, `pods`: those that the caller may see there. */
export const asNodeFrame = (node: ClusterNode, askedAt: Date, allocated: object, pods: readonly object[]) => ({
  created_at: node.createdAt,
  name: node.name,
  architecture: node.architecture,
  instance_type: node.instanceType,
  kernel_version: node.kernelVersion,
  kubelet_version: node.kubeletVersion,
  operating_system: node.operatingSystem,
  os_image: node.osImage,
  unschedulable: node.isUnschedulable,
  resources_allocatable: resources(node.allocatable),
  resources_capacity: resources(node.capacity),
  resources_allocated: allocated,
  taints: node.taints,
  labels: node.labels,
  annotations: {},
  addresses: node.addresses,
  conditions: [...node.conditions.map(conditionOf), ...(node.usage === null ? [withoutMetrics(askedAt)] : [])],
  metrics_usage: nodeUsage(node),
  pods,
})

/** A machine is well when it and its parts are ready (`Ready`, `StorageReady` …) and no other condition is true. */
const isWarning = ({ type, status }: NodeCondition): boolean => (status === 'True') !== type.endsWith('Ready')

/** The problems of each machine, by name; healthy ones are left out. */
export const nodeWarningsOf = (nodes: readonly ClusterNode[]) =>
  Object.fromEntries(
    nodes.flatMap(({ name, conditions }) => {
      const warnings = conditions
        .filter(isWarning)
        .map(({ type, reason, message }) => ({ type, reason, message, node_attributes: {} }))
      return warnings.length === 0 ? [] : [[name, warnings]]
    }),
  )
