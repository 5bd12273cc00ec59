/** The pod that runs a program. Pure. */
import type { Probe, Workload, WorkloadPort } from '../../runtime.ts'
import {
  annotations,
  type Content,
  containerName,
  idLabels,
  instanceSelector,
  labels,
  ownersWords,
  type Place,
  secretNameOf,
  transports,
  volumeNameOf,
} from './describe.ts'

/** `$(NAME)` in a command is Kubernetes' own substitution, which no other engine does. */
const unexpanded = (words: readonly string[]): string[] => words.map((word) => word.replaceAll('$', '$$$$'))

const checkOf = ({ check }: Probe): object => {
  if (check.kind === 'exec') return { exec: { command: check.command } }
  if (check.kind === 'grpc') return { grpc: { port: check.port, service: check.service } }
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

/** The port that determines whether a service without a readiness probe is ready. */
export const usualPort = ({ ports }: Pick<Workload, 'ports'>): WorkloadPort | undefined =>
  ports.find(({ protocol }) => protocol === 'HTTP') ??
  ports.find(({ protocol }) => protocol === 'TCP' || protocol === 'GRPC')

/** Checked every second until it succeeds once. It must not end a slow start: that is up to the deadline. */
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

/** Routers learn with a delay that an instance gets no more requests: it keeps answering for so long. */
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

type Program = Content &
  Pick<Workload, 'image' | 'entrypoint' | 'arguments' | 'volumes' | 'readOnlyRoot' | 'withoutRoot' | 'machineLabels'>

export const containerOf = (of: Program & Pick<Workload, 'cpuMillicores' | 'memoryMb'>, place: Place) => {
  const secret = secretNameOf(of, place)
  const [env, files] = [Object.keys(of.env.reveal()), of.files.reveal()]
  return {
    name: containerName,
    image: of.image,
    imagePullPolicy: 'IfNotPresent',
    ...(of.entrypoint === null ? {} : { command: unexpanded(of.entrypoint) }),
    ...(of.arguments === null ? {} : { args: unexpanded(of.arguments) }),
    env: [
      ...env.map((name) => ({ name, valueFrom: { secretKeyRef: { name: secret, key: `env.${name}` } } })),
      ...Object.entries(of.withoutRoot?.env ?? {})
        .filter(([name]) => !env.includes(name))
        .map(([name, value]) => ({ name, value: unexpanded([value])[0] })),
    ],
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

/** Every user of a program may write to its volumes. */
export const volumeGroup = 10_001

const userOf = (of: Program, { runAs }: Place): object => {
  const user = of.withoutRoot?.user ?? runAs
  return user === null ? {} : { runAsUser: user, runAsGroup: user }
}

export const podSpecOf = (of: Program, place: Place, pullSecrets: readonly string[]) => ({
  automountServiceAccountToken: false,
  enableServiceLinks: false,
  // The program is not process 1, which the system shields from signals that it does not handle: a stop would take the
  // whole grace period. On a Docker engine an init process does the same.
  shareProcessNamespace: true,
  imagePullSecrets: pullSecrets.map((name) => ({ name })),
  ...(of.machineLabels === undefined ? {} : { nodeSelector: of.machineLabels }),
  securityContext: {
    runAsNonRoot: true,
    ...userOf(of, place),
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

/** How instances are spread over machines. Strict rules apply within a version: two run in parallel for a while. */
const spreadOf = (workload: Workload): object => {
  const { apart, zones, revision } = workload
  const selector = { matchLabels: { ...instanceSelector(workload), [labels.revision]: revision } }
  const over = (where: string, whenUnsatisfiable: string, labelSelector: object): object => ({
    ...{ maxSkew: 1, topologyKey: where, whenUnsatisfiable, labelSelector },
  })
  return {
    topologySpreadConstraints: [
      over('kubernetes.io/hostname', 'ScheduleAnyway', { matchLabels: instanceSelector(workload) }),
      ...(zones === undefined ? [] : [over('topology.kubernetes.io/zone', zones, selector)]),
    ],
    ...(apart === true
      ? {
          affinity: {
            podAntiAffinity: {
              requiredDuringSchedulingIgnoredDuringExecution: [
                { topologyKey: 'kubernetes.io/hostname', labelSelector: selector },
              ],
            },
          },
        }
      : {}),
  }
}

export const templateOf = (workload: Workload, place: Place, pullSecrets: readonly string[]) => {
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
      ...spreadOf(workload),
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
