/** Instances that a cluster's own controllers start and end: from what it has of a service to what there is to be. */
import { DeploymentError } from '../../lib/errors.ts'
import { type Driver, minute, type Part, type Parts, reportStopFirst, stopsFirst } from '../rollout.ts'
import type { Converged, Progress, Rollout, Running, Runtime, Workload } from '../runtime.ts'
import { readyWithinMs } from '../runtime.ts'
import type { KubernetesIngress } from './ingress.ts'
import { type Manifest, namespaceOf } from './manifests/describe.ts'
import { createServiceObjects, ofVersions, type ServiceObjectsParts } from './service-objects.ts'

export interface ConvergeParts extends ServiceObjectsParts {
  ingress: KubernetesIngress
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<void>
}

/** For an API server that is down, or being upgraded, at any step. */
const awayMs = 2 * minute
const startDeadlineMs = awayMs + 3 * minute
const stepDeadlineMs = awayMs + minute

/** It may take minutes, or never be assigned: the service serves meanwhile. */
const pendingBalancer = (protocol: string, port: number): string =>
  `The load balancer for ${protocol} port ${port} has no address yet. If it gets none, the cluster has nothing that provides load balancers; the links of the service show the address once there is one.`

export const createDriver = ({
  objects,
  ingress,
  images,
  ready,
  clock,
}: ConvergeParts): Driver<Workload> & Pick<Runtime, 'resize'> => {
  const { instancesOf, sweep, end, describe, applyAll, hasOther, changesKind, othersLeave, othersGone, removeRest } =
    createServiceObjects({ objects, images, clock })

  const publish = async ({ workload, exposure }: Running<Workload>): Promise<readonly string[]> =>
    ingress.publish({ service: workload, revision: workload.revision, exposure: await exposure() })

  const reportRouted = async ({ exposure }: Running, { report }: Rollout): Promise<void> => {
    const { hosts, ports } = await exposure()
    for (const { host, path } of hosts)
      report('switch', `Requests to ${ingress.url(host)}${path ?? ''} now go to the new version.`)
    for (const { externalPort, protocol } of ports) {
      const address = ingress.address(externalPort)
      if (address === null) report('switch', pendingBalancer(protocol, externalPort))
      else report('switch', `${protocol} traffic to ${address} now goes to the new version.`)
    }
  }

  const rollOut: Driver<Workload>['rollOut'] = (desired, rollout) => {
    const { workload } = desired
    const { stopGraceMs } = workload
    let manifests: Manifest[] = []
    const stopFirst: Part = {
      deadlineMs: stepDeadlineMs + stopGraceMs,
      async work(signal) {
        if (!(await hasOther(workload, signal)) && !(await changesKind(workload, signal))) return
        reportStopFirst(workload, rollout)
        await end(workload, stopGraceMs, signal)
      },
    }
    const parts: Parts = {
      ...(stopsFirst(workload) ? { 'stop-first': stopFirst } : {}),
      start: {
        deadlineMs: startDeadlineMs,
        async work(signal) {
          manifests = await describe(workload)
          await objects.prepare(workload, signal)
          if (!stopsFirst(workload) && (await changesKind(workload, signal))) await end(workload, stopGraceMs, signal)
          await applyAll(manifests, signal)
        },
      },
      ready: {
        deadlineMs: readyWithinMs(workload) + stepDeadlineMs,
        work: (signal) => ready(workload, (text, level) => rollout.report('ready', text, level), signal),
      },
      switch: {
        deadlineMs: stepDeadlineMs,
        async work(signal) {
          const [refused] = await publish(desired)
          if (refused !== undefined) throw new DeploymentError('ingress_refused', refused)
          await othersLeave(workload, signal)
          await rollout.serving()
          await reportRouted(desired, rollout)
        },
      },
      // Kubernetes ends the old ones as the new ones become ready.
      drain: { deadlineMs: stepDeadlineMs + stopGraceMs, work: (signal) => othersGone(workload, signal) },
      retire: { deadlineMs: stepDeadlineMs, work: (signal) => sweep(workload, ofVersions, manifests, signal) },
    }
    return { parts, instances: () => instancesOf(workload) }
  }

  /** Kubernetes goes back from another version by itself. */
  const restore = async (desired: Running<Workload>, signal: AbortSignal): Promise<Converged> => {
    const { workload } = desired
    const manifests = await describe(workload)
    await objects.prepare(workload, signal)
    if ((await changesKind(workload, signal)) || (stopsFirst(workload) && (await hasOther(workload, signal))))
      await end(workload, workload.stopGraceMs, signal)
    await applyAll(manifests, signal)
    const refused = await publish(desired)
    await sweep(workload, ofVersions, manifests, signal)
    return { instances: await instancesOf(workload, signal), refused }
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

  const endAll: Driver['end'] = (service, desired) => ({
    switch: {
      deadlineMs: stepDeadlineMs,
      async work(signal) {
        if (desired.state === 'absent') return ingress.close(service, signal)
        const namespace = namespaceOf(service.environmentId)
        const isThere = (await objects.get('Namespace', '', namespace)) !== null
        if (isThere) await ingress.publish({ service, revision: null, exposure: await desired.exposure() })
      },
    },
    retire: {
      deadlineMs: stepDeadlineMs + desired.graceMs,
      async work(signal) {
        await end(service, desired.graceMs, signal)
        if (desired.state === 'absent') await removeRest(service, signal)
      },
    },
  })

  return { rollOut, restore, end: endAll, resize }
}
