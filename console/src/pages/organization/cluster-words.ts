/** What a cluster is and has, in words. */
import type { Schemas } from '../../api/client.ts'
import { type Cluster, providerWord } from './cluster-forms.tsx'

export type ClusterStatus = Schemas['ClusterStatus']

export const kindOf = (cluster: Cluster, isKubernetes: boolean): string => {
  if (cluster.kubernetes === 'MANAGED') return `Kubernetes at ${providerWord(cluster.cloud_provider)}`
  return isKubernetes ? 'Kubernetes cluster of your own' : 'Docker engine'
}

export const coresOf = (milli: number | null | undefined): string => (milli == null ? '–' : `${milli / 1000} cores`)
export const gigabytesOf = (mega: number | null | undefined): string =>
  mega == null ? '–' : `${Math.round(mega / 102.4) / 10} GB`
