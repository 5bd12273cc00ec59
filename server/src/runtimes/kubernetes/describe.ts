/** Workload or task → the pods and controllers that Kubernetes is told to have. Pure: the same input, the same manifests. */
import { createHmac } from 'node:crypto'
import { isReservedLabel } from '../../lib/docker/reserved-labels.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Probe, Task, Workload, WorkloadPort } from '../runtime.ts'

export interface Manifest {
  apiVersion: string
  kind: string
  metadata: {
    name: string
    namespace?: string
    labels?: Record<string, string>
    annotations?: Record<string, string>
  }
  [field: string]: unknown
}

/** What is the same for everything that is described for one cluster. */
export interface Place {
  /** Mark of this installation. */
  ownerId: string
  /** Whether the cluster knows a pause before SIGTERM that needs no program (1.30). */
  canPause: boolean
}

/** As of containers of Docker engines, so that whoever reads one reads both. */
export const labels = {
  owner: 'slipway.owner',
  organization: 'slipway.organization',
  environment: 'slipway.environment',
  service: 'slipway.service',
  revision: 'slipway.revision',
  /** `instance` or `task`. */
  role: 'slipway.role',
  task: 'slipway.task',
  attempt: 'slipway.attempt',
  volume: 'slipway.volume',
} as const

export const annotations = {
  /** JSON: the ports that instances listen on. */
  ports: 'slipway.ports',
  /** JSON: how an execution ended, once that is known. */
  end: 'slipway.end',
  /** What a published thing was made from. */
  published: 'slipway.published',
} as const

export const containerName = 'main'

export const namespaceOf = (environmentId: string): string => `slipway-${environmentId}`
export const nameOf = (serviceId: string): string => `s-${serviceId}`
export const taskNameOf = (taskId: string): string => `t-${taskId}`
export const volumeNameOf = (volumeId: string): string => `v-${volumeId}`
/** The login of a registry beside the workload: the n-th. */
export const pullSecretOf = (serviceId: string, index: number): string => `${nameOf(serviceId)}-pull-${index}`

type Ids = Pick<Workload, 'organizationId' | 'environmentId' | 'serviceId'>

export const idLabels = ({ ownerId }: Place, of: Ids): Record<string, string> => ({
  [labels.owner]: ownerId,
  [labels.organization]: of.organizationId,
  [labels.environment]: of.environmentId,
  [labels.service]: of.serviceId,
})

/** By which a service's own pods are found, and by which nothing else is. */
export const instanceSelector = ({ serviceId }: Pick<Ids, 'serviceId'>): Record<string, string> => ({
  [labels.service]: serviceId,
  [labels.role]: 'instance',
})

const isLabelName = (key: string): boolean =>
  /^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?$/.test(key)
const isLabelValue = (value: string): boolean => /^([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?$/.test(value)

/** Keys that Kubernetes acts on: they are not for services' owners. */
const isOfKubernetes = (key: string): boolean => /(^|\.)(kubernetes|k8s)\.io\//i.test(key)

const mostLabelBytes = 64 * 1024

/**
 * The words of a service's owners: all of them are annotations of its pods, and those that Kubernetes takes for labels
 * are labels too.
 */
const ownersWords = (given: Workload['labels'] = {}) => {
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

/** `$(NAME)` in a command is Kubernetes' own substitution, which no other engine does. */
const unexpanded = (words: readonly string[]): string[] => words.map((word) => word.replaceAll('$', '$$$$'))

interface Content extends Pick<Workload, 'env' | 'files' | 'organizationId' | 'environmentId' | 'serviceId'> {
  /** Of an execution, which has its own. */
  taskId?: string
}

/** A Secret holds at most a megabyte. */
const mostSecretBytes = 1_000_000

const contentOf = ({ env, files }: Content): Record<string, string> => ({
  ...Object.fromEntries(Object.entries(env.reveal()).map(([name, value]) => [`env.${name}`, value])),
  ...Object.fromEntries(files.reveal().map(({ content }, index) => [`file.${index}`, content])),
})

/** Its name tells another content, so that a version keeps its own for as long as it runs. */
export const secretNameOf = (of: Content, { ownerId }: Place): string => {
  const text = JSON.stringify([contentOf(of), of.files.reveal().map(({ path }) => path)])
  const name = of.taskId === undefined ? nameOf(of.serviceId) : taskNameOf(of.taskId)
  return `${name}-${createHmac('sha256', ownerId).update(text).digest('hex').slice(0, 12)}`
}

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
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name: secretNameOf(of, place),
      namespace: namespaceOf(of.environmentId),
      labels: { ...idLabels(place, of), ...(of.taskId === undefined ? {} : { [labels.task]: of.taskId }) },
    },
    type: 'Opaque',
    immutable: true,
    data,
  }
}

const transport = (protocol: string): 'TCP' | 'UDP' => (protocol === 'UDP' ? 'UDP' : 'TCP')

