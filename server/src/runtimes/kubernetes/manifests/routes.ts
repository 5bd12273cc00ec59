/** What leads hosts to a service through a Gateway that the cluster has: a route for each host. Pure. */
import { createHash } from 'node:crypto'
import type { ExposedHost, Publication } from '../../ingress.ts'
import { doorMetadata, type GatewayPlace, type Manifest, nameOf, type Place } from './describe.ts'

const apiVersion = 'gateway.networking.k8s.io/v1'

const kinds = { HTTP: 'HTTPRoute', GRPC: 'GRPCRoute' } as const

/** One each, because their paths differ, and so that one that is not taken keeps none from the others. */
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

const ruleOf = (serviceId: string, { path = '/', rewrite, protocol, internalPort }: ExposedHost): object => ({
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

/** What a Gateway cannot lead, as a sentence: of one host, HTTP or gRPC, and gRPC without paths. */
export const routeRefusal = (
  { host, path = '/', protocol }: ExposedHost,
  all: readonly ExposedHost[],
): string | null => {
  const first = all.find((each) => each.host === host)
  if (first !== undefined && first.protocol !== protocol)
    return `The path ${path} of ${host} is not published: a Gateway leads a host to HTTP or to gRPC ports, not to both.`
  if (protocol === 'GRPC' && path !== '/')
    return `The path ${path} of ${host} is not published: a Gateway leads gRPC requests by their host alone.`
  return null
}

/** `keepsClients`: a client stays with the instance that it had first. */
export const routesOf = (
  { service }: Publication,
  hosts: readonly ExposedHost[],
  place: Place & { ingress: { gateway: GatewayPlace } },
  keepsClients: boolean,
): Manifest[] =>
  [...Map.groupBy(hosts, ({ host }) => host)].map(([host, all]) => ({
    apiVersion,
    kind: kinds[all[0]!.protocol],
    metadata: doorMetadata(service, place, routeNameOf(service.serviceId, host)),
    spec: {
      parentRefs: [parentOf(place.ingress.gateway)],
      hostnames: [host],
      rules: all.map((each) => ({
        ...ruleOf(service.serviceId, each),
        ...(keepsClients ? { sessionPersistence: persistence } : {}),
      })),
    },
  }))
