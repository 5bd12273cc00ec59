/**
 * By which of a chart's Services the world comes in: those are its own and stand for its pods, and the policy of the
 * environment is opened for just these ports of just these pods. Pure.
 */
import { isObject, type Json, listOf, objectOf } from '../../../lib/foreign-text/fields.ts'
import { labels } from '../manifests/describe.ts'
import { type ChartedObject, nameOf, refuse } from './charted.ts'

/** One Service, and one of its ports by number or name; undefined: all. */
interface Backend {
  service: unknown
  port: unknown
}

/** In place of a port, by which one controller takes the name for one of its annotations. */
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
 * Throws `chart_refused` for what leads to anything but pods of the chart: an ingress asks from where it is, past what
 * keeps the environment's pods from addresses, and past what protects other services.
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
      // What has no selector stands for any addresses that somebody writes down.
      if (type === 'ExternalName' || Object.keys(objectOf(selector)).length === 0)
        refuse(
          `The chart's ${nameOf(object)} leads to the Service ${words(service)}, which does not stand for pods (an ExternalName, or no selector): that is not possible.`,
        )
    }
}

const isOpened = ({ spec }: ChartedObject): boolean => /^(LoadBalancer|NodePort)$/.test(String(objectOf(spec).type))

/** Ports of pods, as a policy names them. */
const portsOf = (service: ChartedObject, wanted: readonly unknown[]): object[] =>
  listOf(objectOf(service.spec).ports)
    .filter(({ port, name }) => wanted.some((one) => one === undefined || one === port || one === name))
    .map(({ port, targetPort, protocol = 'TCP' }) => ({ port: targetPort ?? port, protocol }))

/** What lets requests in, in an environment that lets in nothing from outside. */
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
 * Policies add up: to where a chart may connect its environment says already, and all that a chart could add is what that
 * leaves out, the secrets of the machines.
 */
export const withoutEgress = (object: ChartedObject): ChartedObject => {
  if (object.kind !== 'NetworkPolicy' || !isObject(object.spec)) return object
  const { egress: _, ...spec } = object.spec
  return { ...object, spec: { ...spec, policyTypes: ['Ingress'] } }
}
