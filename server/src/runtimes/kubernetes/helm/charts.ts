/**
 * Services that are charts, in a runtime: helm installs, stops and removes them, and their pods are the service's
 * instances.
 *
 * Promises: an installed version is left alone; an interrupted call is repeated. A failed upgrade is rolled back. A
 * stop scales the chart's workloads down and removes nothing; a removal leaves no objects of the kinds that we know.
 * When the process dies: helm's release stays as it was, and the next call settles it first.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { KubernetesAccess } from '../../../lib/kubernetes/kubeconfig.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type {
  ChartChange,
  Converged,
  Desired,
  Instance,
  Rollout,
  Running,
  Runtime,
  ServiceKey,
  Workload,
} from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { type Found, type Kind, type Objects, pathOf, selectorOf } from '../objects.ts'
import { unwatched } from '../unwatched.ts'
import { readChartVolumes } from '../volumes.ts'
import type { ChartedObject } from './charted.ts'
import type { Chart, Helm, HelmOptions, HelmPlace } from './helm.ts'
import { asOurs, isRecord, recordNameOf, releaseOf } from './own-objects.ts'
import { createLeads } from './routed-hosts.ts'
import { createStandstill } from './standstill.ts'
import { watchPods } from './watch-pods.ts'

export interface ChartsParts {
  objects: Objects
  access: KubernetesAccess
  helm: Helm
  clock: Clock
}

type ChartedWorkload = Workload & { chart: NonNullable<Workload['chart']> }
type ChartedRunning = Running & { workload: ChartedWorkload }

const minute = 60_000
const shortSeconds = 120
const mostLeft = 1000

/** Helm leaves objects made by hooks, and claims made for its pods. */
const left: readonly Kind[] = ['Job', 'ConfigMap', 'Secret', 'Service', 'PersistentVolumeClaim']

const keyOf = ({ environmentId, serviceId }: ServiceKey): ServiceKey => ({ environmentId, serviceId })

const createChartWork = ({ objects, access, helm, clock }: ChartsParts) => {
  const { api, place } = objects

  const placeOf = ({ environmentId, serviceId }: ServiceKey): HelmPlace => ({
    ...{ access, api, namespace: namespaceOf(environmentId), release: releaseOf(serviceId) },
  })

  /** Helm has a revision of the service, finished or not. */
  const isInstalled = async (service: ServiceKey, signal: AbortSignal): Promise<boolean> => {
    const labelSelector = selectorOf({ owner: 'helm', name: releaseOf(service.serviceId) })
    const found = await api.list<object>(pathOf('Secret', namespaceOf(service.environmentId)), 1, {
      query: { labelSelector },
      signal,
    })
    return found.length > 0
  }

  const installedRevision = async ({ environmentId, serviceId }: ServiceKey, signal?: AbortSignal) => {
    const found = await objects.get('ConfigMap', namespaceOf(environmentId), recordNameOf(serviceId), signal)
    return found?.metadata.labels?.[labels.revision] ?? null
  }

  const { takeDown: bringDown, bringBack } = createStandstill(objects, (service, signal) =>
    helm.installed(placeOf(service), signal),
  )

  const chartOf = (workload: ChartedWorkload, domains: readonly string[]): Chart => {
    const { archive, values } = workload.chart.content.reveal()
    return {
      archive: Buffer.from(archive, 'base64'),
      values,
      allowClusterWide: workload.chart.allowClusterWide,
      domains,
      complete: (rendered) => asOurs(rendered, workload, place),
    }
  }

  const install = async (
    { workload, exposure }: ChartedRunning,
    rollout: Rollout,
    signal: AbortSignal,
  ): Promise<void> => {
    const { waitSeconds: timeoutSeconds } = workload.chart
    const options: HelmOptions = { timeoutSeconds, signal }
    const revisions = await helm.settle(placeOf(workload), options)
    if (revisions.length > 0) await bringBack(workload, signal)
    if (revisions[0]?.status === 'deployed' && (await installedRevision(workload, signal)) === workload.revision) return
    rollout.report('start', `Installing the chart, and waiting up to ${timeoutSeconds} s until it is ready.`)
    await objects.prepare(workload, signal)
    const over = new AbortController()
    const told = watchPods(objects, clock, keyOf(workload), rollout, AbortSignal.any([signal, over.signal]))
    try {
      const { domains = [] } = await exposure()
      const { objects: made, unled } = await helm.upgrade(placeOf(workload), chartOf(workload, domains), options)
      rollout.report('start', tellMade(made, workload.serviceId))
      rollout.report('start', uncounted)
      for (const domain of unled) rollout.report('switch', tellUnled(domain))
    } catch (error) {
      if (!(error instanceof DeploymentError) || told() === '') throw error
      throw new DeploymentError(error.code, `${error.message.replace(/\.?$/, '.')} ${told()}`, { cause: error })
    } finally {
      over.abort()
    }
  }

  const removeLeft = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(service.environmentId)
    const query = { labelSelector: selectorOf({ [labels.chart]: service.serviceId }) }
    for (const kind of left)
      for (const { metadata } of await api.list<Found>(pathOf(kind, namespace), mostLeft, { query, signal }))
        await objects.remove(kind, namespace, metadata.name, { uid: metadata.uid, propagation: 'Background', signal })
  }

  const takeDown = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const revisions = await helm.settle(placeOf(service), { timeoutSeconds: shortSeconds, signal })
    // The first one never finished.
    await (revisions.length === 0 ? removeLeft(service, signal) : bringDown(service, signal))
  }

  const remove = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const options = { timeoutSeconds: shortSeconds, signal }
    await helm.settle(placeOf(service), options)
    await helm.uninstall(placeOf(service), options)
    await removeLeft(service, signal)
    const own = { [labels.service]: service.serviceId }
    await untilGone(objects, clock, 'Pod', own, namespaceOf(service.environmentId), signal)
  }

  return { placeOf, isInstalled, chartOf, takeDown, install, remove, removeLeft }
}

