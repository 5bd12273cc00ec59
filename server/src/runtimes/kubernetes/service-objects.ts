/** A cluster's objects of one service: created, found, ended and removed. */
import type { Clock } from '../../lib/time/clock.ts'
import type { Instance, ServiceKey, Workload } from '../runtime.ts'
import { untilGone, untilSeen } from './follow.ts'
import type { KubernetesImages } from './images.ts'
import { instanceSelector, labels, type Manifest, namespaceOf } from './manifests/describe.ts'
import { describeService } from './manifests/service.ts'
import type { Found, Kind, Objects } from './objects.ts'
import { isOver, isTask, type Pod, toInstances } from './pods.ts'

export interface ServiceObjectsParts {
  objects: Objects
  images: Pick<KubernetesImages, 'loginsFor'>
  clock: Clock
}

const controllers = ['Deployment', 'StatefulSet'] as const
/** A version's own objects, and those to be removed when another one no longer has them. */
export const ofVersions: readonly Kind[] = [
  ...['HorizontalPodAutoscaler', 'PodDisruptionBudget', 'NetworkPolicy', 'Service', 'Secret'],
  ...controllers,
] as Kind[]

const keyOf = (kind: string, name: string): string => `${kind} ${name}`

/** Pods that the cluster has ended, and keeps for inspection. */
const isKept = (pod: Pod): boolean => isOver(pod) && pod.metadata.deletionTimestamp === undefined

/** Of another version. */
const isOther = (pod: Pod, { revision }: Workload): boolean =>
  pod.metadata.labels?.[labels.revision] !== revision && !isKept(pod)

/** Objects of the service alone: not its ingress objects, nor those of an execution. */
const isOfVersion = (found: Found): boolean => found.metadata.labels?.[labels.role] !== 'ports' && !isTask(found)

export const createServiceObjects = ({ objects, images, clock }: ServiceObjectsParts) => {
  const podsOf = (service: ServiceKey, signal?: AbortSignal): Promise<Pod[]> =>
    objects.list<Pod>('Pod', instanceSelector(service), namespaceOf(service.environmentId), signal)

  const instancesOf = async (workload: Workload, signal?: AbortSignal): Promise<Instance[]> =>
    toInstances(await podsOf(workload, signal)).filter(({ revision }) => revision === workload.revision)

  const remove = (kind: Kind, { metadata }: Found, signal: AbortSignal): Promise<boolean> => {
    const propagation = (controllers as readonly Kind[]).includes(kind) ? 'Foreground' : 'Background'
    return objects.remove(kind, metadata.namespace ?? '', metadata.name, { uid: metadata.uid, propagation, signal })
  }

  /** Removes the service's objects of these kinds that are not among `wanted`. */
  const sweep = async (
    { environmentId, serviceId }: ServiceKey,
    kinds: readonly Kind[],
    wanted: readonly Manifest[],
    signal: AbortSignal,
  ): Promise<void> => {
    const keep = new Set(wanted.map(({ kind, metadata }) => keyOf(kind, metadata.name)))
    for (const kind of kinds)
      for (const found of await objects.list(kind, { [labels.service]: serviceId }, namespaceOf(environmentId), signal))
        if (!keep.has(keyOf(kind, found.metadata.name)) && isOfVersion(found)) await remove(kind, found, signal)
  }

  /** Its pods end as asked, and none are created anew. */
  const end = async (service: ServiceKey, graceMs: number, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(service.environmentId)
    await sweep(service, ['HorizontalPodAutoscaler', ...controllers], [], signal)
    // 0 would only forget a pod that keeps running.
    const graceSeconds = Math.max(1, Math.ceil(graceMs / 1000))
    for (const { metadata } of await podsOf(service, signal))
      await objects.remove('Pod', namespace, metadata.name, { uid: metadata.uid, graceSeconds, signal })
    for (const kind of controllers)
      await untilGone(objects, clock, kind, { [labels.service]: service.serviceId }, namespace, signal)
    await untilGone(objects, clock, 'Pod', instanceSelector(service), namespace, signal)
  }

  const describe = async (workload: Workload): Promise<Manifest[]> =>
    describeService(workload, objects.place, await images.loginsFor(workload.organizationId, workload.image))

  const applyAll = async (manifests: readonly Manifest[], signal: AbortSignal): Promise<void> => {
    for (const manifest of manifests) await objects.apply(manifest, signal)
  }

  /** Whether pods of another version must end before this one starts. */
  const hasOther = async (workload: Workload, signal: AbortSignal): Promise<boolean> =>
    (await podsOf(workload, signal)).some((pod) => isOther(pod, workload))

  /** Volumes, now or until now, mean another kind of controller: the two may not run in parallel. */
  const changesKind = async (
    { environmentId, serviceId, volumes }: Workload,
    signal: AbortSignal,
  ): Promise<boolean> => {
    const other = volumes.length > 0 ? 'Deployment' : 'StatefulSet'
    return (await objects.list(other, { [labels.service]: serviceId }, namespaceOf(environmentId), signal)).length > 0
  }

  const untilNoOther = (workload: Workload, counts: (pod: Pod) => boolean, signal: AbortSignal): Promise<true> =>
    untilSeen(
      objects,
      clock,
      workload,
      null,
      ({ pods }) => {
        if (pods === null) return null
        return [...pods.values()].some((pod) => isOther(pod, workload) && counts(pod)) ? null : true
      },
      signal,
    )
  const othersGone = (workload: Workload, signal: AbortSignal): Promise<true> =>
    untilNoOther(workload, () => true, signal)
  /** Until those of other versions get no more requests: they are asked to end, or have ended. */
  const othersLeave = (workload: Workload, signal: AbortSignal): Promise<true> =>
    untilNoOther(workload, ({ metadata }) => metadata.deletionTimestamp === undefined, signal)

  /** Everything left once its pods have ended: objects of its executions, and its volumes. */
  const removeRest = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const own = { [labels.service]: service.serviceId }
    const namespace = namespaceOf(service.environmentId)
    for (const kind of ['Job', 'Secret', 'PersistentVolumeClaim'] as const)
      for (const found of (await objects.list(kind, own, namespace, signal)).filter(isTask))
        await remove(kind, found, signal)
    await sweep(service, [...ofVersions, 'PersistentVolumeClaim'], [], signal)
    for (const kind of ['Pod', 'Job', 'PersistentVolumeClaim'] as const)
      await untilGone(objects, clock, kind, own, namespace, signal)
  }

  return { instancesOf, sweep, end, describe, applyAll, hasOther, changesKind, othersLeave, othersGone, removeRest }
}
