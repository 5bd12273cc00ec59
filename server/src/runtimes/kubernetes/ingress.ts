/**
 * How services of a cluster are reached from outside: Ingresses of its own controller or routes of its Gateway, and
 * load balancers.
 */
import type { Clock } from '../../lib/time/clock.ts'
import type { Ingress, Publication, Published } from '../ingress.ts'
import type { ServiceKey } from '../runtime.ts'
import { untilGone } from './follow.ts'
import { annotations, hasTls, labels, type Manifest, namespaceOf } from './manifests/describe.ts'
import { describeIngresses } from './manifests/ingresses.ts'
import { type Found, isUnknownKind, type Kind, type Objects } from './objects.ts'

const ingressKinds = { Ingress: {}, HTTPRoute: {}, GRPCRoute: {}, Service: { [labels.role]: 'ports' } } as const
type IngressKind = keyof typeof ingressKinds
const kinds = Object.keys(ingressKinds) as IngressKind[]

interface IngressObject extends Found {
  kind: IngressKind
}

const keyOf = ({ kind, metadata }: { kind: string; metadata: { namespace?: string; name: string } }): string =>
  `${kind} ${metadata.namespace} ${metadata.name}`

const markOf = ({ metadata }: Found | Manifest): string | undefined => metadata.annotations?.[annotations.published]

interface BalancerStatus {
  loadBalancer?: { ingress?: { ip?: string; hostname?: string }[] }
}

const gone = 30_000

const isRoute = (kind: string): boolean => kind === 'HTTPRoute' || kind === 'GRPCRoute'

const noGateways =
  'The host names of the service are not published: the cluster does not have the Gateway API (gateway.networking.k8s.io/v1). Install it with its Gateway, or take the gateway out of the ingress of the cluster.'

export interface KubernetesIngress extends Ingress {
  /** Removes the ingress objects of a service, and waits until they are gone. */
  close(service: ServiceKey, signal: AbortSignal): Promise<void>
}

export const createIngress = (objects: Objects, clock: Clock): KubernetesIngress => {
  const { place } = objects
  /** Addresses of the ports of load balancers, as last seen. */
  const addresses = new Map<number, string>()

  const learn = ({ spec, status }: Found): void => {
    const [first] = (status as BalancerStatus | undefined)?.loadBalancer?.ingress ?? []
    const host = String(first?.ip ?? first?.hostname ?? '')
    const ports = Array.isArray(spec?.ports) ? (spec.ports as { port?: unknown }[]) : []
    for (const { port } of ports)
      if (/^[\w.:-]{1,253}$/.test(host)) addresses.set(Number(port), host.includes(':') ? `[${host}]` : host)
      else addresses.delete(Number(port))
  }
  /** A cluster without the Gateway API has no routes. */
  const listIngresses = (kind: IngressKind, wanted: Record<string, string>, namespace?: string): Promise<Found[]> =>
    objects.list(kind, { ...ingressKinds[kind], ...wanted }, namespace).catch((error: unknown) => {
      if (isRoute(kind) && isUnknownKind(error)) return []
      throw error
    })
  const find = async (wanted: Record<string, string>, namespace?: string): Promise<IngressObject[]> => {
    const lists = await Promise.all(
      kinds.map(async (kind) => {
        const found = await listIngresses(kind, wanted, namespace)
        return found.filter(({ metadata }) => metadata.deletionTimestamp === undefined).map((one) => ({ ...one, kind }))
      }),
    )
    const all = lists.flat()
    for (const object of all) if (object.kind === 'Service') learn(object)
    return all
  }
  const remove = async (found: readonly IngressObject[], signal?: AbortSignal): Promise<void> => {
    for (const { kind, metadata } of found)
      await objects.remove(kind as Kind, metadata.namespace ?? '', metadata.name, { signal })
  }
  const ofService = ({ environmentId, serviceId }: ServiceKey): Promise<IngressObject[]> =>
    find({ [labels.service]: serviceId }, namespaceOf(environmentId))

  const applyIngress = (manifest: Manifest): Promise<Found | null> =>
    objects.apply(manifest).catch((error: unknown) => {
      if (isRoute(manifest.kind) && isUnknownKind(error)) return null
      throw error
    })

  const publish: Ingress['publish'] = async (publication) => {
    const { manifests, refused } = describeIngresses(publication, place)
    const wanted = new Set(manifests.map(keyOf))
    const there = await ofService(publication.service)
    await remove(there.filter((object) => !wanted.has(keyOf(object))))
    const marks = new Map(there.map((object) => [keyOf(object), markOf(object)]))
    for (const manifest of manifests)
      if (marks.get(keyOf(manifest)) !== markOf(manifest)) {
        const made = await applyIngress(manifest)
        if (made === null) return [noGateways, ...refused]
        if (manifest.kind === 'Service') learn(made)
      }
    return refused
  }

  const isAs = (publication: Publication, found: readonly IngressObject[]): boolean => {
    const { manifests } = describeIngresses(publication, place)
    const marks = new Map(found.map((object) => [keyOf(object), markOf(object)]))
    return marks.size === manifests.length && manifests.every((one) => marks.get(keyOf(one)) === markOf(one))
  }

  return {
    certificates: { issuer: place.ingress?.issuer ?? null },
    sharesPorts: false,
    publish,
    async unpublish(serviceId) {
      await remove(await find({ [labels.service]: serviceId }))
    },
    // The cluster itself routes requests to ready instances.
    keep: () => {},
    async look(services): Promise<Published> {
      const [first, ...others] = services ?? []
      const all = first !== undefined && others.length === 0 ? await ofService(first) : await find({})
      const ids = services && new Set(services.map(({ serviceId }) => serviceId))
      const found = Map.groupBy(all, ({ metadata }) => metadata.labels?.[labels.service] ?? '')
      return {
        services: [...found.keys()].filter((id) => ids === undefined || ids.has(id)),
        isAs: (publication) => isAs(publication, found.get(publication.service.serviceId) ?? []),
      }
    },
    url: (host) => `${hasTls(place) ? 'https' : 'http'}://${host}`,
    address(port) {
      const host = addresses.get(port)
      return host === undefined ? null : `${host}:${port}`
    },
    async close(service, signal) {
      await remove(await ofService(service), signal)
      const late = AbortSignal.any([signal, AbortSignal.timeout(gone)])
      const namespace = namespaceOf(service.environmentId)
      const own = { [labels.service]: service.serviceId }
      // A watch of a kind that the cluster does not know would wait in vain.
      for (const kind of kinds)
        if (!isRoute(kind) || (await listIngresses(kind, own, namespace)).length > 0)
          await untilGone(objects, clock, kind, { ...ingressKinds[kind], ...own }, namespace, late)
    },
  }
}
