/** The ingress objects of a service: Ingresses or routes for its hosts, a LoadBalancer for its ports. Pure. */
import { createHash } from 'node:crypto'
import type { Policy } from '../../../router/policy.ts'
import type { ExposedHost, ExposedPort, Publication } from '../../ingress.ts'
import {
  annotations,
  canKeepClients,
  type GatewayPlace,
  hasTls,
  ingressMetadata,
  instanceSelector,
  labels,
  leadsGrpc,
  type Manifest,
  nameOf,
  type Place,
} from './describe.ts'

const apiVersion = 'gateway.networking.k8s.io/v1'

const kinds = { HTTP: 'HTTPRoute', GRPC: 'GRPCRoute' } as const

/** One each, because their paths differ, and so that a refused one does not affect the others. */
const routeNameOf = (serviceId: string, host: string): string =>
  `${nameOf(serviceId)}-${createHash('sha256').update(host).digest('hex').slice(0, 8)}`

const parentOf = ({ name, namespace, sectionName }: GatewayPlace): object => ({
  group: 'gateway.networking.k8s.io',
  kind: 'Gateway',
  name,
  namespace,
  ...(sectionName === undefined ? {} : { sectionName }),
})

/** A cookie of the gateway's own, as long as that of Slipway's router. */
const persistence = { sessionName: 'SLIPWAY_INSTANCE', type: 'Cookie', absoluteTimeout: '24h' }

const routeRuleOf = (serviceId: string, { path = '/', rewrite, protocol, internalPort }: ExposedHost): object => ({
  ...(protocol === 'GRPC' ? {} : { matches: [{ path: { type: 'PathPrefix', value: path } }] }),
  ...(rewrite === undefined || rewrite === path
    ? {}
    : {
        filters: [
          { type: 'URLRewrite', urlRewrite: { path: { type: 'ReplacePrefixMatch', replacePrefixMatch: rewrite } } },
        ],
      }),
  backendRefs: [{ name: nameOf(serviceId), port: internalPort }],
})

/** Why a Gateway cannot serve a host, as a sentence: it must be HTTP or gRPC, and gRPC without paths. */
const routeRefusal = ({ host, path = '/', protocol }: ExposedHost, all: readonly ExposedHost[]): string | null => {
  const first = all.find((each) => each.host === host)
  if (first !== undefined && first.protocol !== protocol)
    return `The path ${path} of ${host} is not published: a Gateway leads a host to HTTP or to gRPC ports, not to both.`
  if (protocol === 'GRPC' && path !== '/')
    return `The path ${path} of ${host} is not published: a Gateway leads gRPC requests by their host alone.`
  return null
}

/** `keepsClients`: a client stays with its first instance. */
const routesOf = (
  { service }: Publication,
  hosts: readonly ExposedHost[],
  place: Place & { ingress: { gateway: GatewayPlace } },
  keepsClients: boolean,
): Manifest[] =>
  [...Map.groupBy(hosts, ({ host }) => host)].map(([host, all]) => ({
    apiVersion,
    kind: kinds[all[0]!.protocol],
    metadata: ingressMetadata(service, place, routeNameOf(service.serviceId, host)),
    spec: {
      parentRefs: [parentOf(place.ingress.gateway)],
      hostnames: [host],
      rules: all.map((each) => ({
        ...routeRuleOf(service.serviceId, each),
        ...(keepsClients ? { sessionPersistence: persistence } : {}),
      })),
    },
  }))

interface Ingresses {
  manifests: Manifest[]
  /** Parts that are impossible, in sentences. */
  refused: string[]
}

/** Missing protections: without support for them the service must not be reachable. */
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

/** Settings that a plain Ingress does not support. An unsupported protection closes the service. */
const policyRefusals = (policy: Policy | undefined, place: Place): { sentences: string[]; isClosed: boolean } => {
  const given = Object.keys(policy ?? {}) as (keyof Policy)[]
  const names = given.filter((name) => name !== 'sticky' || !canKeepClients(place))
  if (names.length === 0) return { sentences: [], isClosed: false }
  const isClosed = protections.some((name) => policy?.[name] !== undefined)
  const all = names.map((name) => settingNames[name] ?? `the setting ${name}`)
  const what = `The ingress of a Kubernetes cluster cannot carry out these settings of the service's network: ${all.join(', ')}`
  const sentence = isClosed ? `${what}. Its host names are not published without what protects them.` : `${what}.`
  return { sentences: [sentence], isClosed }
}

const hostRefusal = (exposed: ExposedHost, all: readonly ExposedHost[], place: Place): string | null => {
  if (place.ingress?.gateway !== undefined) return routeRefusal(exposed, all)
  const { host, path, rewrite, protocol } = exposed
  if (rewrite !== undefined && rewrite !== path)
    return `The path ${path ?? '/'} of ${host} is not published: the ingress of a Kubernetes cluster cannot rewrite paths.`
  if (protocol === 'GRPC' && !leadsGrpc(place))
    return `${host} is not published: the ingress of the cluster leads to gRPC programs only with a gateway or grpc_annotations.`
  return null
}

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

