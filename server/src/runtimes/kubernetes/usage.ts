/** Usage of instances, from the cluster's own metrics, if it has any (metrics.k8s.io). */
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'
import { parseQuantity } from '../../lib/kubernetes/quantity.ts'
import type { Instance, Runtime, Usage } from '../runtime.ts'
import { containerName, labels, namespaceOf } from './manifests/describe.ts'
import { noMetrics } from './nodes.ts'
import { asDeploymentError, type Found, type Objects, selectorOf } from './objects.ts'

export const metricsPath = '/apis/metrics.k8s.io/v1beta1'

/** For `catch`: null if there are no metrics, or not yet. */
export const orNoMetrics = (error: unknown): null => {
  if (error instanceof KubernetesError && [403, 404, 503].includes(error.status)) return null
  throw error
}

interface PodMetrics extends Found {
  containers?: { name?: string; usage?: { cpu?: unknown; memory?: unknown } }[]
}

const most = 10_000
const mib = 2 ** 20

const limitsOf = ({ spec }: Found): { cpu?: unknown; memory?: unknown } => {
  const containers = Array.isArray(spec?.containers) ? spec.containers : []
  const main = containers.find((each: { name?: unknown }) => each.name === containerName)
  return (main as { resources?: { limits?: object } } | undefined)?.resources?.limits ?? {}
}

const amount = (text: unknown, unit: number): number | null => {
  const found = text === undefined ? null : parseQuantity(text)
  return found === null ? null : found / unit
}

const usageOf = ({ containers = [] }: PodMetrics, pod: Found): Usage | null => {
  const used = containers.find(({ name }) => name === containerName)?.usage
  if (used === undefined) return null
  const limits = limitsOf(pod)
  const memoryMb = amount(used.memory, mib) ?? 0
  return {
    cpuMillicores: amount(used.cpu, 0.001) ?? 0,
    cpuLimitMillicores: amount(limits.cpu, 0.001),
    memoryMb,
    memoryRssMb: memoryMb,
    memoryLimitMb: amount(limits.memory, mib),
  }
}

/** See `Runtime.usageProblem`. */
export const createUsageProblem =
  ({ api }: Objects): NonNullable<Runtime['usageProblem']> =>
  async (signal) => {
    const found = await api.list<object>(`${metricsPath}/nodes`, 1, { signal }).catch(orNoMetrics)
    return found === null ? noMetrics : null
  }

export const createUsage = (objects: Objects): Runtime['usage'] => {
  const { api, place } = objects
  const labelSelector = selectorOf({ [labels.owner]: place.ownerId })

  /** Of one environment, or of all if they are of several. */
  const read = async (namespace: string | undefined, signal: AbortSignal): Promise<ReadonlyMap<string, Usage>> => {
    const inside = namespace === undefined ? '' : `/namespaces/${namespace}`
    try {
      const [metrics, pods] = await Promise.all([
        api
          .list<PodMetrics>(`${metricsPath}${inside}/pods`, most, { query: { labelSelector }, signal })
          .catch(orNoMetrics),
        objects.list('Pod', {}, namespace, signal),
      ])
      const known = new Map(pods.map((pod) => [pod.metadata.name, pod]))
      return new Map(
        (metrics ?? []).flatMap((each) => {
          const pod = known.get(each.metadata.name)
          const usage = pod === undefined ? null : usageOf(each, pod)
          return usage === null ? [] : [[each.metadata.name, usage] as const]
        }),
      )
    } catch (error) {
      signal.throwIfAborted()
      throw asDeploymentError(error, 'the metrics')
    }
  }
  const pending = new Map<string, Promise<ReadonlyMap<string, Usage>>>()
  const share = (namespace: string | undefined, signal: AbortSignal) => {
    const key = namespace ?? ''
    const known = pending.get(key)
    if (known !== undefined) return known
    const asked = read(namespace, signal).finally(() => pending.delete(key))
    pending.set(key, asked)
    return asked
  }
  return async (instances: readonly Instance[], signal) => {
    const environments = new Set(instances.map(({ environmentId }) => environmentId))
    if (environments.size === 0) return new Map()
    const [one] = environments
    const all = await share(environments.size === 1 ? namespaceOf(one!) : undefined, signal)
    return new Map(instances.flatMap(({ id }) => (all.has(id) ? [[id, all.get(id)!] as const] : [])))
  }
}
