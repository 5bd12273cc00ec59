/**
 * Objects of a cluster: created, found and removed, by their kinds. Refusals of the API server become a sentence for
 * the deployment's user.
 */
import { DeploymentError } from '../../lib/errors.ts'
import type { AskOptions, KubernetesApi, RemoveOptions } from '../../lib/kubernetes/kubernetes-api.ts'
import { KubernetesError } from '../../lib/kubernetes/kubernetes-errors.ts'
import { parseQuantity } from '../../lib/kubernetes/quantity.ts'
import { isPassing } from '../../lib/kubernetes/watch.ts'
import { labels, type Manifest, namespaceOf, type Place } from './manifests/describe.ts'
import { describeEnvironment } from './manifests/service.ts'

const fieldManager = 'slipway'

const places = {
  Namespace: ['/api/v1', 'namespaces'],
  Pod: ['/api/v1', 'pods'],
  Event: ['/api/v1', 'events'],
  ConfigMap: ['/api/v1', 'configmaps'],
  Service: ['/api/v1', 'services'],
  Secret: ['/api/v1', 'secrets'],
  PersistentVolumeClaim: ['/api/v1', 'persistentvolumeclaims'],
  Deployment: ['/apis/apps/v1', 'deployments'],
  StatefulSet: ['/apis/apps/v1', 'statefulsets'],
  DaemonSet: ['/apis/apps/v1', 'daemonsets'],
  Job: ['/apis/batch/v1', 'jobs'],
  CronJob: ['/apis/batch/v1', 'cronjobs'],
  HorizontalPodAutoscaler: ['/apis/autoscaling/v2', 'horizontalpodautoscalers'],
  PodDisruptionBudget: ['/apis/policy/v1', 'poddisruptionbudgets'],
  NetworkPolicy: ['/apis/networking.k8s.io/v1', 'networkpolicies'],
  Ingress: ['/apis/networking.k8s.io/v1', 'ingresses'],
  HTTPRoute: ['/apis/gateway.networking.k8s.io/v1', 'httproutes'],
  GRPCRoute: ['/apis/gateway.networking.k8s.io/v1', 'grpcroutes'],
  Application: ['/apis/argoproj.io/v1alpha1', 'applications'],
  AppProject: ['/apis/argoproj.io/v1alpha1', 'appprojects'],
} as const

export type Kind = keyof typeof places

/** The API's form of an object: the fields that are read here. */
export interface Found {
  metadata: {
    name: string
    namespace?: string
    uid?: string
    generation?: number
    labels?: Record<string, string>
    annotations?: Record<string, string>
    deletionTimestamp?: string
    creationTimestamp?: string
  }
  spec?: Record<string, unknown>
  status?: Record<string, unknown>
}

export const pathOf = (kind: Kind, namespace?: string, name?: string): string => {
  const [base, plural] = places[kind]
  const inside = namespace === undefined || kind === 'Namespace' ? '' : `/namespaces/${namespace}`
  return `${base}${inside}/${plural}${name === undefined ? '' : `/${name}`}`
}

export const selectorOf = (wanted: Record<string, string>): string =>
  Object.entries(wanted)
    .map(([name, value]) => `${name}=${value}`)
    .join(',')

const mostObjects = 10_000

const refusals: [RegExp, string, (what: string, reason: string) => string][] = [
  [
    /exceeded quota|must specify (limits|requests)/,
    'quota_exceeded',
    (what, reason) =>
      `A quota of the cluster leaves no room for ${what} (${reason}): raise the quota, or lower the memory, CPU or number of instances.`,
  ],
  [
    /admission webhook "?([\w.-]+)"? denied|denied the request|ValidatingAdmissionPolicy/,
    'admission_denied',
    (what, reason) =>
      `A rule of the cluster rejects ${what} (${reason}): change the service, or ask the cluster’s administrator.`,
  ],
  [
    /violates PodSecurity/,
    'security_denied',
    (what, reason) => `The security level of the environment rejects ${what} (${reason}).`,
  ],
]

/** The cluster's message, without our own beginning of the sentence. */
const reasonIn = (message: string): string => message.replace(/^[^:]*: /, '').replace(/\.$/, '')

/** The sentence for a refusal by rules of the cluster; null for another one. */
export const explainRefusal = (message: string, what: string): { code: string; message: string } | null => {
  for (const [pattern, code, sentence] of refusals)
    if (pattern.test(message)) return { code, message: sentence(what, reasonIn(message)) }
  return null
}

/** Whether the cluster does not know a kind of objects at all. */
export const isUnknownKind = (error: unknown): boolean =>
  error instanceof DeploymentError && error.cause instanceof KubernetesError && error.cause.status === 404

export const asDeploymentError = (error: unknown, what: string): unknown => {
  if (!(error instanceof KubernetesError)) return error
  const known = explainRefusal(error.message, what)
  if (known !== null) return new DeploymentError(known.code, known.message, { cause: error })
  if (isPassing(error)) return new DeploymentError('engine_unavailable', error.message, { next: 'wait', cause: error })
  const code = error.status === 401 || error.status === 403 ? 'cluster_refused' : 'cluster_rejected'
  return new DeploymentError(code, `The cluster did not take ${what}: ${error.message}`, { cause: error })
}