const counted = (objects: readonly ChartedObject[]): string =>
  [...Map.groupBy(objects, ({ kind }) => kind)].map(([kind, all]) => `${all.length} ${kind.slice(0, 100)}`).join(', ')

const tellMade = (made: readonly ChartedObject[], serviceId: string): string =>
  `The chart is installed: ${counted(made.filter((each) => !isRecord(each, serviceId)))}.`

/** Before a chart is rendered, its resources are unknown, and so is the effect of its autoscalers. */
const uncounted = "The resources of the chart's pods and volumes are not counted toward the limits of the organization."

const tellUnled = (domain: string): string =>
  `The custom domain ${domain} leads nowhere: no Ingress and no HTTPRoute of the chart names it.`

const isChart = (workload: Workload): workload is ChartedWorkload => workload.chart !== undefined

/** Pods of charts have no label with their revision, because that would restart them all with each. */
const withRevisions = async (
  objects: Objects,
  found: Instance[],
  services?: readonly ServiceKey[],
): Promise<Instance[]> => {
  if (found.every(({ revision }) => revision !== '')) return found
  const [one, ...others] = services ?? []
  const namespace = one !== undefined && others.length === 0 ? namespaceOf(one.environmentId) : undefined
  const records = await objects.list('ConfigMap', { [labels.role]: 'chart' }, namespace)
  const revisions = new Map(
    records.map(({ metadata }) => [metadata.labels?.[labels.service], metadata.labels?.[labels.revision]]),
  )
  return found.map((each) => (each.revision === '' ? { ...each, revision: revisions.get(each.serviceId) ?? '' } : each))
}

/** Adds to a runtime the installation of charts. */
export const withCharts = (runtime: Runtime, parts: ChartsParts): Runtime => {
  const work = createChartWork(parts)
  const { objects } = parts
  const observe: Runtime['observe'] = async (services) =>
    withRevisions(objects, await runtime.observe(services), services)

  const converged = async (service: ServiceKey): Promise<Converged> => ({
    instances: await observe([service]),
    refused: [],
  })

  const rollOut = async (desired: ChartedRunning, rollout: Rollout, signal: AbortSignal) => {
    const { workload } = desired
    // Helm waits, and waits as long again when it has to roll back a failed upgrade.
    const deadlineMs = 3 * 1000 * workload.chart.waitSeconds + 5 * minute
    await rollout.step('start', deadlineMs, (own) => work.install(desired, rollout, AbortSignal.any([own, signal])))
    await rollout.step('switch', minute, () => rollout.serving())
    return converged(keyOf(workload))
  }

  const end = async (
    service: ServiceKey,
    desired: Exclude<Desired, Running>,
    rollout: Rollout | null,
    signal: AbortSignal,
  ) => {
    const isInstalled = await work.isInstalled(service, signal)
    // A removal that was interrupted after helm had forgotten the release.
    if (!isInstalled && desired.state === 'absent') await work.removeLeft(service, signal)
    if (isInstalled) {
      const steps = rollout ?? unwatched(signal)
      await steps.step('retire', 10 * minute, async (own) => {
        const either = AbortSignal.any([own, signal])
        if (desired.state === 'absent') await work.remove(service, either)
        else await work.takeDown(service, either)
      })
    }
    return runtime.converge(service, desired, rollout, signal)
  }

  return {
    ...runtime,
    abilities: new Set([...runtime.abilities, 'charts']),
    ingress: { ...runtime.ingress, leads: createLeads(objects) },
    observe,
    async converge(service, desired, rollout, signal) {
      signal.throwIfAborted()
      if (desired.state !== 'running') return end(service, desired, rollout, signal)
      const { workload } = desired
      if (!isChart(workload)) return runtime.converge(service, desired, rollout, signal)
      return rollOut({ ...desired, workload }, rollout ?? unwatched(signal), signal)
    },
    async planChart({ workload, exposure }, signal): Promise<ChartChange[]> {
      if (!isChart(workload)) return []
      const { domains = [] } = await exposure()
      const { differences } = await parts.helm.plan(work.placeOf(workload), work.chartOf(workload, domains), signal)
      return differences.filter(({ name }) => name !== `ConfigMap ${recordNameOf(workload.serviceId)}`)
    },
    async owned() {
      const found = await runtime.owned()
      const [instances, volumes] = await Promise.all([
        withRevisions(objects, found.instances),
        readChartVolumes(objects, found.environments),
      ])
      return { ...found, instances, volumes: [...found.volumes, ...volumes] }
    },
  }
}
