/**
 * Names, labels and marks of all our objects on a cluster, and their secrets. Pure, as this whole folder: the same
 * input gives the same manifests.
 */
import { createHmac } from 'node:crypto'
import { isReservedLabel } from '../../../lib/docker/reserved-labels.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import type { Secret } from '../../../lib/secret.ts'
import type { Workload, WorkloadPort } from '../../runtime.ts'

export interface Manifest {
  apiVersion: string
  kind: string
  metadata: {
    name: string
    namespace?: string
    labels?: Record<string, string>
    annotations?: Record<string, string>
    finalizers?: string[]
  }
  [field: string]: unknown
}

/** Shared by all manifests for one cluster. */
export interface Place {
  /** Mark of this installation. */
  ownerId: string
  /** Whether the cluster supports a pause before SIGTERM that needs no program (1.30). */
  canPause: boolean
  /** Number of the user for programs, whatever their images say; null: the image's, which must not be root. */
  runAs: number | null
  ingress?: IngressPlace | undefined
  /** StorageClass of new volumes; null or absent: the cluster's default. */
  storageClass?: string | null
}

/** How hosts are published: absent fields are up to the cluster. */
export interface IngressPlace {
  /** Name of an IngressClass; absent: the cluster's default. */
  className?: string | undefined
  /** Name of a ClusterIssuer of cert-manager, which gets a certificate for each host. */
  issuer?: string | undefined
  /** The ingress has a certificate for all hosts that have none of their own. */
  hasCertificate?: boolean
  /** For each Ingress. */
  annotations?: Words | undefined
  /** For one of gRPC programs, by which its controller recognizes it; absent: they cannot be published. */
  grpcAnnotations?: Words | undefined
  /** For one whose clients stay with their first instance; absent: clients cannot. */
  stickyAnnotations?: Words | undefined
  /** For the Services of load balancers. */
  balancerAnnotations?: Words | undefined
  /** Instead of Ingresses. */
  gateway?: GatewayPlace | undefined
}

type Words = Readonly<Record<string, string>>

/** A Gateway of the cluster, whose listeners accept routes of all namespaces. */
export interface GatewayPlace {
  name: string
  namespace: string
  /** One of its listeners; absent: all that fit. */
  sectionName?: string | undefined
  /** It supports `sessionPersistence`, which is in the experimental channel of its API. */
  keepsClients?: boolean | undefined
}

/** Whether a client can stay with its first instance. */
export const canKeepClients = ({ ingress }: Pick<Place, 'ingress'>): boolean =>
  ingress?.gateway === undefined ? ingress?.stickyAnnotations !== undefined : ingress.gateway.keepsClients === true

/** Whether hosts can be routed to gRPC programs. */
export const leadsGrpc = ({ ingress }: Pick<Place, 'ingress'>): boolean =>
  ingress?.gateway !== undefined || ingress?.grpcAnnotations !== undefined

export const hasTls = ({ ingress }: Place): boolean => ingress?.issuer !== undefined || ingress?.hasCertificate === true

/** The same as on containers of Docker engines, so that both are read in the same way. */
export const labels = {
  owner: 'slipway.owner',
  organization: 'slipway.organization',
  environment: 'slipway.environment',
  service: 'slipway.service',
  revision: 'slipway.revision',
  /** `instance`, `task`, `collector`, `ports`, `chart`: the record of a chart's installed revision, or of apps. */
  role: 'slipway.role',
  task: 'slipway.task',
  attempt: 'slipway.attempt',
  volume: 'slipway.volume',
  /** On every object of a chart: the service's id. */
  chart: 'slipway.chart',
} as const

export const annotations = {
  /** JSON: the ports that instances listen on. */
  ports: 'slipway.ports',
  /** JSON: how an execution ended, once that is known. */
  end: 'slipway.end',
  /** On objects of a chart that a stop has scaled down: their former value. */
  stopped: 'slipway.stopped',
  /** The fingerprint of a published object's source. */
  published: 'slipway.published',
  /** See `Workload.record`. */
  record: 'slipway.record',
} as const

export const claimSpec = (size: string, { storageClass = null }: Pick<Place, 'storageClass'>) => ({
  accessModes: ['ReadWriteOnce'],
  resources: { requests: { storage: size } },
  ...(storageClass === null ? {} : { storageClassName: storageClass }),
})

export const containerName = 'main'

export const namespaceOf = (environmentId: string): string => `slipway-${environmentId}`
export const nameOf = (serviceId: string): string => `s-${serviceId}`
export const taskNameOf = (taskId: string): string => `t-${taskId}`
export const collectorNameOf = (taskId: string): string => `c-${taskId}`
export const volumeNameOf = (volumeId: string): string => `v-${volumeId}`

/** The annotation with the record of a service, for the metadata of its objects and data. */
export const recordOf = ({ record }: Pick<Workload, 'record'>): { annotations?: Record<string, string> } =>
  record === undefined ? {} : { annotations: { [annotations.record]: record } }

type Ids = Pick<Workload, 'organizationId' | 'environmentId' | 'serviceId'>

export const idLabels = ({ ownerId }: Place, of: Ids): Record<string, string> => ({
  [labels.owner]: ownerId,
  [labels.organization]: of.organizationId,
  [labels.environment]: of.environmentId,
  [labels.service]: of.serviceId,
})

/** For the ingress objects of a service, which may be known by its ids alone. */
export const ingressMetadata = (
  { environmentId, serviceId }: Pick<Ids, 'environmentId' | 'serviceId'>,
  { ownerId }: Place,
  name: string,
) => ({
  name,
  namespace: namespaceOf(environmentId),
  labels: { [labels.owner]: ownerId, [labels.environment]: environmentId, [labels.service]: serviceId },
})

