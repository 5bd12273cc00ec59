/** From the cluster's present objects of a service to the desired state, in order. See `Runtime.converge`. */
import { DeploymentError } from '../../lib/errors.ts'
import type { Converged, Desired, Progress, Rollout, Running, Runtime, ServiceKey, Workload } from '../runtime.ts'
import { readyWithinMs } from '../runtime.ts'
import type { KubernetesIngress } from './ingress.ts'
import { type Manifest, namespaceOf } from './manifests/describe.ts'
import { createServiceObjects, ofVersions, type ServiceObjectsParts } from './service-objects.ts'
import { unwatched } from './unwatched.ts'

export interface ConvergeParts extends ServiceObjectsParts {
  ingress: KubernetesIngress
  ready(workload: Workload, progress: Progress, signal: AbortSignal): Promise<void>
}

type Stopped = Extract<Desired, { state: 'stopped' }>

const minute = 60_000
/** For an API server that is down, or being upgraded, at any step. */
const awayMs = 2 * minute
const startDeadlineMs = awayMs + 3 * minute
const stepDeadlineMs = awayMs + minute

export const stopsFirst: Runtime['stopsFirst'] = ({ volumes, recreate }) => volumes.length > 0 || recreate === true

/** It may take minutes, or never be assigned: the service serves meanwhile. */
const pendingBalancer = (protocol: string, port: number): string =>
  `The load balancer for ${protocol} port ${port} has no address yet. If it gets none, the cluster has nothing that provides load balancers; the links of the service show the address once there is one.`

const nothing: Converged = { instances: [], refused: [] }

export const createConverge = ({ objects, ingress, images, ready, clock }: ConvergeParts) => {
  const { instancesOf, sweep, end, describe, applyAll, hasOther, changesKind, othersLeave, othersGone, removeRest } =
    createServiceObjects({ objects, images, clock })

  const publish = async ({ workload, exposure }: Running): Promise<readonly string[]> =>
    ingress.publish({ service: workload, revision: workload.revision, exposure: await exposure() })

  const tellLed = async ({ exposure }: Running, { report }: Rollout): Promise<void> => {
    const { hosts, ports } = await exposure()
    for (const { host, path } of hosts)
      report('switch', `Requests to ${ingress.url(host)}${path ?? ''} now go to the new version.`)
    for (const { externalPort, protocol } of ports) {
      const address = ingress.address(externalPort)
      if (address === null) report('switch', pendingBalancer(protocol, externalPort))
      else report('switch', `${protocol} traffic to ${address} now goes to the new version.`)
    }
  }

  const stopOld = async (workload: Workload, rollout: Rollout): Promise<void> => {
    const { stopGraceMs, recreate } = workload
    const why = recreate === true ? 'The update strategy is Recreate' : 'The service has volumes'
    await rollout.step('stop-first', stepDeadlineMs + stopGraceMs, async (signal) => {
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
    await rollout.step('ready', readyWithinMs(workload) + stepDeadlineMs, (signal) =>
      ready(workload, (text, level) => rollout.report('ready', text, level), signal),
    )
    await rollout.step('switch', stepDeadlineMs, async (signal) => {
      const [refused] = await publish(desired)
      if (refused !== undefined) throw new DeploymentError('ingress_refused', refused)
      await othersLeave(workload, signal)
      await rollout.serving()
      await tellLed(desired, rollout)
    })
    // Kubernetes ends the old ones as the new ones become ready.
    await rollout.step('drain', stepDeadlineMs + workload.stopGraceMs, (signal) =>
      othersGone(workload, signal).then(() => {}),
    )
    await rollout.step('retire', stepDeadlineMs, (signal) => sweep(workload, ofVersions, manifests, signal))
    return { instances: await instancesOf(workload), refused: [] }
  }

  /** The version that serves already: missing instances are started, as Kubernetes goes back from another version. */
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
    await rollout.step('switch', stepDeadlineMs, async () => {
      const namespace = namespaceOf(service.environmentId)
      const isThere = (await objects.get('Namespace', '', namespace)) !== null
      if (isThere) await ingress.publish({ service, revision: null, exposure: await exposure() })
    })
    await rollout.step('retire', stepDeadlineMs + graceMs, (signal) => end(service, graceMs, signal))
    return nothing
  }

  const makeAbsent = async (service: ServiceKey, graceMs: number, rollout: Rollout): Promise<Converged> => {
    await rollout.step('switch', stepDeadlineMs, (signal) => ingress.close(service, signal))
    await rollout.step('retire', stepDeadlineMs + graceMs, async (signal) => {
      await end(service, graceMs, signal)
      await removeRest(service, signal)
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
