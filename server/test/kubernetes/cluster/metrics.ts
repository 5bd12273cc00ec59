/** In place of a metrics server, which the cluster of the tests has not: it serves what the machines' kubelets say. */
import { once } from 'node:events'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Json } from '../../support/api.ts'
import { createTestCa } from '../../support/tls/test-ca.ts'
import type { Admin } from './admin.ts'
import { outsideAddress } from './registry.ts'

const group = { apiVersion: 'metrics.k8s.io/v1beta1' }
const path = '/apis/metrics.k8s.io/v1beta1'
const place = { name: 'metrics', namespace: 'kube-system' }
const resources = [{ name: 'pods', singularName: '', namespaced: true, kind: 'PodMetrics', verbs: ['get', 'list'] }]

/** Of each pod whose memory is known: by `namespace/name`. */
const readUsage = async (admin: Admin): Promise<Map<string, Json>> => {
  const { items: nodes } = await admin.get('/api/v1/nodes')
  const found = new Map<string, Json>()
  for (const { metadata } of nodes as Json[]) {
    const { pods } = await admin.get(`/api/v1/nodes/${metadata.name}/proxy/stats/summary`)
    for (const { podRef, containers = [] } of pods as Json[]) {
      const known = containers.filter(({ memory }: Json) => memory?.workingSetBytes !== undefined)
      const usages = known.map(({ name, cpu, memory }: Json) => ({
        ...{ name, usage: { cpu: `${cpu?.usageNanoCores ?? 0}n`, memory: String(memory.workingSetBytes) } },
      }))
      if (usages.length > 0) found.set(`${podRef.namespace}/${podRef.name}`, usages)
    }
  }
  return found
}

const listPods = async (admin: Admin, asked: URL): Promise<Json> => {
  const [, namespace] = /\/namespaces\/([^/]+)\/pods$/.exec(asked.pathname) ?? []
  const selector = new URLSearchParams({ labelSelector: asked.searchParams.get('labelSelector') ?? '' })
  const inside = namespace === undefined ? '' : `/namespaces/${namespace}`
  const { items } = await admin.get(`/api/v1${inside}/pods?${selector}`)
  const usage = await readUsage(admin)
  return {
    ...{ ...group, kind: 'PodMetricsList', metadata: {} },
    items: (items as Json[]).flatMap(({ metadata: { name, namespace, labels } }) => {
      const containers = usage.get(`${namespace}/${name}`)
      return containers === undefined ? [] : [{ metadata: { name, namespace, labels }, containers }]
    }),
  }
}

/** Answers a function that takes it away. */
export const startMetrics = async (admin: Admin): Promise<() => Promise<void>> => {
  const address = outsideAddress()
  const { certificate, key } = await (await createTestCa()).issueFor({ subject: 'CN=metrics', addresses: [address] })
  const server = createServer({ cert: certificate, key }, (request, response) => {
    const asked = new URL(request.url!, 'https://metrics')
    const answer = asked.pathname.endsWith('/pods')
      ? listPods(admin, asked)
      : Promise.resolve({ kind: 'APIResourceList', apiVersion: 'v1', groupVersion: group.apiVersion, resources })
    answer.then(
      (body) => response.setHeader('content-type', 'application/json').end(JSON.stringify(body)),
      () => response.destroy(),
    )
  }).listen(0, address)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const ports = [{ name: 'https', port: 443, targetPort: port }]
  const objects: Json[] = [
    { apiVersion: 'v1', kind: 'Service', metadata: place, spec: { ports } },
    {
      ...{ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', addressType: 'IPv4' },
      metadata: { ...place, labels: { 'kubernetes.io/service-name': place.name } },
      endpoints: [{ addresses: [address], conditions: { ready: true } }],
      ports: [{ name: 'https', port }],
    },
    {
      ...{ apiVersion: 'apiregistration.k8s.io/v1', kind: 'APIService', metadata: { name: 'v1beta1.metrics.k8s.io' } },
      spec: {
        ...{ group: 'metrics.k8s.io', version: 'v1beta1', insecureSkipTLSVerify: true },
        ...{ service: { ...place, port: 443 }, groupPriorityMinimum: 100, versionPriority: 100 },
      },
    },
  ]
  for (const each of objects) await admin.apply(each)
  return async () => {
    for (const each of objects.toReversed()) await admin.remove(each)
    server.closeAllConnections()
    server.close()
  }
}

/** Whether it is there: the API server looks by itself, now and then. */
export const hasMetrics = async (admin: Admin): Promise<boolean> =>
  (await admin.ask('GET', `${path}/pods`)).status === 200