/** Selects exactly a service's own pods. */
export const instanceSelector = ({ serviceId }: Pick<Ids, 'serviceId'>): Record<string, string> => ({
  [labels.service]: serviceId,
  [labels.role]: 'instance',
})

const isLabelName = (key: string): boolean =>
  /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/.test(key)
const isLabelValue = (value: string): boolean => /^([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?$/.test(value)

/** Keys that Kubernetes acts on: owners of services may not set them. */
const isOfKubernetes = (key: string): boolean => /(^|\.)(kubernetes|k8s)\.io\//i.test(key)

const mostLabelBytes = 64 * 1024

/** The owners' labels: all become annotations of its pods, and labels too where Kubernetes accepts them. */
export const ownersWords = (given: Workload['labels'] = {}) => {
  const pairs = Object.entries(given).filter(
    ([key]) => isLabelName(key) && !isReservedLabel(key) && !isOfKubernetes(key),
  )
  if (JSON.stringify(pairs).length > mostLabelBytes)
    throw new DeploymentError(
      'labels_too_large',
      'The groups of labels and annotations of the service are larger than 64 KiB together: make them smaller.',
    )
  return {
    annotations: Object.fromEntries(pairs),
    labels: Object.fromEntries(pairs.filter(([, value]) => isLabelValue(value))),
  }
}

export interface Content extends Pick<Workload, 'env' | 'files' | 'organizationId' | 'environmentId' | 'serviceId'> {
  /** For an execution, which has its own. */
  taskId?: string
}

/** A Secret holds at most a megabyte. */
const mostSecretBytes = 1_000_000

const contentOf = ({ env, files }: Content): Record<string, string> => ({
  ...Object.fromEntries(Object.entries(env.reveal()).map(([name, value]) => [`env.${name}`, value])),
  ...Object.fromEntries(files.reveal().map(({ content }, index) => [`file.${index}`, content])),
})

export const ownNameOf = ({ serviceId, taskId }: Pick<Content, 'serviceId' | 'taskId'>): string =>
  taskId === undefined ? nameOf(serviceId) : taskNameOf(taskId)

/** A mark of a secret's content, for its name: the name does not reveal the content. */
export const markOf = (text: string, ownerId: string): string =>
  createHmac('sha256', ownerId).update(text).digest('hex').slice(0, 12)

/** Its name changes with the content, so that a version keeps its own for as long as it runs. */
export const secretNameOf = (of: Content, { ownerId }: Place): string => {
  const text = JSON.stringify([contentOf(of), of.files.reveal().map(({ path }) => path)])
  return `${ownNameOf(of)}-${markOf(text, ownerId)}`
}

/** A login of a registry, for images whose names begin with its repository. */
export interface PullLogin {
  /** `registry.example:5000/team/app`, without a tag. */
  repository: string
  login: Secret<{ username: string; password: string }>
}

type Owner = Ids & Pick<Content, 'taskId'>

export const labelsOf = (of: Owner, place: Place): Record<string, string> => ({
  ...idLabels(place, of),
  ...(of.taskId === undefined ? {} : { [labels.task]: of.taskId }),
})

const secretOf = (of: Owner, place: Place, name: string, type: string, data: Record<string, string>) => ({
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name, namespace: namespaceOf(of.environmentId), labels: labelsOf(of, place) },
  ...{ type, immutable: true, data },
})

/** The logins for a workload or an execution, each named by its content: a version keeps its own while it runs. */
export const describePullSecrets = (of: Owner, place: Place, logins: readonly PullLogin[]): Manifest[] => {
  const manifests = logins.map(({ repository, login }) => {
    const { username, password } = login.reveal()
    const auth = Buffer.from(`${username}:${password}`).toString('base64')
    const config = JSON.stringify({ auths: { [repository]: { username, password, auth } } })
    const name = `${ownNameOf(of)}-pull-${markOf(config, place.ownerId)}`
    const data = { '.dockerconfigjson': Buffer.from(config).toString('base64') }
    return secretOf(of, place, name, 'kubernetes.io/dockerconfigjson', data)
  })
  return [...new Map(manifests.map((each) => [each.metadata.name, each])).values()]
}

export const pullSecretNames = (...all: Parameters<typeof describePullSecrets>): string[] =>
  describePullSecrets(...all).map(({ metadata }) => metadata.name)

/** The variables and files of a version; null where it has none. */
export const describeSecret = (of: Content, place: Place): Manifest | null => {
  const content = contentOf(of)
  if (Object.keys(content).length === 0) return null
  const data = Object.fromEntries(
    Object.entries(content).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
  )
  if (JSON.stringify(data).length > mostSecretBytes)
    throw new DeploymentError(
      'configuration_too_large',
      'The variables and files of the service are larger than a Kubernetes cluster takes (about 700 KB together): make them smaller.',
    )
  return secretOf(of, place, secretNameOf(of, place), 'Opaque', data)
}

const transport = (protocol: string): 'TCP' | 'UDP' => (protocol === 'UDP' ? 'UDP' : 'TCP')

/** Each port once: a program that answers HTTP and TCP on one port has one. */
export const transports = (ports: readonly WorkloadPort[]): { port: number; protocol: 'TCP' | 'UDP' }[] => {
  const found = new Map(
    ports.map(({ internalPort, protocol }) => [
      `${internalPort}-${transport(protocol)}`,
      { port: internalPort, protocol: transport(protocol) },
    ]),
  )
  return [...found.values()]
}
