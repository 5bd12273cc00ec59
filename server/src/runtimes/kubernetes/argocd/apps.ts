/**
 * Services that are apps of the cluster's Argo CD: each is an Application that we own, at the commit of its release, and
 * one instance that stands for it.
 *
 * Promises: an app reaches nothing but the namespace of its environment, is read with no login but its own, replaces
 * no objects that are not ours, and publishes no hosts unless the administrator of the Argo CD allows it. It is waited
 * for until it is Synced and Healthy. A stop scales its workloads down and removes nothing; a removed app is removed
 * with all its objects. When the process dies: the Argo CD continues; the next call finds the requested
 * synchronization and requests it only once.
 */
import { type Driver, minute } from '../../rollout.ts'
import type { Instance, Runtime, ServiceApp, ServiceKey } from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import { createStandstill } from '../helm/standstill.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { asDeploymentError } from '../objects.ts'
import { createAppFollower, type FollowParts } from './follow-app.ts'
import { appNameOf, describeApp, kindsOfApps, roles } from './manifests.ts'
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

export interface AppsParts extends FollowParts {
  observe: Runtime['observe']
}

export interface Apps extends Driver<ServiceApp> {
  /** Those of these services, or all: each stands for what it has made. */
  observe(services?: readonly ServiceKey[]): Promise<Instance[]>
  refusal: NonNullable<Runtime['appRefusal']>
  read: NonNullable<Runtime['readApp']>
}

const endWords = {
  stopped: 'Turning the automatic synchronization off, and scaling what the app has made to nothing.',
  absent: 'Waiting for Argo CD to remove what the app has made: its application controller has to be running.',
}

const createAppWork = ({ objects, clock, argoNamespace }: Omit<AppsParts, 'observe'>) => {
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

  const start = async (workload: ServiceApp, signal: AbortSignal): Promise<void> => {
    await prepare(workload, signal)
    const app = await endOther(workload, workload.revision, signal)
    if (app?.metadata.labels?.[labels.role] === roles.stopped) await bringBack(workload, signal)
    const begins = app === null || isAskedFor(app, workload.revision) !== 'before'
    const plan = { argoNamespace, leads: await mayLead(signal), begins }
    for (const manifest of describeApp(workload, place, plan)) await objects.apply(manifest, signal)
  }

  const remove = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const name = appNameOf(service.serviceId)
    const app = await find(service, signal)
    if (app !== null) {
      await objects.remove('Application', argoNamespace, name, { uid: app.metadata.uid, signal })
      await untilGone(objects, clock, 'Application', { [labels.service]: service.serviceId }, argoNamespace, signal)
    }
    // Its project is needed for as long as the app exists.
    for (const kind of ['Secret', 'AppProject'] as const) {
      const found = await objects.get(kind, argoNamespace, name, signal)
      if (found?.metadata.labels?.[labels.owner] === place.ownerId)
        await objects.remove(kind, argoNamespace, name, { uid: found.metadata.uid, signal })
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

const isRunning = ({ metadata }: Application): boolean => metadata.labels?.[labels.role] === roles.running

export const createApps = ({ observe, ...parts }: AppsParts): Apps => {
  const work = createAppWork(parts)
  const converged = async (workload: ServiceApp) => ({ instances: await observe([workload]), refused: [] })

  return {
    rollOut: ({ workload }, rollout) => {
      const { report } = rollout
      const tell = ({ message, isWrong }: Progress): void =>
        isWrong === true ? report('ready', message, 'warning') : report('ready', message)
      return {
        parts: {
          start: {
            deadlineMs: 3 * minute,
            async work(signal) {
              report('start', `Asking Argo CD for commit ${workload.app.content.reveal().commit.slice(0, 12)}.`)
              await work.start(workload, signal)
            },
          },
          ready: {
            deadlineMs: workload.readyTimeoutMs + minute,
            work: (signal) => work.ready(workload, tell, signal),
          },
          switch: { deadlineMs: minute, work: () => rollout.serving() },
        },
        instances: async () => (await converged(workload)).instances,
      }
    },
    async restore({ workload }, signal) {
      await work.start(workload, signal)
      return converged(workload)
    },
    async end(service, { state }, { report }, signal) {
      const isThere = (await work.find(service, signal)) !== null
      if (!isThere && state === 'stopped') return {}
      const end = state === 'absent' ? work.remove : work.stop
      return {
        retire: {
          deadlineMs: 10 * minute,
          async work(own) {
            if (isThere) report('retire', endWords[state])
            await end(service, own)
          },
        },
      }
    },
    async observe(services) {
      if (services?.length === 0) return []
      const apps = services?.length === 1 ? [(await work.find(services[0]!)) ?? []].flat() : await work.list()
      const ids = services && new Set(services.map(({ serviceId }) => serviceId))
      return apps
        .filter(isRunning)
        .map(toInstance)
        .filter(({ serviceId }) => ids === undefined || ids.has(serviceId))
    },
    refusal: work.refusal,
    async read(service, signal) {
      const app = await work.find(service, signal)
      return app === null ? null : readAppObjects(parts.objects, app, namespaceOf(service.environmentId), signal)
    },
  }
}
