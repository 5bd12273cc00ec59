/** The objects of an environment and a service besides their pods: names, claims, limits and ingress objects. Pure. */
import type { Task, Workload } from '../../runtime.ts'
import {
  claimSpec,
  describePullSecrets,
  describeSecret,
  idLabels,
  instanceSelector,
  labels,
  type Manifest,
  nameOf,
  namespaceOf,
  type Place,
  type PullLogin,
  pullSecretNames,
  recordOf,
  transports,
  volumeNameOf,
} from './describe.ts'
import { describeParts, withoutLarge } from './large-files.ts'
import { templateOf, usualPort } from './pod.ts'

/** How many are wanted belongs to the autoscaler, where there is one. */
const scalesItself = ({ scaling }: Pick<Workload, 'scaling'>): boolean =>
  scaling !== undefined && scaling.max > Math.max(1, scaling.min)

/** With none beyond those that are wanted, and none less, nothing could ever be replaced. */
const surgeOf = ({ surgePercent = 25 }: Workload): string => `${Math.max(1, surgePercent)}%`

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
    ...recordOf(workload),
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
      : { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: surgeOf(workload) } }
  return { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec: { ...common, strategy } }
}

/** A namespace in which no pod gets more than it needs, and which is reachable from outside only on public ports. */
export const describeEnvironment = (
  { organizationId, environmentId }: Pick<Workload, 'organizationId' | 'environmentId'>,
  { ownerId }: Place,
): Manifest[] => {
  const own = {
    [labels.owner]: ownerId,
    [labels.organization]: organizationId,
    [labels.environment]: environmentId,
  }
  const namespace = namespaceOf(environmentId)
  return [
    {
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: {
        name: namespace,
        labels: {
          ...own,
          'pod-security.kubernetes.io/enforce': 'restricted',
          'pod-security.kubernetes.io/warn': 'restricted',
          'pod-security.kubernetes.io/audit': 'restricted',
        },
      },
    },
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'environment', namespace, labels: own },
      spec: {
        podSelector: {},
        policyTypes: ['Ingress', 'Egress'],
        ingress: [{ from: [{ podSelector: {} }] }],
        // Everything except the address where a machine gets its own secrets.
        egress: [
          {
            to: [
              { namespaceSelector: {} },
              { ipBlock: { cidr: '0.0.0.0/0', except: ['169.254.169.254/32', '169.254.170.2/32'] } },
              { ipBlock: { cidr: '::/0', except: ['fd00:ec2::254/128'] } },
            ],
          },
        ],
      },
    },
  ]
}

const metadataOf = (workload: Workload, place: Place, name = nameOf(workload.serviceId)) => ({
  name,
  namespace: namespaceOf(workload.environmentId),
  labels: idLabels(place, workload),
})

/** The ports that are reachable from outside: the addresses of ingress controllers are unknown. */
const describePublicPorts = (workload: Workload, place: Place): Manifest | null => {
  const ports = transports(workload.ports.filter(({ publiclyAccessible }) => publiclyAccessible))
  if (ports.length === 0) return null
  return {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: metadataOf(workload, place),
    spec: {
      podSelector: { matchLabels: instanceSelector(workload) },
      policyTypes: ['Ingress'],
      ingress: [{ ports }],
    },
  }
}

const isServiceName = (alias: string): boolean => /^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/.test(alias)

/** The names by which other services of the environment reach it; without ports it has none. */
const describeNames = (workload: Workload, place: Place): Manifest[] => {
  const ports = transports(workload.ports).map(({ port, protocol }) => ({
    name: `${protocol.toLowerCase()}-${port}`,
    port,
    targetPort: port,
    protocol,
  }))
  if (ports.length === 0) return []
  return [nameOf(workload.serviceId), ...workload.aliases.filter(isServiceName)].map((name) => ({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: metadataOf(workload, place, name),
    spec: { type: 'ClusterIP', selector: instanceSelector(workload), ports },
  }))
}

const describeVolumes = (
  of: Pick<Workload, 'volumes' | 'record'> & Parameters<typeof idLabels>[1],
  place: Place,
): Manifest[] =>
  of.volumes.map(({ id, sizeGb }) => ({
    apiVersion: 'v1',
    kind: 'PersistentVolumeClaim',
    metadata: {
      name: volumeNameOf(id),
      namespace: namespaceOf(of.environmentId),
      labels: { ...idLabels(place, of), [labels.volume]: id },
      ...recordOf(of),
    },
    spec: claimSpec(`${sizeGb}Gi`, place),
  }))

const describeScaling = (workload: Workload, place: Place): Manifest[] => {
  const { scaling } = workload
  if (scaling === undefined || !scalesItself(workload)) return []
  const kind = workload.volumes.length > 0 ? 'StatefulSet' : 'Deployment'
  const useOf = (name: string, averageUtilization: number): object => ({
    ...{ type: 'Resource', resource: { name, target: { type: 'Utilization', averageUtilization } } },
  })
  return [
    {
      apiVersion: 'autoscaling/v2',
      kind: 'HorizontalPodAutoscaler',
      metadata: metadataOf(workload, place),
      spec: {
        scaleTargetRef: { apiVersion: 'apps/v1', kind, name: nameOf(workload.serviceId) },
        minReplicas: Math.max(1, scaling.min),
        maxReplicas: scaling.max,
        metrics: [
          useOf('cpu', scaling.cpuPercent),
          ...(scaling.memoryPercent === undefined ? [] : [useOf('memory', scaling.memoryPercent)]),
        ],
      },
    },
  ]
}

/** For a single instance there is no budget: it would keep machines from being drained. */
const describeDisruption = (workload: Workload, place: Place): Manifest[] => {
  const most = Math.max(workload.instances, workload.scaling?.min ?? 0)
  if (most < 2) return []
  return [
    {
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: metadataOf(workload, place),
      spec: { maxUnavailable: 1, selector: { matchLabels: instanceSelector(workload) } },
    },
  ]
}

/** The objects that a task needs besides its job. */
export const describeTaskParts = (task: Task, place: Place, logins: readonly PullLogin[]): Manifest[] => [
  ...describeVolumes(task, place),
  ...describePullSecrets(task, place, logins),
  ...describeParts(task, place),
  ...[describeSecret(withoutLarge(task), place)].filter((each) => each !== null),
]

/** All objects of a version, in order of creation: referenced objects come first. */
export const describeService = (workload: Workload, place: Place, logins: readonly PullLogin[]): Manifest[] => {
  const pullSecrets = pullSecretNames(workload, place, logins)
  return [
    ...describeVolumes(workload, place),
    ...describePullSecrets(workload, place, logins),
    ...[describeSecret(workload, place), describePublicPorts(workload, place)].filter((each) => each !== null),
    ...describeNames(workload, place),
    ...describeDisruption(workload, place),
    describeController(workload, place, pullSecrets),
    ...describeScaling(workload, place),
  ]
}
