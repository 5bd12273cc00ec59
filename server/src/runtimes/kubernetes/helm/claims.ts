/**
 * The hosts that a chart would publish, and whether they belong to its service: an ingress that several organizations
 * share assigns a host to any object that names it. Pure.
 */
import { type Json, objectOf } from '../../../lib/foreign-text/fields.ts'
import { wildcardOf } from '../../../router/table/wildcard.ts'
import { type ChartedObject, nameOf, refuse } from './charted.ts'

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : [])

/** Instead of a host: all of them. */
const everyHost = '*'

const hostOf = (value: unknown): string => (typeof value === 'string' && value !== '' ? value.toLowerCase() : everyHost)

const ofIngress = ({ rules, defaultBackend, backend, tls }: Json): string[] => [
  ...listOf(rules).map((rule) => hostOf(objectOf(rule).host)),
  ...(defaultBackend === undefined && backend === undefined ? [] : [everyHost]),
  ...listOf(tls).flatMap((each) => listOf(objectOf(each).hosts).map(hostOf)),
]

const ofRoute = ({ hostnames }: Json): string[] => {
  const names = listOf(hostnames).map(hostOf)
  return names.length === 0 ? [everyHost] : names
}

/** An object that proves a host to a certificate authority answers for that host meanwhile. */
const ofCertificate = ({ dnsNames, commonName }: Json): string[] =>
  [...listOf(dnsNames), ...(commonName === undefined ? [] : [commonName])].map(hostOf)

const readers: Readonly<Record<string, (spec: Json) => string[]>> = {
  Ingress: ofIngress,
  HTTPRoute: ofRoute,
  GRPCRoute: ofRoute,
  TLSRoute: ofRoute,
  Certificate: ofCertificate,
}

const readable = /^(networking\.k8s\.io|extensions|gateway\.networking\.k8s\.io|cert-manager\.io)\//

/** Kinds of ingress controllers, meshes and DNS that publish hosts in fields of their own. */
const unreadable = new Set([
  ...['Gateway', 'TCPRoute', 'UDPRoute', 'ListenerSet', 'XListenerSet', 'IngressRoute', 'IngressRouteTCP'],
  ...['IngressRouteUDP', 'VirtualService', 'VirtualServer', 'VirtualServerRoute', 'TransportServer', 'ServiceEntry'],
  ...['HTTPProxy', 'Route', 'Mapping', 'TCPMapping', 'DNSEndpoint', 'TCPIngress', 'UDPIngress', 'RouteTable'],
  ...['CertificateRequest', 'Order', 'Challenge'],
])

/** Whether a host of such an object is this domain, or below it. */
export const isNamedBy = (kind: 'Ingress' | 'HTTPRoute' | 'GRPCRoute', spec: Json, domain: string): boolean =>
  readers[kind]!(spec).some((host) => host === domain || wildcardOf(host) === domain)

const dnsName = /^external-dns\.alpha\.kubernetes\.io\/(internal-)?hostname$/
/** In addition to the hosts of its Ingress or Gateway. */
const certifiedName = /^cert-manager\.io\/(alt-names|common-name)$/
/** Annotations in which some ingress controllers accept more hosts, or arbitrary configuration. */
const widening =
  /(server-alias(-regex)?|-snippets?|\/from-to-www-redirect|\/redirect-from(-regex)?|(^|\.)(ingress\.kubernetes\.io|github\.io)\/config-[a-z-]+)$/

const ofAnnotations = (object: ChartedObject): string[] =>
  Object.entries(objectOf(object.metadata.annotations)).flatMap(([key, value]) => {
    if (dnsName.test(key) || certifiedName.test(key))
      return String(value)
        .split(',')
        .map((name) => hostOf(name.trim()))
    if (!widening.test(key)) return []
    return refuse(
      `The chart's ${nameOf(object)} has the annotation ${key.slice(0, 200)}, which could take hosts of others: leave it out.`,
    )
  })

const hostsOf = (object: ChartedObject): string[] => {
  const { apiVersion, kind, spec } = object
  if (kind === 'Service' && listOf(objectOf(spec).externalIPs).length > 0)
    refuse(`The chart's ${nameOf(object)} has externalIPs, which could take addresses of others: leave them out.`)
  const read = readable.test(apiVersion) ? readers[kind] : undefined
  if (read === undefined && unreadable.has(kind))
    refuse(
      `The chart makes ${nameOf(object)} of ${apiVersion.slice(0, 200)}, whose hosts cannot be checked: let it use an Ingress or an HTTPRoute.`,
    )
  return [...(read?.(objectOf(spec)) ?? []), ...ofAnnotations(object)]
}

/** Throws `chart_refused` for a host outside of `domains` and their wildcards. Returns those that no object names. */
export const judgeHosts = (objects: readonly ChartedObject[], domains: readonly string[]): string[] => {
  const named = new Set<string>()
  for (const object of objects)
    for (const host of hostsOf(object)) {
      if (host === everyHost)
        refuse(
          `The chart's ${nameOf(object)} takes the requests of every host: have it name custom domains of this service.`,
        )
      const own = [host, wildcardOf(host)].find((name) => domains.includes(name))
      if (own === undefined)
        refuse(
          `The chart's ${nameOf(object)} names the host ${host.slice(0, 253)}, which is not a custom domain of this service: add it to the service, or change the values.`,
        )
      named.add(own!)
    }
  return domains.filter((domain) => !named.has(domain))
}
