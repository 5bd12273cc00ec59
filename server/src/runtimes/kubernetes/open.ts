/**
 * Reads a cluster's identity, our login's rights, and its machines.
 *
 * Promises: nothing is changed there. The answer is given by the deadline, whatever the cluster does. Does not know:
 * rows, and the owner of the cluster.
 */
import { forEachParallel } from '../../lib/concurrency/parallel.ts'
import type { KubernetesAccess } from '../../lib/kubernetes/kubeconfig.ts'
import { type AskOptions, createKubernetesApi, type KubernetesApi } from '../../lib/kubernetes/kubernetes-api.ts'
import { KubernetesError, unanswered } from '../../lib/kubernetes/kubernetes-errors.ts'
import type { Pin } from '../../lib/net/pinned-connector.ts'
import type { Kubernetes, KubernetesFacts } from './kubernetes.ts'
import { readNode, readNodeUsage } from './nodes.ts'
import { type Act, missingIn, mostRules, type Rule } from './rights.ts'
import { metricsPath, orNoMetrics } from './usage.ts'

const usualDeadlineMs = 5000
const mostNodes = 500
const reviews = '/apis/authorization.k8s.io/v1'
/** A missing namespace: only rights granted in all namespaces apply to it. */
const noNamespace = 'slipway-access-review'
const parallel = 8

const readUid = async (api: KubernetesApi, options: AskOptions): Promise<string> => {
  const { metadata } = await api.get<{ metadata?: { uid?: unknown } }>('/api/v1/namespaces/kube-system', options)
  const uid = metadata?.uid
  if (typeof uid === 'string' && /^[\w-]{1,100}$/.test(uid)) return uid
  throw new KubernetesError(0, 'The server at this address is not the API server of a Kubernetes cluster.')
}

const readVersion = async (api: KubernetesApi, options: AskOptions): Promise<string> => {
  const { gitVersion } = await api.get<{ gitVersion?: unknown }>('/version', options)
  return String(gitVersion ?? '').slice(0, 100)
}

const mayAct = async (api: KubernetesApi, { group, resource, verb }: Act, options: AskOptions): Promise<boolean> => {
  const [name, subresource] = resource.split('/')
  const attributes = { group, resource: name, verb, ...(subresource === undefined ? {} : { subresource }) }
  const body = {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectAccessReview',
    spec: { resourceAttributes: attributes },
  }
  const { status } = await api.review<{ status?: { allowed?: unknown } }>(
    `${reviews}/selfsubjectaccessreviews`,
    body,
    options,
  )
  return status?.allowed === true
}

interface RulesReview {
  status?: { resourceRules?: unknown; incomplete?: unknown }
}

const readMissing = async (api: KubernetesApi, options: AskOptions): Promise<Act[]> => {
  const body = {
    apiVersion: 'authorization.k8s.io/v1',
    kind: 'SelfSubjectRulesReview',
    spec: { namespace: noNamespace },
  }
  const { status } = await api.review<RulesReview>(`${reviews}/selfsubjectrulesreviews`, body, options)
  const rules = Array.isArray(status?.resourceRules) ? (status.resourceRules as (Rule | null)[]) : []
  const missing = missingIn(rules.filter((rule) => rule !== null))
  // Some clusters cannot list all that they would allow, and of a very long list only the beginning is read.
  if (status?.incomplete !== true && rules.length <= mostRules) return missing
  const refused = new Set<Act>()
  await forEachParallel(parallel, missing, async (act) => {
    if (!(await mayAct(api, act, options))) refused.add(act)
  })
  return missing.filter((act) => refused.has(act))
}

const look = async (api: KubernetesApi, options: AskOptions): Promise<KubernetesFacts> => {
  const refused = (error: unknown): KubernetesError => {
    if (error instanceof KubernetesError && error.status === 403) return error
    throw error
  }
  const [uid, version, missing] = await Promise.all([
    readUid(api, options).catch(refused),
    readVersion(api, options),
    readMissing(api, options),
  ])
  if (typeof uid === 'string') return { uid, version, missing }
  if (missing.length === 0) throw uid
  return { uid: null, version, missing }
}

export const openKubernetes = (access: KubernetesAccess, pin: Pin): Kubernetes => {
  const api = createKubernetesApi(access, pin)
  /** One deadline for all requests of `work`. */
  const inTime = async <T>(
    signal: AbortSignal | undefined,
    deadlineMs: number,
    work: (options: AskOptions) => Promise<T>,
  ): Promise<T> => {
    const late = AbortSignal.timeout(deadlineMs)
    try {
      return await work({ signal: signal === undefined ? late : AbortSignal.any([signal, late]) })
    } catch (error) {
      signal?.throwIfAborted()
      throw late.aborted ? unanswered(late.reason) : error
    }
  }
  return {
    look: (signal, deadlineMs = usualDeadlineMs) => inTime(signal, deadlineMs, (options) => look(api, options)),
    nodes: (signal) =>
      inTime(signal, usualDeadlineMs, async (options) => {
        const [nodes, usage] = await Promise.all([
          api.list<unknown>('/api/v1/nodes', mostNodes, options),
          api.list<unknown>(`${metricsPath}/nodes`, mostNodes, options).catch(orNoMetrics),
        ])
        const used = readNodeUsage(usage ?? [])
        return nodes.map((node) => readNode(node, used))
      }),
    async runtime({ helm, ...parts }) {
      const { createKubernetesRuntime } = await import('./runtime.ts')
      return createKubernetesRuntime({ ...parts, api, charts: helm && { tool: helm, access } })
    },
    close: api.close,
  }
}
