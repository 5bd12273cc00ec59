/**
 * The questions to a Kubernetes cluster: its identity, our login's rights, and its machines. The code that connects to
 * one is loaded with the first.
 */
import type { KubernetesAccess } from '../../lib/kubernetes/kubeconfig.ts'
import type { Pin } from '../../lib/net/pinned-connector.ts'
import type { Runtime } from '../runtime.ts'
import type { HelmTool } from './helm/tool.ts'
import type { ClusterNode } from './nodes.ts'
import type { Act } from './rights.ts'
import type { KubernetesRuntimeParts } from './runtime.ts'

export interface KubernetesFacts {
  /** The uid of its namespace kube-system, the same for the life of a cluster; null only while something is missing. */
  uid: string | null
  /** `v1.31.2`. */
  version: string
  /** Rights that our login lacks, and will need. */
  missing: Act[]
}

/** The tools that install charts; without them, none are installed. */
export interface ChartParts {
  helm?: HelmTool | undefined
}

/** All reject with `KubernetesError`. */
export interface Kubernetes {
  /** `deadlineMs`: default 5000. */
  look(signal?: AbortSignal, deadlineMs?: number): Promise<KubernetesFacts>
  nodes(signal?: AbortSignal): Promise<ClusterNode[]>
  /** Runs services there; its code is loaded with the first cluster. Sends no request to the cluster. */
  runtime(parts: Omit<KubernetesRuntimeParts, 'api' | 'charts'> & ChartParts): Promise<Runtime>
  close(): Promise<void>
}

export type OpenKubernetes = (access: KubernetesAccess) => Promise<Kubernetes>

export const createOpenKubernetes =
  (pin: Pin): OpenKubernetes =>
  async (access) => {
    const { openKubernetes } = await import('./open.ts')
    return openKubernetes(access, pin)
  }
