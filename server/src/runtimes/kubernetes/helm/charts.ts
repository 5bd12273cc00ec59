/**
 * Services that are charts: what is desired of one is installed, stopped and removed by helm, and its pods are the
 * service's instances.
 *
 * Promises: an installed version is left alone; an interrupted call is repeated. A failed upgrade is rolled back. A
 * stop scales the chart's workloads down and removes nothing; a removal leaves no objects of the kinds that we know.
 * When the process dies: helm's release stays as it was, and the next call settles it first.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { KubernetesAccess } from '../../../lib/kubernetes/kubeconfig.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import { type Driver, minute, unwatched } from '../../rollout.ts'
import type { Instance, Rollout, Running, Runtime, ServiceChart, ServiceKey } from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { type Found, type Kind, type Objects, pathOf, selectorOf } from '../objects.ts'
import type { ChartedObject } from './charted.ts'
import type { Chart, Helm } from './helm.ts'
import { asOurs, isRecord, recordNameOf, releaseOf } from './own-objects.ts'
import type { HelmOptions, HelmPlace } from './release.ts'
import { createStandstill } from './standstill.ts'
import { watchPods } from './watch-pods.ts'

export interface ChartsParts {
  objects: Objects
  access: KubernetesAccess
  helm: Helm
  clock: Clock
  observe: Runtime['observe']
}

const shortSeconds = 120
const mostLeft = 1000

/** Helm leaves objects made by hooks, and claims made for its pods. */
const left: readonly Kind[] = ['Job', 'ConfigMap', 'Secret', 'Service', 'PersistentVolumeClaim']

const createChartWork = ({ objects, access, helm, clock }: Omit<ChartsParts, 'observe'>) => {
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

  const chartOf = (workload: ServiceChart, domains: readonly string[]): Chart => {
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
    { workload, exposure }: Running<ServiceChart>,
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
    const told = watchPods(objects, clock, workload, rollout, AbortSignal.any([signal, over.signal]))
    try {
      const { domains = [] } = await exposure()
      const { objects: made, unrouted } = await helm.upgrade(placeOf(workload), chartOf(workload, domains), options)
      rollout.report('start', madeText(made, workload.serviceId))
      rollout.report('start', uncounted)
      for (const domain of unrouted) rollout.report('switch', unroutedText(domain))
    } catch (error) {
      if (!(error instanceof DeploymentError) || told() === '') throw error
      throw new DeploymentError(error.code, `${error.message.replace(/\.?$/, '.')} ${told()}`, { cause: error })
    } finally {
      over.abort()
    }
  }

  const removeRest = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(service.environmentId)
    const query = { labelSelector: selectorOf({ [labels.chart]: service.serviceId }) }
    for (const kind of left)
      for (const { metadata } of await api.list<Found>(pathOf(kind, namespace), mostLeft, { query, signal }))
        await objects.remove(kind, namespace, metadata.name, { uid: metadata.uid, propagation: 'Background', signal })
  }

  const takeDown = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const revisions = await helm.settle(placeOf(service), { timeoutSeconds: shortSeconds, signal })
    // The first one never finished.
    await (revisions.length === 0 ? removeRest(service, signal) : bringDown(service, signal))
  }

  const remove = async (service: ServiceKey, signal: AbortSignal): Promise<void> => {
    const options = { timeoutSeconds: shortSeconds, signal }
    await helm.settle(placeOf(service), options)
    await helm.uninstall(placeOf(service), options)
    await removeRest(service, signal)
    const own = { [labels.service]: service.serviceId }
    await untilGone(objects, clock, 'Pod', own, namespaceOf(service.environmentId), signal)
  }

  return { placeOf, isInstalled, chartOf, takeDown, install, remove, removeRest }
}

const counted = (objects: readonly ChartedObject[]): string =>
  [...Map.groupBy(objects, ({ kind }) => kind)].map(([kind, all]) => `${all.length} ${kind.slice(0, 100)}`).join(', ')

const madeText = (made: readonly ChartedObject[], serviceId: string): string =>
  `The chart is installed: ${counted(made.filter((each) => !isRecord(each, serviceId)))}.`

/** Before a chart is rendered, its resources are unknown, and so is the effect of its autoscalers. */
const uncounted = "The resources of the chart's pods and volumes are not counted toward the limits of the organization."

const unroutedText = (domain: string): string =>
  `The custom domain ${domain} leads nowhere: no Ingress and no HTTPRoute of the chart names it.`

/** Pods of charts have no revision: a label with it would restart them all at each deployment. */
export const withRevisions = async (
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

export const createCharts = ({
  observe,
  ...parts
}: ChartsParts): Driver<ServiceChart> & { plan: NonNullable<Runtime['planChart']> } => {
  const work = createChartWork(parts)
  const instancesOf = (workload: ServiceChart): Promise<Instance[]> => observe([workload])

  return {
    rollOut: (desired, rollout) => ({
      parts: {
        start: {
          // Helm waits, and waits as long again when it has to roll back a failed upgrade.
          deadlineMs: 3 * 1000 * desired.workload.chart.waitSeconds + 5 * minute,
          work: (signal) => work.install(desired, rollout, signal),
        },
        switch: { deadlineMs: minute, work: () => rollout.serving() },
      },
      instances: () => instancesOf(desired.workload),
    }),
    async restore(desired, signal) {
      await work.install(desired, unwatched(signal), signal)
      return { instances: await instancesOf(desired.workload), refused: [] }
    },
    async end(service, { state }, _rollout, signal) {
      if (await work.isInstalled(service, signal)) {
        const end = state === 'absent' ? work.remove : work.takeDown
        return { retire: { deadlineMs: 10 * minute, work: (own) => end(service, own) } }
      }
      // A removal that was interrupted after helm had forgotten the release.
      if (state === 'absent') await work.removeRest(service, signal)
      return {}
    },
    async plan({ workload, exposure }, signal) {
      const { domains = [] } = await exposure()
      const { differences } = await parts.helm.plan(work.placeOf(workload), work.chartOf(workload, domains), signal)
      return differences.filter(({ name }) => name !== `ConfigMap ${recordNameOf(workload.serviceId)}`)
    },
  }
}
