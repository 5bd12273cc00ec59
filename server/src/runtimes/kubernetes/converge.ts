/** From what a cluster has of a service to what it is to be, in order. See `Runtime.converge`. */
import { DeploymentError } from '../../lib/errors.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type {
  Converged,
  Desired,
  Instance,
  Progress,
  Rollout,
  Running,
  Runtime,
  ServiceKey,
  Workload,
} from '../runtime.ts'
import { readyWithinMs } from '../runtime.ts'
import { untilGone, untilSeen } from './follow.ts'
import type { KubernetesImages } from './images.ts'
import type { KubernetesIngress } from './ingress.ts'
import { instanceSelector, labels, type Manifest, namespaceOf } from './manifests/describe.ts'
import { describeService } from './manifests/service.ts'
import type { Found, Kind, Objects } from './objects.ts'
import { type Pod, toInstances } from './pods.ts'

export interface ConvergeParts {
  objects: Objects
  ingress: KubernetesIngress
  images: Pick<KubernetesImages, 'loginsFor'>
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<void>
  clock: Clock
}

type Stopped = Extract<Desired, { state: 'stopped' }>

const minute = 60_000
const startDeadlineMs = 5 * minute

export const stopsFirst: Runtime['stopsFirst'] = ({ volumes, recreate }) => volumes.length > 0 || recreate === true

const controllers = ['Deployment', 'StatefulSet'] as const
/** What a version has for itself, and what is to go when another one has it no more. */
const ofVersions: readonly Kind[] = [
  ...['HorizontalPodAutoscaler', 'PodDisruptionBudget', 'NetworkPolicy', 'Service', 'Secret'],
  ...controllers,
] as Kind[]

/** For when nobody watches: each step is done, once. */
const unwatched = (signal: AbortSignal): Rollout => ({
  step: (_name, _deadlineMs, work) => work(signal),
  report: () => {},
  serving: async () => {},
})

const nothing: Converged = { instances: [], refused: [] }

const keyOf = (kind: string, name: string): string => `${kind} ${name}`

const isOfTask = ({ metadata }: Found): boolean => metadata.labels?.[labels.task] !== undefined

/** Of the service alone: not its doors, nor what belongs to an execution. */
const isOfVersion = (found: Found): boolean => found.metadata.labels?.[labels.role] !== 'ports' && !isOfTask(found)