/** Each port once: a program that answers HTTP and TCP at one port has one. */
export const transports = (ports: readonly WorkloadPort[]): { port: number; protocol: 'TCP' | 'UDP' }[] => {
  const found = new Map(
    ports.map(({ internalPort, protocol }) => [
      `${internalPort}-${transport(protocol)}`,
      { port: internalPort, protocol: transport(protocol) },
    ]),
  )
  return [...found.values()]
}

const checkOf = ({ check }: Probe): object => {
  if (check.kind === 'exec') return { exec: { command: check.command } }
  if (check.kind === 'tcp') return { tcpSocket: { port: check.port } }
  return { httpGet: { path: check.path, port: check.port, scheme: check.scheme } }
}

const probeOf = (probe: Probe): object => ({
  ...checkOf(probe),
  initialDelaySeconds: probe.initialDelaySeconds,
  periodSeconds: Math.max(1, probe.periodSeconds),
  timeoutSeconds: Math.max(1, probe.timeoutSeconds),
  successThreshold: Math.max(1, probe.successThreshold),
  failureThreshold: Math.max(1, probe.failureThreshold),
})

/** The port that tells whether a service without a readiness probe is ready. */
export const usualPort = ({ ports }: Pick<Workload, 'ports'>): WorkloadPort | undefined =>
  ports.find(({ protocol }) => protocol === 'HTTP') ??
  ports.find(({ protocol }) => protocol === 'TCP' || protocol === 'GRPC')

/** Asked every second until it says yes once. It must not end what takes long: that is the deadline's matter. */
const untilOnce = (check: object, readyTimeoutMs: number): object => ({
  startupProbe: {
    ...check,
    periodSeconds: 1,
    timeoutSeconds: 3,
    failureThreshold: Math.ceil(readyTimeoutMs / 1000) + 60,
  },
})

const readinessOf = (workload: Workload): object => {
  const { readiness, eagerReadiness, readyTimeoutMs } = workload
  if (readiness !== null && eagerReadiness !== true) return { readinessProbe: probeOf(readiness) }
  if (readiness !== null) return untilOnce(checkOf(readiness), readyTimeoutMs)
  const port = usualPort(workload)?.internalPort
  return port === undefined ? {} : untilOnce({ tcpSocket: { port } }, readyTimeoutMs)
}

/** Nobody knows at once that an instance gets no requests any more: it goes on answering for so long. */
const pauseSeconds = 5

const pausesFirst = ({ preStop, ports }: Workload, { canPause }: Place): boolean =>
  canPause && preStop === undefined && ports.length > 0

const lifecycleOf = (workload: Workload, place: Place): object => {
  const { postStart, preStop } = workload
  const stop = preStop !== undefined ? { exec: { command: preStop } } : { sleep: { seconds: pauseSeconds } }
  const lifecycle = {
    ...(postStart === undefined ? {} : { postStart: { exec: { command: postStart } } }),
    ...(preStop !== undefined || pausesFirst(workload, place) ? { preStop: stop } : {}),
  }
  return Object.keys(lifecycle).length === 0 ? {} : { lifecycle }
}

const resourcesOf = ({ cpuMillicores, memoryMb }: Pick<Workload, 'cpuMillicores' | 'memoryMb'>) => {
  const amounts = { cpu: `${Math.max(10, cpuMillicores)}m`, memory: `${memoryMb}Mi` }
  return { requests: amounts, limits: amounts }
}

type Program = Content & Pick<Workload, 'image' | 'entrypoint' | 'arguments' | 'volumes' | 'readOnlyRoot'>

const containerOf = (of: Program & Pick<Workload, 'cpuMillicores' | 'memoryMb'>, place: Place) => {
  const secret = secretNameOf(of, place)
  const [env, files] = [Object.keys(of.env.reveal()), of.files.reveal()]
  return {
    name: containerName,
    image: of.image,
    imagePullPolicy: 'IfNotPresent',
    ...(of.entrypoint === null ? {} : { command: unexpanded(of.entrypoint) }),
    ...(of.arguments === null ? {} : { args: unexpanded(of.arguments) }),
    env: env.map((name) => ({ name, valueFrom: { secretKeyRef: { name: secret, key: `env.${name}` } } })),
    resources: resourcesOf(of),
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'] },
      readOnlyRootFilesystem: of.readOnlyRoot === true,
    },
    volumeMounts: [
      ...of.volumes.map(({ id, mountPath }) => ({ name: volumeNameOf(id), mountPath })),
      ...files.map(({ path }, index) => ({ name: 'files', mountPath: path, subPath: `file.${index}`, readOnly: true })),
    ],
  }
}

/** Whoever a program runs as, it may write to its volumes. */
const volumeGroup = 10_001

const podSpecOf = (of: Program, place: Place, pullSecrets: readonly string[]) => ({
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  imagePullSecrets: pullSecrets.map((name) => ({ name })),
  securityContext: {
    runAsNonRoot: true,
    seccompProfile: { type: 'RuntimeDefault' },
    ...(of.volumes.length === 0 ? {} : { fsGroup: volumeGroup, fsGroupChangePolicy: 'OnRootMismatch' }),
  },
  volumes: [
    ...of.volumes.map(({ id }) => ({ name: volumeNameOf(id), persistentVolumeClaim: { claimName: volumeNameOf(id) } })),
    ...(of.files.reveal().length === 0
      ? []
      : [{ name: 'files', secret: { secretName: secretNameOf(of, place), defaultMode: 0o444 } }]),
  ],
})

