/**
 * Services as workloads of a Kubernetes cluster: a namespace for each environment, rolled out by its own controllers.
 *
 * Promises: every object is named and labeled with our ids and this installation's owner mark; nothing else is
 * changed, and no pod gets more than Kubernetes' restricted level. The desired state of a service is applied as a
 * whole, so that an interrupted call can be repeated. Does not know: deployments, kinds and the database; how the
 * cluster starts pods. When the process dies: the cluster continues with its present objects. The next `converge` or
 * `run` finds them by name.
 */
import { once } from 'node:events'
import type { RegistryLogins } from '../../images/images.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { KubernetesAccess } from '../../lib/kubernetes/kubeconfig.ts'
import type { KubernetesApi } from '../../lib/kubernetes/kubernetes-api.ts'
import type { Outbound } from '../../lib/net/outbound.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import type { Owned } from '../owned.ts'
import { createConverge, type Driver, stopsFirst } from '../rollout.ts'
import type { Ability, ArtifactKind, Instance, Runtime, ServiceKey } from '../runtime.ts'
import { createApps } from './argocd/apps.ts'
import { watchApps } from './argocd/watch-apps.ts'
import { createDriver } from './converge.ts'
import { watchEvents } from './events.ts'
import { untilGone } from './follow.ts'
import { createCharts, withRevisions } from './helm/charts.ts'
import { createHelm } from './helm/helm.ts'
import { createLeads } from './helm/routed-hosts.ts'
import type { HelmTool } from './helm/tool.ts'
import { createImages } from './images.ts'
import { createIngress } from './ingress.ts'
import { createPodLogs } from './logs/logs.ts'
import {
  annotations,
  canKeepClients,
  type IngressPlace,
  instanceSelector,
  labels,
  leadsGrpc,
  namespaceOf,
  type Place,
} from './manifests/describe.ts'
import { createMarks } from './marks.ts'
import { createObjects, type Found, type Objects } from './objects.ts'
import { isTask, type Pod, toInstances } from './pods.ts'
import { createReady } from './ready.ts'
import { createTasks } from './tasks/tasks.ts'
import { createUsage, createUsageProblem } from './usage.ts'
import { holdsVolumes, ownedVolume, readChartVolumes, sizeOf } from './volumes.ts'

const refusePipe: Runtime['pipe'] = async () => {
  const message = 'Backups of databases on Kubernetes are not possible yet: nothing can be streamed from and to a pod.'
  throw new DeploymentError('pipes_unavailable', message)
}

export interface KubernetesRuntimeParts extends Pick<Runtime, 'ping' | 'capacity' | 'close'> {
  api: KubernetesApi
  ownerId: string
  /** `v1.31.2` */
  version: string
  /** See `Place`. */
  runAs?: number | undefined
  ingress?: IngressPlace | undefined
  /** See `Place`. */
  storageClass?: string | null
  outbound: Outbound
  registryLogins: RegistryLogins
  /** For the clusters' Argo CD; default `argocd`. */
  argoNamespace?: string | undefined
  /** The tool that installs charts, with its login; without it, none are installed. */
  charts?: { tool: HelmTool; access: KubernetesAccess } | undefined
  clock?: Clock
}

const ownAbilities: ReadonlySet<Ability> = new Set(['volumes', 'tcp-ports', 'udp-ports'])

/** If helm is installed. */
export const kubernetesAbilities: ReadonlySet<Ability> = new Set([...ownAbilities, 'charts', 'apps'])

/** The abilities that follow from how its hosts are published. */
const ingressAbilities = (place: Pick<Place, 'ingress'>): Ability[] => [
  ...(leadsGrpc(place) ? (['grpc'] as const) : []),
  ...(place.ingress?.gateway === undefined ? [] : (['path-rewrites'] as const)),
  ...(canKeepClients(place) ? (['sticky-sessions'] as const) : []),
]

