/**
 * The Services of a chart that are reachable from outside: they must be its own and select its pods, and the policy of
 * the environment is opened for exactly these ports of these pods. Pure.
 */
import { isObject, type Json, listOf, objectOf } from '../../../lib/foreign-text/fields.ts'
import { labels } from '../manifests/describe.ts'
import { type ChartedObject, nameOf, refuse } from './charted.ts'

/** One Service, and one of its ports by number or name; undefined: all. */
interface Backend {
  service: unknown
  port: unknown
}

/** Instead of a port, the name by which one controller refers to its annotations. */
const byAnnotation = 'use-annotation'

const ofIngress = ({ rules }: Json): Backend[] =>
  listOf(rules)
    .flatMap(({ http }) => listOf(objectOf(http).paths))
    .map(({ backend }) => {
      const { service, serviceName, servicePort } = objectOf(backend)
      const { name, port } = objectOf(service)
      return { service: name ?? serviceName, port: objectOf(port).number ?? objectOf(port).name ?? servicePort }
    })
    .filter(({ port }) => port !== byAnnotation)

const ofRoute = ({ rules }: Json): Backend[] =>
  listOf(rules)
    .flatMap(({ backendRefs }) => listOf(backendRefs))
    .map(({ kind = 'Service', name, port }) => ({ service: kind === 'Service' ? name : undefined, port }))

const readers: Readonly<Record<string, (spec: Json) => Backend[]>> = {
  Ingress: ofIngress,
  HTTPRoute: ofRoute,
  GRPCRoute: ofRoute,
  TLSRoute: ofRoute,
}

const backendsOf = ({ kind, spec }: ChartedObject): Backend[] => readers[kind]?.(objectOf(spec)) ?? []

const servicesOf = (objects: readonly ChartedObject[]): ReadonlyMap<unknown, ChartedObject> =>
  new Map(
    objects
      .filter(({ kind, apiVersion }) => kind === 'Service' && apiVersion === 'v1')
      .map((each) => [each.metadata.name, each]),
  )

const words = (text: unknown): string => String(text ?? 'something else').slice(0, 253)

/**
 * Throws `chart_refused` for a backend other than pods of the chart: an ingress sends requests from its own place,
 * past the rules that keep the environment's pods from addresses, and past those that protect other services.
 */
export const judgeWays = (objects: readonly ChartedObject[]): void => {
  const services = servicesOf(objects)
  for (const object of objects)
    for (const { service } of backendsOf(object)) {
      const own = services.get(service)
      if (own === undefined)
        refuse(
          `The chart's ${nameOf(object)} leads to ${words(service)}, which is not a Service of the chart: that is not possible.`,
        )
      const { type, selector } = objectOf(own!.spec)
      // A Service without a selector can have any addresses.
      if (type === 'ExternalName' || Object.keys(objectOf(selector)).length === 0)
        refuse(
          `The chart's ${nameOf(object)} leads to the Service ${words(service)}, which does not stand for pods (an ExternalName, or no selector): that is not possible.`,
        )
    }
}

const isOpened = ({ spec }: ChartedObject): boolean => /^(LoadBalancer|NodePort)$/.test(String(objectOf(spec).type))

/** Ports of pods, as named in a policy. */
const portsOf = (service: ChartedObject, wanted: readonly unknown[]): object[] =>
  listOf(objectOf(service.spec).ports)
    .filter(({ port, name }) => wanted.some((one) => one === undefined || one === port || one === name))
    .map(({ port, targetPort, protocol = 'TCP' }) => ({ port: targetPort ?? port, protocol }))

/** The policies that let requests in, in an environment that otherwise lets in none from outside. */
export const describeWays = (
  objects: readonly ChartedObject[],
  { serviceId, namespace, release }: { serviceId: string; namespace: string; release: string },
): ChartedObject[] => {
  const backends = Map.groupBy(objects.flatMap(backendsOf), ({ service }) => service)
  return [...servicesOf(objects).values()].flatMap((service) => {
    const { name } = service.metadata
    const wanted = isOpened(service) ? [undefined] : (backends.get(name) ?? []).map(({ port }) => port)
    const ports = portsOf(service, wanted)
    const selector = objectOf(objectOf(service.spec).selector)
    if (ports.length === 0 || Object.keys(selector).length === 0) return []
    return [
      {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'NetworkPolicy',
        metadata: { name: `${release}-to-${name}`, namespace, labels: { [labels.chart]: serviceId } },
        spec: {
          podSelector: { matchLabels: { ...selector, [labels.chart]: serviceId } },
          policyTypes: ['Ingress'],
          ingress: [{ ports }],
        },
      },
    ]
  })
}

/**
 * Policies add up: the environment's own already says where a chart may connect, and the only further target would be
 * the one that it excludes, the secrets of the machines.
 */
export const withoutEgress = (object: ChartedObject): ChartedObject => {
  if (object.kind !== 'NetworkPolicy' || !isObject(object.spec)) return object
  const { egress: _, ...spec } = object.spec
  return { ...object, spec: { ...spec, policyTypes: ['Ingress'] } }
}
