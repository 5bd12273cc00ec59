/**
 * Makes a chart's objects ours: labeled, so that its pods are the service's instances and leftovers are found; and
 * adds a record of the revision, which helm installs, rolls back and removes with the rest. Values under our own
 * labels are removed. Pure.
 */
import { isObject, type Json } from '../../../lib/foreign-text/fields.ts'
import { idLabels, labels, namespaceOf, type Place } from '../manifests/describe.ts'
import type { ChartedObject } from './charted.ts'
import { describeWays, withoutEgress } from './ways-in.ts'

interface Ids {
  organizationId: string
  environmentId: string
  serviceId: string
  revision: string
}

/** Short: charts make names of it, and of these labels, which are limited to 63 characters. */
export const releaseOf = (serviceId: string): string => `chart-${serviceId.replaceAll('-', '').slice(0, 12)}`

export const recordNameOf = (serviceId: string): string => `${releaseOf(serviceId)}-revision`

const withLabels = <T>(metadata: T, own: Readonly<Record<string, string>>): T => {
  const { labels: given, annotations, ...rest } = (isObject(metadata) ? metadata : {}) as Json
  const isOurs = (key: string): boolean => key.startsWith('slipway.')
  const without = (words: unknown): Json =>
    Object.fromEntries(Object.entries(isObject(words) ? words : {}).filter(([key]) => !isOurs(key)))
  return {
    ...rest,
    labels: { ...without(given), ...own },
    ...(isObject(annotations) ? { annotations: without(annotations) } : {}),
  } as T
}

const inTemplate = (template: unknown, own: Readonly<Record<string, string>>): unknown =>
  isObject(template) ? { ...template, metadata: withLabels(template.metadata, own) } : template

/** Kinds whose pods keep running. */
const staying = new Set(['Deployment', 'StatefulSet', 'DaemonSet', 'ReplicaSet', 'ReplicationController'])

const withPods = (
  object: ChartedObject,
  own: Readonly<Record<string, string>>,
  ids: Readonly<Record<string, string>>,
) => {
  const { kind, spec } = object
  if (!isObject(spec)) return object
  const claims = Array.isArray(spec.volumeClaimTemplates)
    ? {
        volumeClaimTemplates: (spec.volumeClaimTemplates as unknown[]).map((claim) =>
          isObject(claim) ? { ...claim, metadata: withLabels(claim.metadata, own) } : claim,
        ),
      }
    : {}
  if (staying.has(kind) || kind === 'Job')
    return { ...object, spec: { ...spec, ...claims, template: inTemplate(spec.template, kind === 'Job' ? own : ids) } }
  if (kind !== 'CronJob' || !isObject(spec.jobTemplate)) return object
  const { jobTemplate } = spec
  const job = isObject(jobTemplate.spec)
    ? { spec: { ...jobTemplate.spec, template: inTemplate(jobTemplate.spec.template, own) } }
    : {}
  return {
    ...object,
    spec: { ...spec, jobTemplate: { ...jobTemplate, ...job, metadata: withLabels(jobTemplate.metadata, own) } },
  }
}

export const isRecord = ({ kind, metadata }: Pick<ChartedObject, 'kind' | 'metadata'>, serviceId: string): boolean =>
  kind === 'ConfigMap' && metadata.name === recordNameOf(serviceId)

/** The objects that are installed in place of the chart's. */
export const asOurs = (objects: readonly ChartedObject[], of: Ids, place: Place): ChartedObject[] => {
  const own = { [labels.chart]: of.serviceId }
  const ids = { ...own, ...idLabels(place, of), [labels.role]: 'instance' }
  const all = objects
    .filter((object) => !isRecord(object, of.serviceId))
    .map((object) => {
      const isPod = object.kind === 'Pod' && object.metadata.annotations?.['helm.sh/hook'] === undefined
      return withPods({ ...withoutEgress(object), metadata: withLabels(object.metadata, isPod ? ids : own) }, own, ids)
    })
  const namespace = namespaceOf(of.environmentId)
  const ways = describeWays(all, { serviceId: of.serviceId, namespace, release: releaseOf(of.serviceId) })
  const record: ChartedObject = {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name: recordNameOf(of.serviceId),
      namespace,
      labels: { ...own, ...idLabels(place, of), [labels.role]: 'chart', [labels.revision]: of.revision },
    },
    data: {},
  }
  return [...all, ...ways, record]
}