const canPause = (version: string): boolean => {
  const [, major = '0', minor = '0'] = /^v(\d+)\.(\d+)/.exec(version) ?? []
  return Number(major) > 1 || (Number(major) === 1 && Number(minor) >= 30)
}

const observePods = async (objects: Objects, services?: readonly ServiceKey[]) => {
  if (services?.length === 0) return []
  const [one] = services ?? []
  const wanted = services?.length === 1 ? instanceSelector(one!) : { [labels.role]: 'instance' }
  const pods = await objects.list<Pod>(
    'Pod',
    wanted,
    services?.length === 1 ? namespaceOf(one!.environmentId) : undefined,
  )
  const ids = services && new Set(services.map(({ serviceId }) => serviceId))
  return toInstances(pods).filter(({ serviceId }) => ids === undefined || ids.has(serviceId))
}

/** Outputs of an execution still exist after its pod is gone. */
const toLeftover = ({ metadata: { name, labels: own = {} } }: Found): Instance => ({
  ...{ id: name, name, index: 0, state: 'missing', exitCode: null, oomKilled: false, restarts: 0, startedAt: null },
  organizationId: own[labels.organization] ?? '',
  environmentId: own[labels.environment] ?? '',
  serviceId: own[labels.service] ?? '',
  revision: own[labels.task] ?? '',
  ports: [],
  taskId: own[labels.task] ?? '',
})

const readOwned = async (objects: Objects): Promise<Owned> => {
  const [pods, namespaces, claims] = await Promise.all([
    objects.list<Pod>('Pod', {}),
    objects.list('Namespace', {}),
    objects.list('PersistentVolumeClaim', {}),
  ])
  const instances = toInstances(pods)
  const known = new Set(instances.map(({ taskId }) => taskId))
  const ofTasks = claims.filter(isTask).map(toLeftover)
  return {
    instances: [...instances, ...ofTasks.filter(({ taskId }) => !known.has(taskId))],
    environments: namespaces.flatMap(({ metadata }) => metadata.labels?.[labels.environment] ?? []),
    volumes: claims.filter((claim) => !isTask(claim)).map(ownedVolume),
  }
}

/** Called for some services, rarely: each namespace is read once. */
const readRecords = async (objects: Objects, services: readonly ServiceKey[]): Promise<Map<string, string[]>> => {
  const texts = new Map(services.map(({ serviceId }) => [serviceId, new Set<string>()]))
  for (const environmentId of new Set(services.map((service) => service.environmentId)))
    for (const kind of ['Deployment', 'StatefulSet', 'PersistentVolumeClaim'] as const)
      for (const { metadata } of await objects.list(kind, {}, namespaceOf(environmentId))) {
        const record = metadata.annotations?.[annotations.record]
        if (record !== undefined) texts.get(metadata.labels?.[labels.service] ?? '')?.add(record)
      }
  return new Map([...texts].map(([serviceId, found]) => [serviceId, [...found]]))
}

const removeNamespace = async (objects: Objects, clock: Clock, environmentId: string, signal: AbortSignal) => {
  const name = namespaceOf(environmentId)
  const found = await objects.get('Namespace', '', name, signal)
  if (found?.metadata.labels?.[labels.owner] !== objects.place.ownerId) return
  const refuse = (what: string): never => {
    throw new DeploymentError('environment_in_use', `The environment still has ${what} in its namespace.`, {
      next: 'wait',
    })
  }
  const pods = await objects.list<Pod>('Pod', {}, name, signal)
  if (pods.some((pod) => !isTask(pod))) refuse('running instances')
  if (await holdsVolumes(objects, name, signal)) refuse('volumes of services')
  await objects.remove('Namespace', '', name, { uid: found.metadata.uid, signal })
  await untilGone(objects, clock, 'Namespace', { [labels.environment]: environmentId }, undefined, signal)
}

