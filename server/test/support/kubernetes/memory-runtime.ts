/** The runtime on a cluster in memory. */
import { createKubernetesApi } from '../../../src/lib/kubernetes/kubernetes-api.ts'
import { createKubernetesRuntime, type KubernetesRuntimeParts } from '../../../src/runtimes/kubernetes/runtime.ts'
import type { MemoryCluster } from './api-server.ts'

export const createMemoryRuntime = (
  cluster: Pick<MemoryCluster, 'access'>,
  ownerId: string,
  registryLogins: KubernetesRuntimeParts['registryLogins'] = async () => [],
  charts?: KubernetesRuntimeParts['charts'],
) => {
  const loopback = async () => ({ address: '127.0.0.1' })
  const api = createKubernetesApi(cluster.access(), loopback)
  return createKubernetesRuntime({
    ...{ api, ownerId, registryLogins, charts, version: 'v1.33.1', outbound: { checkMachine: loopback } as never },
    ping: async () => {},
    capacity: () => Promise.reject(new Error('not asked')),
    close: api.close,
  })
}
