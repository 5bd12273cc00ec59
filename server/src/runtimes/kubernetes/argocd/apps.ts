/**
 * Services that are apps of the cluster's Argo CD, in a runtime: each is an Application that we own, at the commit of
 * its release, with one instance for the whole app.
 *
 * Promises: an app reaches nothing but the namespace of its environment, is read with no login but its own, replaces
 * no objects that are not ours, and publishes no hosts unless the administrator of the Argo CD allows it. It is waited
 * for until it is Synced and Healthy. A stop scales its workloads down and removes nothing; a removed app is removed
 * with all its objects. When the process dies: the Argo CD continues; the next call finds the requested
 * synchronization and requests it only once.
 */
import type { Clock } from '../../../lib/time/clock.ts'
import type { Desired, Rollout, Running, Runtime, ServiceKey, Workload } from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import { createStandstill } from '../helm/standstill.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { asDeploymentError, type Objects } from '../objects.ts'
import { unwatched } from '../unwatched.ts'
import { createAppFollower } from './follow-app.ts'
import { type AppWorkload, appNameOf, describeApp, kindsOfApps, roles } from './manifests.ts'
import { createAppPlace } from './place.ts'
import { readAppObjects } from './read-objects.ts'
import {
  type Application,
  isAskedFor,
  isInTheWay,
  type Progress,
  resourcesOf,
  toInstance,
  wasSynchronized,
} from './verdict.ts'
import { watchApps } from './watch-apps.ts'

export interface AppsParts {
  objects: Objects
  clock: Clock
  /** For the cluster's Argo CD. */
  argoNamespace: string
}

const minute = 60_000

const endWords = {
  stopped: 'Turning the automatic synchronization off, and scaling what the app has made to nothing.',
  absent: 'Waiting for Argo CD to remove what the app has made: its application controller has to be running.',
}

const keyOf = ({ environmentId, serviceId }: ServiceKey): ServiceKey => ({ environmentId, serviceId })
const isApp = (workload: Workload): workload is AppWorkload => workload.app !== undefined

const createAppWork = ({ objects, clock, argoNamespace }: AppsParts) => {
  const { api, place } = objects
  const { pathOfApp, find, list, refusal, prepare, mayLead } = createAppPlace({ objects, argoNamespace })
  const { untilApp, ready } = createAppFollower({ objects, clock, argoNamespace })

  const { takeDown, bringBack } = createStandstill(objects, async (service, signal) => {
    const app = await find(service, signal)
    const namespace = namespaceOf(service.environmentId)
    const own = app === null ? [] : resourcesOf(app).filter((each) => each.namespace === namespace)
    return own
      .filter(({ kind }) => kindsOfApps.some((each) => each.kind === kind))
      .map(({ kind, name }) => ({ apiVersion: '', kind, metadata: { name } }))
  })

  const change = async ({ serviceId }: ServiceKey, patch: object, signal: AbortSignal): Promise<void> => {
    await api.merge(pathOfApp(serviceId), patch, { signal }).catch((error: unknown) => {
      signal.throwIfAborted()
      throw asDeploymentError(error, 'the Argo CD application of the service')
    })
  }

  /** One that hangs would keep every later one from beginning. */
  const endOther = async (service: ServiceKey, revision: string, signal: AbortSignal): Promise<Application | null> => {
    const app = await find(service, signal)
    if (app === null || !isInTheWay(app, revision)) return app
    if (app.status?.operationState?.phase === 'Running')
      await change(service, { status: { operationState: { phase: 'Terminating' } } }, signal)
    // One that no controller has processed yet is simply replaced.
    else return app
    return untilApp(service, (seen) => (seen !== null && isInTheWay(seen, revision) ? null : { seen }), signal).then(
      ({ seen }) => seen,
    )
  }

  const start = async (workload: AppWorkload, signal: AbortSignal): Promise<void> => {
    await prepare(workload, signal)
    const app = await endOther(keyOf(workload), workload.revision, signal)
    if (app?.metadata.labels?.[labels.role] === roles.stopped) await bringBack(workload, signal)
    const begins = app === null || isAskedFor(app, workload.revision) !== 'before'
    const plan = { argoNamespace, leads: await mayLead(signal), begins }
    for (const manifest of describeApp(workload, place, plan)) await objects.apply(manifest, signal)
  }

  const remove = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const name = appNameOf(service.serviceId)
    const app = await find(service, signal)
    if (app !== null) {
      await objects.remove('Application', argoNamespace, name, {
        ...(app.metadata.uid && { uid: app.metadata.uid }),
        signal,
      })
      await untilGone(objects, clock, 'Application', { [labels.service]: service.serviceId }, argoNamespace, signal)
    }
    // Its project is needed for as long as the app exists.
    for (const kind of ['Secret', 'AppProject'] as const) {
      const found = await objects.get(kind, argoNamespace, name, signal)
      if (found?.metadata.labels?.[labels.owner] === place.ownerId)
        await objects.remove(kind, argoNamespace, name, {
          ...(found.metadata.uid && { uid: found.metadata.uid }),
          signal,
        })
    }
  }

  /** Nothing of it is synchronized any more, and its workloads end. */
  const stop = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const app = await find(service, signal)
    if (app !== null && !wasSynchronized(app)) return remove(service, signal)
    await endOther(service, '', signal)
    const patch = {
      metadata: { labels: { [labels.role]: roles.stopped } },
      spec: { syncPolicy: { automated: null } },
      operation: null,
    }
    await change(service, patch, signal)
    await takeDown(service, signal)
  }

  return { find, list, refusal, start, ready, stop, remove }
}