/** One certificate each, so that a host without one does not affect the others. */
const tlsOf = (hosts: readonly string[], place: Place): object => {
  if (!hasTls(place)) return {}
  const secretOf = (host: string): object =>
    place.ingress?.issuer === undefined
      ? {}
      : { secretName: `tls-${createHash('sha256').update(host).digest('hex').slice(0, 16)}` }
  return { tls: hosts.map((host) => ({ hosts: [host], ...secretOf(host) })) }
}

const annotated = (words: Readonly<Record<string, string>>): object =>
  Object.keys(words).length === 0 ? {} : { annotations: words }

const ingressOf = (
  publication: Publication,
  hosts: readonly ExposedHost[],
  place: Place,
  { name, words = {} }: { name: string; words?: Readonly<Record<string, string>> | undefined },
): Manifest => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'Ingress',
  metadata: {
    ...ingressMetadata(publication.service, place, name),
    ...annotated({
      ...place.ingress?.annotations,
      ...words,
      ...(publication.exposure.policy?.sticky === true ? place.ingress?.stickyAnnotations : {}),
      ...(place.ingress?.issuer === undefined ? {} : { 'cert-manager.io/cluster-issuer': place.ingress.issuer }),
    }),
  },
  spec: {
    ...(place.ingress?.className === undefined ? {} : { ingressClassName: place.ingress.className }),
    ...tlsOf([...new Set(hosts.map(({ host }) => host))], place),
    rules: [...Map.groupBy(hosts, ({ host }) => host)].map(([host, all]) =>
      ruleOf(publication.service.serviceId, host, all),
    ),
  },
})

/** gRPC gets an Ingress of its own: a controller is configured by annotations, which apply to a whole Ingress. */
const ingressesOf = (publication: Publication, hosts: readonly ExposedHost[], place: Place): Manifest[] => {
  const name = nameOf(publication.service.serviceId)
  const of = (wanted: ExposedHost['protocol']) => hosts.filter(({ protocol }) => protocol === wanted)
  const [http, grpc] = [of('HTTP'), of('GRPC')]
  return [
    ...(http.length === 0 ? [] : [ingressOf(publication, http, place, { name })]),
    ...(grpc.length === 0
      ? []
      : [ingressOf(publication, grpc, place, { name: `${name}-grpc`, words: place.ingress?.grpcAnnotations })]),
  ]
}

const hasGateway = (place: Place): place is Place & { ingress: { gateway: GatewayPlace } } =>
  place.ingress?.gateway !== undefined

const webIngressesOf = (publication: Publication, hosts: readonly ExposedHost[], place: Place): Manifest[] =>
  hasGateway(place)
    ? routesOf(publication, hosts, place, publication.exposure.policy?.sticky === true && canKeepClients(place))
    : ingressesOf(publication, hosts, place)

const portsNameOf = (serviceId: string): string => `${nameOf(serviceId)}-ports`

const balancerOf = (publication: Publication, ports: readonly ExposedPort[], place: Place): Manifest => {
  const metadata = ingressMetadata(publication.service, place, portsNameOf(publication.service.serviceId))
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: {
      ...metadata,
      labels: { ...metadata.labels, [labels.role]: 'ports' },
      ...annotated({ ...place.ingress?.balancerAnnotations }),
    },
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

/** The mark also says whether the service was stopped when it was published. */
const marked = (manifest: Manifest, isStopped: boolean): Manifest => {
  const { annotations: own = {} } = manifest.metadata
  const said =
    JSON.stringify(manifest.spec) +
    (Object.keys(own).length === 0 ? '' : JSON.stringify(own)) +
    (isStopped ? 'stopped' : '')
  const mark = createHash('sha256').update(said).digest('hex').slice(0, 32)
  return { ...manifest, metadata: { ...manifest.metadata, annotations: { ...own, [annotations.published]: mark } } }
}

/** A stopped service keeps its hosts, without any instance; its ports are closed. */
export const describeIngresses = (publication: Publication, place: Place): Ingresses => {
  const { hosts, ports, policy } = publication.exposure
  const { sentences, isClosed } = policyRefusals(hosts.length === 0 ? undefined : policy, place)
  const refused = hosts.map((host) => hostRefusal(host, hosts, place))
  const open = isClosed ? [] : hosts.filter((_, index) => refused[index] === null)
  const manifests = [
    ...webIngressesOf(publication, open, place),
    ...(ports.length === 0 || publication.revision === null ? [] : [balancerOf(publication, ports, place)]),
  ]
  const isStopped = publication.revision === null
  return {
    manifests: manifests.map((each) => marked(each, isStopped)),
    refused: [...sentences, ...refused.filter((each) => each !== null)],
  }
}
