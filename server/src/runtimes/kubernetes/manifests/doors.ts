/** What leads the world to a service: an Ingress for its hosts, a LoadBalancer for its ports. Pure. */
import { createHash } from 'node:crypto'
import type { Policy } from '../../../router/policy.ts'
import type { ExposedHost, ExposedPort, Publication } from '../../ingress.ts'
import {
  annotations,
  hasTls,
  instanceSelector,
  labels,
  type Manifest,
  nameOf,
  namespaceOf,
  type Place,
} from './describe.ts'

export interface Doors {
  /** What is to be there. */
  manifests: Manifest[]
  /** What cannot be had, in sentences. */
  refused: string[]
}

/** What is not there: then everybody gets in, or nobody may. */
const protections = ['allow', 'deny', 'users'] as const

const settingNames: Partial<Record<keyof Policy, string>> = {
  allow: 'the allowed addresses',
  deny: 'the denied addresses',
  users: 'basic authentication',
  cors: 'CORS',
  headers: 'response headers',
  sticky: 'sticky sessions',
  retry: 'retries',
}

/** Settings that a plain Ingress has no word for. What protects closes the door instead of being left out. */
const policyRefusals = (policy: Policy | undefined): { sentences: string[]; isClosed: boolean } => {
  const names = Object.keys(policy ?? {}) as (keyof Policy)[]
  if (names.length === 0) return { sentences: [], isClosed: false }
  const isClosed = protections.some((name) => policy?.[name] !== undefined)
  const all = names.map((name) => settingNames[name] ?? `the setting ${name}`)
  const what = `The ingress of a Kubernetes cluster cannot carry out these settings of the service's network: ${all.join(', ')}`
  const sentence = isClosed ? `${what}. Its host names are not published without what protects them.` : `${what}.`
  return { sentences: [sentence], isClosed }
}

const hostRefusal = ({ host, path, rewrite, protocol }: ExposedHost): string | null => {
  if (rewrite !== undefined && rewrite !== path)
    return `The path ${path ?? '/'} of ${host} is not published: the ingress of a Kubernetes cluster cannot rewrite paths.`
  if (protocol === 'GRPC')
    return `${host} is not published: the ingress of a Kubernetes cluster has no way to gRPC services yet.`
  return null
}

const metadataOf = ({ environmentId, serviceId }: Publication['service'], { ownerId }: Place, name: string) => ({
  name,
  namespace: namespaceOf(environmentId),
  labels: { [labels.owner]: ownerId, [labels.environment]: environmentId, [labels.service]: serviceId },
})

const ruleOf = (serviceId: string, host: string, all: readonly ExposedHost[]) => ({
  host,
  http: {
    paths: all.map(({ path = '/', internalPort }) => ({
      path,
      pathType: 'Prefix',
      backend: { service: { name: nameOf(serviceId), port: { number: internalPort } } },
    })),
  },
})

/** One certificate each, so that a host that cannot get one keeps none from the others. */
const tlsOf = (hosts: readonly string[], place: Place): object => {
  if (!hasTls(place)) return {}
  const secretOf = (host: string): object =>
    place.ingress?.issuer === undefined
      ? {}
      : { secretName: `tls-${createHash('sha256').update(host).digest('hex').slice(0, 16)}` }
  return { tls: hosts.map((host) => ({ hosts: [host], ...secretOf(host) })) }
}

const ingressOf = (publication: Publication, hosts: readonly ExposedHost[], place: Place): Manifest => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'Ingress',
  metadata: {
    ...metadataOf(publication.service, place, nameOf(publication.service.serviceId)),
    ...(place.ingress?.issuer === undefined
      ? {}
      : { annotations: { 'cert-manager.io/cluster-issuer': place.ingress.issuer } }),
  },
  spec: {
    ...(place.ingress?.className === undefined ? {} : { ingressClassName: place.ingress.className }),
    ...tlsOf([...new Set(hosts.map(({ host }) => host))], place),
    rules: [...Map.groupBy(hosts, ({ host }) => host)].map(([host, all]) =>
      ruleOf(publication.service.serviceId, host, all),
    ),
  },
})

export const portsNameOf = (serviceId: string): string => `${nameOf(serviceId)}-ports`

const balancerOf = (publication: Publication, ports: readonly ExposedPort[], place: Place): Manifest => {
  const metadata = metadataOf(publication.service, place, portsNameOf(publication.service.serviceId))
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { ...metadata, labels: { ...metadata.labels, [labels.role]: 'ports' } },
    spec: {
      type: 'LoadBalancer',
      selector: instanceSelector(publication.service),
      ports: ports.map(({ externalPort, internalPort, protocol }) => ({
        name: `${protocol.toLowerCase()}-${externalPort}`,
        port: externalPort,
        targetPort: internalPort,
        protocol,
      })),
    },
  }
}

/** The mark also tells whether the service was stopped when it was published. */
const marked = (manifest: Manifest, isStopped: boolean): Manifest => {
  const { annotations: own = {} } = manifest.metadata
  const said =
    JSON.stringify(manifest.spec) +
    (Object.keys(own).length === 0 ? '' : JSON.stringify(own)) +
    (isStopped ? 'stopped' : '')
  const mark = createHash('sha256').update(said).digest('hex').slice(0, 32)
  return { ...manifest, metadata: { ...manifest.metadata, annotations: { ...own, [annotations.published]: mark } } }
}

/** A stopped service keeps its hosts, behind which nothing answers; its ports are closed. */
export const describeDoors = (publication: Publication, place: Place): Doors => {
  const { hosts, ports, policy } = publication.exposure
  const { sentences, isClosed } = policyRefusals(hosts.length === 0 ? undefined : policy)
  const refused = hosts.map(hostRefusal)
  const open = isClosed ? [] : hosts.filter((_, index) => refused[index] === null)
  const manifests = [
    ...(open.length === 0 ? [] : [ingressOf(publication, open, place)]),
    ...(ports.length === 0 || publication.revision === null ? [] : [balancerOf(publication, ports, place)]),
  ]
  const isStopped = publication.revision === null
  return {
    manifests: manifests.map((each) => marked(each, isStopped)),
    refused: [...sentences, ...refused.filter((each) => each !== null)],
  }
}
