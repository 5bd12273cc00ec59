/**
 * The Argo CD of a cluster as a place for apps: whether it exists, which of its objects are ours, and the limits of
 * its use.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import { isPassing } from '../../../lib/kubernetes/watch.ts'
import type { AppSettings } from '../../apps.ts'
import type { ServiceApp, ServiceKey } from '../../runtime.ts'
import { labels } from '../manifests/describe.ts'
import { asDeploymentError, type Found, type Kind, type Objects, pathOf, selectorOf } from '../objects.ts'
import { appNameOf, hostsLabel, type KeptLogin, loginRefusal, secretTypeLabel } from './manifests.ts'
import type { Application } from './verdict.ts'

const mostApps = 10_000
const mostLogins = 1000
const askMs = 3000

/** 404: it does not exist; 403: rights of an older manifest. */
const isNotThere = (error: unknown): boolean =>
  error instanceof KubernetesError && (error.status === 404 || error.status === 403)

const decoded = (value: unknown): string => Buffer.from(typeof value === 'string' ? value : '', 'base64').toString()

export const createAppPlace = ({ objects, argoNamespace }: { objects: Objects; argoNamespace: string }) => {
  const { api, place } = objects
  const pathOfApp = (serviceId: string): string => pathOf('Application', argoNamespace, appNameOf(serviceId))

  const find = async ({ serviceId }: ServiceKey, signal?: AbortSignal): Promise<Application | null> => {
    const app = await api.get<Application>(pathOfApp(serviceId), { signal }).catch((error: unknown) => {
      if (isNotThere(error)) return null
      signal?.throwIfAborted()
      throw asDeploymentError(error, 'the Argo CD application of the service')
    })
    return app?.metadata.labels?.[labels.owner] === place.ownerId ? app : null
  }

  const list = async (signal?: AbortSignal): Promise<Application[]> => {
    const labelSelector = selectorOf({ [labels.owner]: place.ownerId })
    const options = { query: { labelSelector }, signal, deadlineMs: 30_000 }
    return api.list<Application>(pathOf('Application', argoNamespace), mostApps, options).catch((error: unknown) => {
      if (isNotThere(error)) return []
      throw asDeploymentError(error, 'the Argo CD applications')
    })
  }

  /** Why no app can be created there, as far as the cluster says; a transient error is not a reason. */
  const refusal = async ({ argoNamespace: wanted }: AppSettings): Promise<string | null> => {
    if (wanted !== argoNamespace)
      return `The Argo CD of this cluster is in the namespace ${argoNamespace}: set the namespace of the app to that.`
    const options = { signal: AbortSignal.timeout(askMs) }
    try {
      await api.list(pathOf('Application', argoNamespace), 1, options)
      await api.list(pathOf('AppProject', argoNamespace), 1, options)
      await api.get(pathOf('Namespace', undefined, argoNamespace), options)
      return null
    } catch (error) {
      if (options.signal.aborted || isPassing(error) || !(error instanceof KubernetesError)) return null
      if (error.status === 404)
        return `Argo CD is not installed on this cluster: install it in the namespace ${argoNamespace}, or have the operator of this server name another one (SLIPWAY_KUBERNETES_ARGOCD_NAMESPACE).`
      return `The login of the cluster may not make Argo CD applications: apply the manifest of its rights again (${error.message.slice(0, 200)}).`
    }
  }

  const readLogins = async (signal: AbortSignal): Promise<KeptLogin[]> => {
    const all: KeptLogin[] = []
    for (const type of ['repository', 'repo-creds'] as const) {
      const query = { labelSelector: `${secretTypeLabel}=${type}` }
      const found = await api
        .list<Found & { data?: Record<string, unknown> }>(pathOf('Secret', argoNamespace), mostLogins, {
          query,
          signal,
        })
        .catch((error: unknown) => {
          signal.throwIfAborted()
          throw asDeploymentError(error, 'the logins of Argo CD')
        })
      if (found.length >= mostLogins)
        throw new DeploymentError('argocd_logins', 'The Argo CD of this cluster has too many logins to look through.')
      for (const { metadata, data } of found) all.push({ labels: metadata.labels ?? {}, type, url: decoded(data?.url) })
    }
    return all
  }

  const refuseStranger = async (kind: Kind, name: string, signal: AbortSignal): Promise<void> => {
    const found = await objects.get(kind, argoNamespace, name, signal)
    if (found === null || found.metadata.labels?.[labels.owner] === place.ownerId) return
    const message = `The namespace of Argo CD has a ${kind} ${name} that does not belong to this server: remove it.`
    throw new DeploymentError('name_taken', message)
  }

  const prepare = async (workload: ServiceApp, signal: AbortSignal): Promise<void> => {
    const refused = await refusal(workload.app)
    if (refused !== null) throw new DeploymentError('argocd_missing', refused)
    const others = loginRefusal(workload.app.repository, await readLogins(signal), place)
    if (others !== null) throw new DeploymentError('argocd_login', others)
    for (const kind of ['AppProject', 'Secret', 'Application'] as const)
      await refuseStranger(kind, appNameOf(workload.serviceId), signal)
    await objects.prepare(workload, signal)
  }

  /** Whether the administrator of the Argo CD lets apps publish any host. */
  const mayLead = async (signal: AbortSignal): Promise<boolean> => {
    const found = await objects.get('Namespace', '', argoNamespace, signal)
    return found?.metadata.labels?.[hostsLabel] === 'any'
  }

  return { pathOfApp, find, list, refusal, prepare, mayLead }
}
