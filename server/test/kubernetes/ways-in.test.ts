/** Ways into a real cluster that names a Gateway: without the Gateway API, and with the API as it is published. */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { newId } from '../../src/lib/ids.ts'
import { parseKubeconfig } from '../../src/lib/kubernetes/kubeconfig.ts'
import { createKubernetesApi } from '../../src/lib/kubernetes/kubernetes-api.ts'
import type { Exposure } from '../../src/runtimes/ingress.ts'
import { accessManifest } from '../../src/runtimes/kubernetes/rights.ts'
import { createKubernetesRuntime } from '../../src/runtimes/kubernetes/runtime.ts'
import type { Runtime, Workload } from '../../src/runtimes/runtime.ts'
import type { Json } from '../support/api.ts'
import { published } from '../support/kubernetes/schemas.ts'
import {
  absent,
  createRollout,
  createWorkload,
  deploymentError,
  runningAs,
  signal,
} from '../support/runtimes/conformance.ts'
import { until } from '../support/until.ts'
import type { Admin } from './cluster/admin.ts'
import { grantAccess, openCluster, outbound, revokeAccess } from './cluster/scene.ts'

const group = 'gateway.networking.k8s.io'
const routes = ['HTTPRoute', 'GRPCRoute'] as const
const pluralOf = (kind: string): string => `${kind.toLowerCase()}s`
const definitions = routes.map((kind) => ({
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: {
    name: `${pluralOf(kind)}.${group}`,
    annotations: { 'api-approved.kubernetes.io': 'https://github.com/kubernetes-sigs/gateway-api' },
  },
  spec: {
    ...{ group, scope: 'Namespaced' },
    names: { kind, plural: pluralOf(kind), singular: kind.toLowerCase() },
    versions: [
      {
        ...{ name: 'v1', served: true, storage: true },
        schema: { openAPIV3Schema: published['v1.35']![`io.k8s.api.gateway.v1.${kind}`] },
      },
    ],
  },
}))

const serve = {
  image: 'docker.io/library/busybox:1',
  entrypoint: ['sh', '-c'],
  arguments: ['exec httpd -f -p 8080 -h /etc'],
}
const ownerId = newId()
let admin: Admin
let open: (gateway?: { name: string; namespace: string; keepsClients: boolean }) => Promise<Runtime>
const opened: Runtime[] = []
const environments = new Set<string>()
const hasRoutes =
  (await openCluster().then(async (first) => {
    const { status } = await first.ask('GET', `/apis/${group}/v1`)
    first.close()
    return status
  })) !== 404

before(async () => {
  admin = await openCluster()
  const account = await grantAccess(admin, accessManifest.items)
  const { gitVersion: version } = await admin.get('/version')
  open = async (gateway) => {
    const api = createKubernetesApi(await parseKubeconfig(account), outbound.checkMachine)
    const made = createKubernetesRuntime({
      ...{ api, ownerId, version, outbound, close: api.close, runAs: 10_001, ingress: { gateway } },
      ...{
        registryLogins: async () => [],
        ping: async () => {},
        capacity: () => Promise.reject(new Error('not asked')),
      },
    })
    opened.push(made)
    return made
  }
})
after(async () => {
  for (const id of environments)
    await admin.remove({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: `slipway-${id}` } })
  if (!hasRoutes) for (const each of definitions) await admin.remove(each)
  for (const each of opened) await each.close()
  await revokeAccess(admin)
  admin.close()
})

const newWorkload = (over: Partial<Workload> = {}): Workload => {
  const made = createWorkload(serve, { readyTimeoutMs: 60_000, ...over })
  environments.add(made.environmentId)
  return made
}
const exposure: Exposure = {
  hosts: [
    { host: 'web.test', internalPort: 8080, protocol: 'HTTP' },
    { host: 'web.test', internalPort: 8080, protocol: 'HTTP', path: '/a', rewrite: '/b' },
    { host: 'calls.test', internalPort: 8080, protocol: 'GRPC' },
  ],
  ports: [],
  policy: { sticky: true },
}
const roll = (runtime: Runtime, workload: Workload, exposed = exposure) =>
  runtime.converge(workload, runningAs(workload, exposed), createRollout().rollout, signal())

test('a gateway that a cluster cannot have is reported, and one that it has gets routes, which are removed with their service', async () => {
  const gateway = { name: 'main', namespace: 'edge', keepsClients: true }
  const runtime = await open(gateway)
  const workload = newWorkload()
  if (!hasRoutes) {
    const error = await deploymentError(roll(runtime, workload))
    assert.deepEqual(
      [error.code, /does not have the Gateway API/.test(error.message)],
      ['ingress_refused', true],
      error.message,
    )
    for (const each of definitions) await admin.apply(each)
    const isServed = async () => (await admin.ask('GET', `/apis/${group}/v1/httproutes`)).status === 200
    await until(isServed, { what: 'the routes to be known', timeoutMs: 60_000 })
  }
  const list = async (kind: string): Promise<Json[]> =>
    (await admin.get(`/apis/${group}/v1/namespaces/slipway-${workload.environmentId}/${pluralOf(kind)}`)).items
  await until(
    () =>
      roll(runtime, workload).then(
        () => true,
        () => null,
      ),
    { what: 'the routes', timeoutMs: 120_000 },
  )
  const [[http, ...more], [grpc]] = [await list('HTTPRoute'), await list('GRPCRoute')]
  assert.deepEqual([more, http!.spec.hostnames, grpc!.spec.hostnames], [[], ['web.test'], ['calls.test']])
  // Whole: the API server drops what it does not know.
  assert.equal(http!.spec.rules[1].filters[0].urlRewrite.path.replacePrefixMatch, '/b')
  assert.deepEqual(
    [...http!.spec.rules, ...grpc!.spec.rules].map(({ sessionPersistence: kept }) => kept.type),
    ['Cookie', 'Cookie', 'Cookie'],
  )
  const seen = await runtime.ingress.look([workload])
  const publication = { service: workload, revision: workload.revision, exposure }
  assert.equal(seen.isAs(publication), true)

  const plain = await open()
  const web: Exposure = { hosts: [exposure.hosts[0]!], ports: [] }
  assert.deepEqual(await plain.ingress.publish({ ...publication, exposure: web }), [])
  assert.deepEqual([await list('HTTPRoute'), await list('GRPCRoute')], [[], []])
  await runtime.ingress.publish(publication)
  await runtime.converge(workload, absent, null, signal())
  assert.deepEqual([await list('HTTPRoute'), await list('GRPCRoute')], [[], []])
})

test('a program without a gRPC health service fails a gRPC probe', async () => {
  const check = { kind: 'grpc', port: 8080, service: 'shop.Orders' } as const
  const pace = { initialDelaySeconds: 0, periodSeconds: 1, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3 }
  const workload = newWorkload({ readiness: { check, ...pace }, readyTimeoutMs: 10_000 })
  const error = await deploymentError(roll(await open(), workload, { hosts: [], ports: [] }))
  assert.equal(error.code, 'not_ready', error.message)
})