const words: Partial<Record<string, string>> = {
  Namespace: 'the namespace of the environment',
  Secret: 'the variables of the service',
  PersistentVolumeClaim: 'a volume of the service',
  Ingress: 'the host names of the service',
  Application: 'the Argo CD application of the service',
  AppProject: 'the Argo CD project of the service',
  HTTPRoute: 'the host names of the service',
  GRPCRoute: 'the host names of the service',
}

const wordFor = (kind: string): string => words[kind] ?? `the ${kind} of the service`

export interface Objects {
  readonly api: KubernetesApi
  readonly place: Place
  /** Creates or updates it from the manifest. Rejects with a `DeploymentError` with the cluster's reason. */
  apply(manifest: Manifest, signal?: AbortSignal): Promise<Found>
  get(kind: Kind, namespace: string, name: string, signal?: AbortSignal): Promise<Found | null>
  /** Our objects with these labels, in one namespace or all. */
  list<T extends Found>(
    kind: Kind,
    wanted: Record<string, string>,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<T[]>
  remove(kind: Kind, namespace: string, name: string, options?: RemoveOptions): Promise<boolean>
  /** Ensures that the environment has its namespace, and that it is ours. */
  prepare(of: { organizationId: string; environmentId: string }, signal: AbortSignal): Promise<void>
}

/** Not those outside their environment's namespace: a chart or an app there could name any service in its labels. */
const withoutForeign = <T extends Found>(found: readonly T[]): T[] =>
  found.filter(({ metadata }) => metadata.namespace === namespaceOf(metadata.labels?.[labels.environment] ?? ''))

const refuseStranger = ({ metadata }: Found, ownerId: string): void => {
  if (metadata.labels?.[labels.owner] !== ownerId) {
    const message = `The cluster has a namespace ${metadata.name} that does not belong to this server: remove it.`
    throw new DeploymentError('name_taken', message)
  }
  if (metadata.deletionTimestamp === undefined) return
  const message = 'The former namespace of this environment is still being removed.'
  throw new DeploymentError('environment_leaving', message, { next: 'wait' })
}

interface ClaimSpec {
  storageClassName?: string
  resources?: { requests?: { storage?: string } }
  [field: string]: unknown
}

export const createObjects = (api: KubernetesApi, place: Place): Objects => {
  /** An existing claim keeps its class, which never changes, and its size if that is larger: it only grows. */
  const asItCanBe = async (manifest: Manifest, signal?: AbortSignal): Promise<Manifest> => {
    const { namespace = '', name } = manifest.metadata
    const found = await get('PersistentVolumeClaim', namespace, name, signal)
    if (found === null) return manifest
    const { storageClassName: _, resources, ...spec } = manifest.spec as ClaimSpec
    const { storageClassName, resources: own } = (found.spec ?? {}) as ClaimSpec
    const sizeOf = (each: ClaimSpec['resources']): number => parseQuantity(each?.requests?.storage) ?? 0
    return {
      ...manifest,
      spec: {
        ...spec,
        resources: { requests: { storage: (sizeOf(own) > sizeOf(resources) ? own : resources)?.requests?.storage } },
        ...(storageClassName === undefined ? {} : { storageClassName }),
      },
    }
  }
  const apply: Objects['apply'] = async (wanted, signal) => {
    const kind = wanted.kind as Kind
    const path = pathOf(kind, wanted.metadata.namespace, wanted.metadata.name)
    const manifest = kind === 'PersistentVolumeClaim' ? await asItCanBe(wanted, signal) : wanted
    try {
      return await api.apply<Found>(path, manifest, fieldManager, { signal })
    } catch (error) {
      signal?.throwIfAborted()
      throw asDeploymentError(error, wordFor(kind))
    }
  }
  const get: Objects['get'] = (kind, namespace, name, signal) =>
    api.get<Found>(pathOf(kind, namespace, name), { signal }).catch((error: unknown) => {
      if (error instanceof KubernetesError && error.status === 404) return null
      signal?.throwIfAborted()
      throw asDeploymentError(error, wordFor(kind))
    })
  const guarded = async <T>(work: Promise<T>, kind: Kind, signal: AbortSignal | undefined): Promise<T> => {
    try {
      return await work
    } catch (error) {
      signal?.throwIfAborted()
      throw asDeploymentError(error, wordFor(kind))
    }
  }
  return {
    api,
    place,
    apply,
    get,
    list: async <T extends Found>(
      kind: Kind,
      wanted: Record<string, string>,
      namespace?: string,
      signal?: AbortSignal,
    ): Promise<T[]> => {
      const labelSelector = selectorOf({ [labels.owner]: place.ownerId, ...wanted })
      const options: AskOptions = { query: { labelSelector }, signal, deadlineMs: 30_000 }
      const found = await guarded(api.list<T>(pathOf(kind, namespace), mostObjects, options), kind, signal)
      return namespace === undefined && kind !== 'Namespace' ? withoutForeign(found) : found
    },
    remove: (kind, namespace, name, options) =>
      guarded(api.remove(pathOf(kind, namespace, name), options), kind, options?.signal),
    async prepare(of, signal) {
      const [namespace, ...others] = describeEnvironment(of, place)
      const found = await get('Namespace', '', namespaceOf(of.environmentId), signal)
      if (found !== null) refuseStranger(found, place.ownerId)
      await apply(namespace!, signal)
      for (const each of others) await apply(each, signal)
    },
  }
}
