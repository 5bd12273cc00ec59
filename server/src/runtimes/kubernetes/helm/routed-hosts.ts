/** Whether an object of a chart in the cluster still routes a host: then no other service may have the host. */
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Ingress } from '../../ingress.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { type Found, type Objects, pathOf, selectorOf } from '../objects.ts'
import { isNamedBy } from './claims.ts'

const kinds = ['Ingress', 'HTTPRoute', 'GRPCRoute'] as const
const most = 500
const deadlineMs = 5000

const orNone = (error: unknown): Found[] => {
  if (error instanceof KubernetesError && error.status === 404) return []
  throw error
}

export const createLeads =
  ({ api }: Pick<Objects, 'api'>): NonNullable<Ingress['leads']> =>
  async ({ environmentId, serviceId }, domain) => {
    const options = { query: { labelSelector: selectorOf({ [labels.chart]: serviceId }) }, deadlineMs }
    for (const kind of kinds) {
      const found = await api.list<Found>(pathOf(kind, namespaceOf(environmentId)), most, options).catch(orNone)
      if (found.some(({ spec }) => isNamedBy(kind, spec ?? {}, domain))) return true
    }
    return false
  }