const templateOf = (workload: Workload, place: Place, pullSecrets: readonly string[]) => {
  const words = ownersWords(workload.labels)
  const graceSeconds = Math.ceil(workload.stopGraceMs / 1000) + (pausesFirst(workload, place) ? pauseSeconds : 0)
  return {
    metadata: {
      labels: {
        ...words.labels,
        ...idLabels(place, workload),
        ...instanceSelector(workload),
        [labels.revision]: workload.revision,
      },
      annotations: {
        ...words.annotations,
        [annotations.ports]: JSON.stringify(transports(workload.ports).map(({ port }) => port)),
      },
    },
    spec: {
      ...podSpecOf(workload, place, pullSecrets),
      terminationGracePeriodSeconds: graceSeconds,
      topologySpreadConstraints: [
        {
          maxSkew: 1,
          topologyKey: 'kubernetes.io/hostname',
          whenUnsatisfiable: 'ScheduleAnyway',
          labelSelector: { matchLabels: instanceSelector(workload) },
        },
      ],
      containers: [
        {
          ...containerOf(workload, place),
          ports: transports(workload.ports).map(({ port, protocol }) => ({ containerPort: port, protocol })),
          ...readinessOf(workload),
          ...(workload.liveness === null
            ? {}
            : { livenessProbe: { ...probeOf(workload.liveness), successThreshold: 1 } }),
          ...lifecycleOf(workload, place),
        },
      ],
    },
  }
}

/** How many are wanted belongs to the autoscaler, where there is one. */
export const scalesItself = ({ scaling }: Pick<Workload, 'scaling'>): boolean =>
  scaling !== undefined && scaling.max > Math.max(1, scaling.min)

/** What keeps the instances of a version: with volumes, one that never has two of them at one volume. */
export const describeController = (workload: Workload, place: Place, pullSecrets: readonly string[]): Manifest => {
  const common = {
    ...(scalesItself(workload) ? {} : { replicas: workload.instances }),
    revisionHistoryLimit: 2,
    // What asks nothing of its instances at least sees them stay up.
    minReadySeconds: workload.readiness === null && usualPort(workload) === undefined ? 2 : 0,
    selector: { matchLabels: instanceSelector(workload) },
    template: templateOf(workload, place, pullSecrets),
  }
  const metadata = {
    name: nameOf(workload.serviceId),
    namespace: namespaceOf(workload.environmentId),
    labels: { ...idLabels(place, workload), [labels.revision]: workload.revision },
  }
  if (workload.volumes.length > 0)
    return {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata,
      spec: {
        ...common,
        serviceName: metadata.name,
        podManagementPolicy: 'Parallel',
        updateStrategy: { type: 'RollingUpdate' },
      },
    }
  const strategy =
    workload.recreate === true
      ? { type: 'Recreate' }
      : { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: '25%' } }
  return { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec: { ...common, strategy } }
}

/** The kubelet reads one small file of a program that has ended. */
export const longestMessage = 4096

/** Why an execution cannot leave what is asked of it here; null if it can. */
export const outputRefusal = ({ outputs }: Pick<Task, 'outputs'>): string | null => {
  if (outputs.length <= 1 && outputs.every(({ stream }) => stream === undefined)) return null
  return 'A run on a Kubernetes cluster can leave one small file: what leaves more needs a cluster that is a Docker engine.'
}

/** An execution: it is begun once, and nobody begins it again. */
export const describeTask = (
  task: Task,
  place: Place,
  pullSecrets: readonly string[],
  suspended: boolean,
): Manifest => {
  const words = ownersWords(task.labels)
  const own = {
    ...idLabels(place, task),
    [labels.role]: 'task',
    [labels.revision]: task.taskId,
    [labels.task]: task.taskId,
    [labels.attempt]: String(task.attempt ?? 1),
  }
  const [output] = task.outputs
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: taskNameOf(task.taskId), namespace: namespaceOf(task.environmentId), labels: own },
    spec: {
      suspend: suspended,
      backoffLimit: 0,
      completions: 1,
      parallelism: 1,
      template: {
        metadata: { labels: { ...words.labels, ...own }, annotations: words.annotations },
        spec: {
          ...podSpecOf(task, place, pullSecrets),
          restartPolicy: 'Never',
          activeDeadlineSeconds: Math.max(1, Math.ceil(task.timeoutMs / 1000)),
          terminationGracePeriodSeconds: Math.ceil((task.stopGraceMs ?? 10_000) / 1000),
          containers: [
            {
              ...containerOf(task, place),
              ...(output === undefined ? {} : { terminationMessagePath: output.path }),
            },
          ],
        },
      },
    },
  }
}
