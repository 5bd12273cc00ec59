/**
 * Claims as the volumes of services: those that we create, and those of charts, which only have their service's
 * labels.
 */
import type { AskOptions } from '../../lib/kubernetes/kubernetes-api.ts'
import { parseQuantity } from '../../lib/kubernetes/quantity.ts'
import type { OwnedVolume } from '../owned.ts'
import { labels, namespaceOf } from './manifests/describe.ts'
import { asDeploymentError, type Found, type Objects, pathOf } from './objects.ts'
import { isTask } from './pods.ts'

const gib = 2 ** 30
const most = 10_000
const deadlineMs = 30_000

/** In GB; null if unknown. */
export const sizeOf = ({ spec }: Found): number | null => {
  const wanted = (spec as { resources?: { requests?: { storage?: unknown } } } | undefined)?.resources?.requests
    ?.storage
  const bytes = parseQuantity(wanted)
  return bytes === null ? null : bytes / gib
}

const factsOf = (claim: Found): Pick<OwnedVolume, 'createdAt' | 'sizeGb'> => {
  const { creationTimestamp } = claim.metadata
  const sizeGb = sizeOf(claim)
  return {
    ...(creationTimestamp === undefined ? {} : { createdAt: creationTimestamp }),
    ...(sizeGb === null ? {} : { sizeGb }),
  }
}

/** For one that we have created. */
export const ownedVolume = (claim: Found): OwnedVolume => {
  const { labels: own = {} } = claim.metadata
  const organizationId = own[labels.organization]
  return {
    id: own[labels.volume] ?? '',
    environmentId: own[labels.environment] ?? '',
    serviceId: own[labels.service] ?? '',
    ...(organizationId === undefined ? {} : { organizationId }),
    ...factsOf(claim),
  }
}

const isLeaving = ({ metadata }: Found): boolean => metadata.deletionTimestamp !== undefined
const chartIn = ({ metadata }: Found): string | undefined => metadata.labels?.[labels.chart]

const list = ({ api }: Pick<Objects, 'api'>, path: string, options: AskOptions): Promise<Found[]> =>
  api.list<Found>(path, most, { deadlineMs, ...options }).catch((error: unknown) => {
    options.signal?.throwIfAborted()
    throw asDeploymentError(error, 'the volumes of services')
  })

/** Those of charts in the namespaces of these environments: in others they are another installation's. */
export const readChartVolumes = async (
  objects: Pick<Objects, 'api'>,
  environments: readonly string[],
): Promise<OwnedVolume[]> => {
  const owners = new Map(environments.map((environmentId) => [namespaceOf(environmentId), environmentId]))
  const claims = await list(objects, pathOf('PersistentVolumeClaim'), { query: { labelSelector: labels.chart } })
  return claims
    .filter((claim) => !isLeaving(claim))
    .flatMap((claim) => {
      const [environmentId, serviceId] = [owners.get(claim.metadata.namespace ?? ''), chartIn(claim)]
      if (environmentId === undefined || serviceId === undefined) return []
      return [{ id: claim.metadata.name, environmentId, serviceId, ...factsOf(claim) }]
    })
}

/** Whether removing a namespace would remove volumes of a service: those must be removed first, with their service. */
export const holdsVolumes = async (
  objects: Pick<Objects, 'api' | 'place'>,
  namespace: string,
  signal: AbortSignal,
): Promise<boolean> => {
  const { ownerId } = objects.place
  const claims = await list(objects, pathOf('PersistentVolumeClaim', namespace), { signal })
  const isOurs = (claim: Found): boolean => claim.metadata.labels?.[labels.owner] === ownerId && !isTask(claim)
  return claims.some((claim) => !isLeaving(claim) && (isOurs(claim) || chartIn(claim) !== undefined))
}
