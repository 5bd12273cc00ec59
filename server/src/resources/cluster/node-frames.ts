/** The machines of a Kubernetes cluster in the words of the public streams. Pure. */
import type { ClusterNode, NodeCondition, NodeResources } from '../../runtimes/kubernetes/nodes.ts'

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

/** Nothing of ours runs there, so that nothing of it is allocated or used by us. */
const unused = { request_cpu_milli: 0, limit_cpu_milli: 0, request_memory_mib: 0, limit_memory_mib: 0 }

export const asNodeFrame = (node: ClusterNode) => ({
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
  resources_allocated: unused,
  taints: node.taints,
  labels: node.labels,
  annotations: {},
  addresses: node.addresses,
  conditions: node.conditions.map(conditionOf),
  metrics_usage: {},
  pods: [],
})

/** A machine is well when it and its parts are ready (`Ready`, `StorageReady` …) and nothing else is said of it. */
const isWarning = ({ type, status }: NodeCondition): boolean => (status === 'True') !== type.endsWith('Ready')

/** What is wrong with which machine, by its name; those that are well are left out. */
export const nodeWarningsOf = (nodes: readonly ClusterNode[]) =>
  Object.fromEntries(
    nodes.flatMap(({ name, conditions }) => {
      const warnings = conditions
        .filter(isWarning)
        .map(({ type, reason, message }) => ({ type, reason, message, node_attributes: {} }))
      return warnings.length === 0 ? [] : [[name, warnings]]
    }),
  )