export const createConverge = ({ objects, ingress, images, ready, clock }: ConvergeParts) => {
  const podsOf = (service: ServiceKey, signal?: AbortSignal): Promise<Pod[]> =>
    objects.list<Pod>('Pod', instanceSelector(service), namespaceOf(service.environmentId), signal)

  const instancesOf = async (workload: Workload, signal?: AbortSignal): Promise<Instance[]> =>
    toInstances(await podsOf(workload, signal)).filter(({ revision }) => revision === workload.revision)

  const remove = (kind: Kind, { metadata }: Found, signal: AbortSignal): Promise<boolean> => {
    const propagation = (controllers as readonly Kind[]).includes(kind) ? 'Foreground' : 'Background'
    return objects.remove(kind, metadata.namespace ?? '', metadata.name, { uid: metadata.uid, propagation, signal })
  }

  /** Removes what the service has of these kinds and is not among `wanted`. */
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

  /** Its pods end as asked, and nothing makes new ones. */
  const end = async (service: ServiceKey, graceMs: number, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(service.environmentId)
    await sweep(service, ['HorizontalPodAutoscaler', ...controllers], [], signal)
    // 0 would only forget a pod that goes on running.
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

  /** Whether something of another version runs that has to end before this one starts. */
  const hasOther = async (workload: Workload, signal: AbortSignal): Promise<boolean> =>
    (await podsOf(workload, signal)).some(({ metadata }) => metadata.labels?.[labels.revision] !== workload.revision)

  /** What has volumes, or had them until now, is another kind of thing: neither may run beside the other. */
  const changesKind = async (
    { environmentId, serviceId, volumes }: Workload,
    signal: AbortSignal,
  ): Promise<boolean> => {
    const other = volumes.length > 0 ? 'Deployment' : 'StatefulSet'
    return (await objects.list(other, { [labels.service]: serviceId }, namespaceOf(environmentId), signal)).length > 0
  }

  const publish = async ({ workload, exposure }: Running): Promise<readonly string[]> =>
    ingress.publish({ service: workload, revision: workload.revision, exposure: await exposure() })

  const othersGone = (workload: Workload, signal: AbortSignal): Promise<true> =>
    untilSeen(
      objects,
      clock,
      workload,
      null,
      ({ pods }) => {
        if (pods === null) return null
        const isOther = (pod: Pod): boolean => pod.metadata.labels?.[labels.revision] !== workload.revision
        return [...pods.values()].some(isOther) ? null : true
      },
      signal,
    )

  const tellLed = async ({ exposure }: Running, { report }: Rollout): Promise<void> => {
    const { hosts, ports } = await exposure()
    for (const { host, path } of hosts)
      report('switch', `Requests to ${ingress.url(host)}${path ?? ''} now go to the new version.`)
    for (const { externalPort, protocol } of ports)
      report('switch', `${protocol} traffic to ${ingress.address(externalPort)} now goes to the new version.`)
  }

  const stopOld = async (workload: Workload, rollout: Rollout): Promise<void> => {
    const { stopGraceMs, recreate } = workload
    const why = recreate === true ? 'The update strategy is Recreate' : 'The service has volumes'
    await rollout.step('stop-first', 2 * minute + stopGraceMs, async (signal) => {
      if (!(await hasOther(workload, signal)) && !(await changesKind(workload, signal))) return
      rollout.report('start', `${why}: stopping the running version before the new one starts.`)
      await end(workload, stopGraceMs, signal)
    })
  }

  const rollOut = async (desired: Running, rollout: Rollout): Promise<Converged> => {
    const { workload } = desired
    let manifests: Manifest[] = []
    if (stopsFirst(workload)) await stopOld(workload, rollout)
    await rollout.step('start', startDeadlineMs, async (signal) => {
      manifests = await describe(workload)
      await objects.prepare(workload, signal)
      if (!stopsFirst(workload) && (await changesKind(workload, signal)))
        await end(workload, workload.stopGraceMs, signal)
      await applyAll(manifests, signal)
    })
    await rollout.step('ready', readyWithinMs(workload) + minute, (signal) =>
      ready(workload, (text, level) => rollout.report('ready', text, level), signal),
    )
    await rollout.step('switch', minute, async () => {
      const [refused] = await publish(desired)
      if (refused !== undefined) throw new DeploymentError('ingress_refused', refused)
      await rollout.serving()
      await tellLed(desired, rollout)
    })
    // Kubernetes ends the old ones as the new ones become ready.
    await rollout.step('drain', 2 * minute + workload.stopGraceMs, (signal) =>
      othersGone(workload, signal).then(() => {}),
    )
    await rollout.step('retire', 2 * minute, (signal) => sweep(workload, ofVersions, manifests, signal))
    return { instances: await instancesOf(workload), refused: [] }
  }

  /** The version that serves already: what is missing of it starts, as Kubernetes goes back from another one. */
  const restore = async (desired: Running, signal: AbortSignal): Promise<Converged> => {
    const { workload } = desired
    const manifests = await describe(workload)
    await objects.prepare(workload, signal)
    if (await changesKind(workload, signal)) await end(workload, workload.stopGraceMs, signal)
    else if (stopsFirst(workload) && (await hasOther(workload, signal)))
      await end(workload, workload.stopGraceMs, signal)
    await applyAll(manifests, signal)
    const refused = await publish(desired)
    await sweep(workload, ofVersions, manifests, signal)
    return { instances: await instancesOf(workload, signal), refused }
  }

  const stop = async (service: ServiceKey, { exposure, graceMs }: Stopped, rollout: Rollout): Promise<Converged> => {
    await rollout.step('switch', minute, async () => {
      const namespace = namespaceOf(service.environmentId)
      const isThere = (await objects.get('Namespace', '', namespace)) !== null
      if (isThere) await ingress.publish({ service, revision: null, exposure: await exposure() })
    })
    await rollout.step('retire', 2 * minute + graceMs, (signal) => end(service, graceMs, signal))
    return nothing
  }

  const makeAbsent = async (service: ServiceKey, graceMs: number, rollout: Rollout): Promise<Converged> => {
    await rollout.step('switch', minute, (signal) => ingress.close(service, signal))
    await rollout.step('retire', 2 * minute + graceMs, async (signal) => {
      await end(service, graceMs, signal)
      const own = { [labels.service]: service.serviceId }
      const namespace = namespaceOf(service.environmentId)
      for (const kind of ['Job', 'Secret'] as const)
        for (const found of (await objects.list(kind, own, namespace, signal)).filter(isOfTask))
          await remove(kind, found, signal)
      await sweep(service, [...ofVersions, 'PersistentVolumeClaim'], [], signal)
      for (const kind of ['Pod', 'Job', 'PersistentVolumeClaim'] as const)
        await untilGone(objects, clock, kind, own, namespace, signal)
    })
    return nothing
  }

  const converge: Runtime['converge'] = async (service, desired, rollout, signal) => {
    signal.throwIfAborted()
    if (desired.state === 'running') return rollout === null ? restore(desired, signal) : rollOut(desired, rollout)
    const steps = rollout ?? unwatched(signal)
    if (desired.state === 'absent') return makeAbsent(service, desired.graceMs, steps)
    return stop(service, desired, steps)
  }

  const resize: Runtime['resize'] = async (_service, desired, serving, signal) => {
    signal.throwIfAborted()
    const { workload } = desired
    await serving()
    const manifests = await describe(workload)
    await objects.prepare(workload, signal)
    await applyAll(manifests, signal)
    const refused = await publish(desired)
    if (workload.instances > 0) await ready(workload, () => {}, signal)
    return { instances: await instancesOf(workload, signal), refused }
  }

  return { converge, resize }
}