/** Adds to a runtime the apps of its cluster's Argo CD. */
export const withApps = (runtime: Runtime, parts: AppsParts): Runtime => {
  const work = createAppWork(parts)
  const { objects, clock, argoNamespace } = parts
  const isRunning = ({ metadata }: Application): boolean => metadata.labels?.[labels.role] === roles.running

  const observeApps = async (services?: readonly ServiceKey[]) => {
    if (services?.length === 0) return []
    const [one, ...others] = services ?? []
    const single = one !== undefined && others.length === 0 ? await work.find(one) : null
    const apps = one !== undefined && others.length === 0 ? (single === null ? [] : [single]) : await work.list()
    const ids = services && new Set(services.map(({ serviceId }) => serviceId))
    return apps
      .filter(isRunning)
      .map(toInstance)
      .filter(({ serviceId }) => ids === undefined || ids.has(serviceId))
  }

  const observe: Runtime['observe'] = async (services) =>
    (await Promise.all([runtime.observe(services), observeApps(services)])).flat()

  const converged = async (service: ServiceKey) => ({ instances: await observe([service]), refused: [] })

  const rollOut = async ({ workload }: Running & { workload: AppWorkload }, rollout: Rollout, signal: AbortSignal) => {
    const { report } = rollout
    const tell = ({ message, isWrong }: Progress): void =>
      isWrong === true ? report('ready', message, 'warning') : report('ready', message)
    await rollout.step('start', 3 * minute, (own) => {
      report('start', `Asking Argo CD for commit ${workload.app.content.reveal().commit.slice(0, 12)}.`)
      return work.start(workload, AbortSignal.any([signal, own]))
    })
    await rollout.step('ready', workload.readyTimeoutMs + minute, (own) =>
      work.ready(workload, tell, AbortSignal.any([signal, own])),
    )
    await rollout.step('switch', minute, () => rollout.serving())
    return converged(keyOf(workload))
  }

  const end = async (
    service: ServiceKey,
    desired: Exclude<Desired, Running>,
    rollout: Rollout | null,
    signal: AbortSignal,
  ) => {
    const isThere = (await work.find(service, signal)) !== null
    if (isThere || desired.state === 'absent') {
      const steps = rollout ?? unwatched(signal)
      await steps.step('retire', 10 * minute, async (own) => {
        const either = AbortSignal.any([own, signal])
        if (isThere) steps.report('retire', endWords[desired.state])
        if (desired.state === 'absent') await work.remove(service, either)
        else await work.stop(service, either)
      })
    }
    return runtime.converge(service, desired, rollout, signal)
  }

  return {
    ...runtime,
    abilities: new Set([...runtime.abilities, 'apps']),
    observe,
    appRefusal: work.refusal,
    async readApp(service, signal) {
      const app = await work.find(service, signal)
      return app === null ? null : readAppObjects(objects, app, namespaceOf(service.environmentId), signal)
    },
    async converge(service, desired, rollout, signal) {
      signal.throwIfAborted()
      if (desired.state !== 'running') return end(service, desired, rollout, signal)
      const { workload } = desired
      if (!isApp(workload)) return runtime.converge(service, desired, rollout, signal)
      if (rollout !== null) return rollOut({ ...desired, workload }, rollout, signal)
      await work.start(workload, signal)
      return converged(keyOf(workload))
    },
    watch: (signal) => watchApps(runtime, { objects, clock, argoNamespace }, signal),
    async owned() {
      const [found, apps] = await Promise.all([runtime.owned(), work.list()])
      return { ...found, instances: [...found.instances, ...apps.filter(isRunning).map(toInstance)] }
    },
  }
}