export const createKubernetesRuntime = (parts: KubernetesRuntimeParts): Runtime => {
  const { api, ownerId, version, runAs = null, storageClass = null } = parts
  const { outbound, registryLogins, argoNamespace = 'argocd' } = parts
  const { clock = systemClock } = parts
  const place: Place = { ownerId, canPause: canPause(version), runAs, ingress: parts.ingress ?? {}, storageClass }
  const objects = createObjects(api, place)
  const images = createImages({ outbound, registryLogins })
  const ingress = createIngress(objects, clock)
  const logs = createPodLogs(objects, clock)
  const ready = createReady({ objects, logs, clock })
  const tasks = createTasks({ objects, images, logs, clock })

  const observe: Runtime['observe'] = async (services) => {
    const mayBeApps = services?.filter(({ artifact = 'app' }) => artifact === 'app')
    const found = await Promise.all([observePods(objects, services), apps.observe(mayBeApps)])
    return charts === undefined ? found.flat() : withRevisions(objects, found.flat(), services)
  }
  const { resize, ...containers } = createDriver({ objects, ingress, images, ready, clock })
  const apps = createApps({ objects, clock, argoNamespace, observe })
  const charts =
    parts.charts &&
    createCharts({
      ...{ objects, clock, observe, access: parts.charts.access },
      helm: createHelm(parts.charts.tool, outbound.checkMachine),
    })
  const drivers: Record<ArtifactKind, Driver | undefined> = { chart: charts, app: apps, image: containers }
  const ofCharts = charts && {
    planChart: charts.plan,
    ingress: { ...ingress, leads: createLeads(objects) },
  }
  return {
    converge: createConverge({
      of: (artifact) => drivers[artifact],
      // Pods and what belongs to executions are there of each, and end last.
      ending: (artifact) =>
        [...new Set<ArtifactKind>(artifact === undefined ? ['chart', 'app', 'image'] : [artifact, 'image'])].flatMap(
          (each) => drivers[each] ?? [],
        ),
    }),
    resize,
    abilities: new Set([
      ...ownAbilities,
      ...ingressAbilities(place),
      'apps',
      ...(charts === undefined ? [] : (['charts'] as const)),
    ]),
    scalesItself: true,
    rollsItself: true,
    growsVolumes: true,
    marks: createMarks(objects),
    ingress,
    images,
    stopsFirst,
    ping: parts.ping,
    capacity: parts.capacity,
    close: parts.close,
    async volumeSizes(ids) {
      const wanted = new Set(ids)
      const claims = wanted.size === 0 ? [] : await objects.list('PersistentVolumeClaim', {})
      const found = claims.map((claim) => [claim.metadata.labels?.[labels.volume] ?? '', sizeOf(claim)] as const)
      return new Map(found.filter(([id]) => wanted.has(id)))
    },
    removeEnvironment: (environmentId, signal) => removeNamespace(objects, clock, environmentId, signal),
    observe,
    usage: createUsage(objects),
    usageProblem: createUsageProblem(objects),
    watch: (signal) => watchApps((own) => watchEvents(objects, clock, own), { objects, clock, argoNamespace }, signal),
    // The cluster's own machines check their pods.
    async keepAlive(signal) {
      if (!signal.aborted) await once(signal, 'abort')
    },
    logs: logs.ofService,
    run: tasks.run,
    pipe: refusePipe,
    stopTask: tasks.stop,
    endTask: tasks.end,
    async owned() {
      const [own, ofApps] = await Promise.all([readOwned(objects), apps.observe()])
      const found = { ...own, instances: [...own.instances, ...ofApps] }
      if (charts === undefined) return found
      const [instances, volumes] = await Promise.all([
        withRevisions(objects, found.instances),
        readChartVolumes(objects, found.environments),
      ])
      return { ...found, instances, volumes: [...found.volumes, ...volumes] }
    },
    records: (services) => readRecords(objects, services),
    appRefusal: apps.refusal,
    readApp: apps.read,
    ...ofCharts,
  }
}
