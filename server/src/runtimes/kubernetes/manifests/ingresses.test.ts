import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Exposure, Publication } from '../../ingress.ts'
import type { Manifest, Place } from './describe.ts'
import { describeIngresses } from './ingresses.ts'

const place: Place = { ownerId: 'owner', canPause: true, runAs: null }
const publicationOf = (exposure: Partial<Exposure>, revision: string | null = 'rev'): Publication => ({
  service: { environmentId: 'env', serviceId: 'svc' },
  revision,
  exposure: { hosts: [], ports: [], ...exposure },
})
const host = { host: 'web.test', internalPort: 8080, protocol: 'HTTP' } as const
const labels = { 'slipway.owner': 'owner', 'slipway.environment': 'env', 'slipway.service': 'svc' }
const port = { externalPort: 5432, internalPort: 15_432, protocol: 'TCP' } as const

const plain = (publication: Publication) =>
  describeIngresses(publication, place).manifests.map(({ metadata: { annotations: _, ...metadata }, ...rest }) => ({
    ...rest,
    metadata,
  }))

test('hosts are an Ingress, one rule for each; ports are a LoadBalancer', () => {
  const hosts = [host, { ...host, path: '/api', internalPort: 9090 }, { ...host, host: 'other.test' }]
  const pathOf = (path: string, number: number) => ({
    path,
    pathType: 'Prefix',
    backend: { service: { name: 's-svc', port: { number } } },
  })
  assert.deepEqual(plain(publicationOf({ hosts, ports: [port] })), [
    {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'Ingress',
      metadata: { name: 's-svc', namespace: 'slipway-env', labels },
      spec: {
        rules: [
          { host: 'web.test', http: { paths: [pathOf('/', 8080), pathOf('/api', 9090)] } },
          { host: 'other.test', http: { paths: [pathOf('/', 8080)] } },
        ],
      },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 's-svc-ports', namespace: 'slipway-env', labels: { ...labels, 'slipway.role': 'ports' } },
      spec: {
        type: 'LoadBalancer',
        selector: { 'slipway.service': 'svc', 'slipway.role': 'instance' },
        ports: [{ name: 'tcp-5432', port: 5432, targetPort: 15_432, protocol: 'TCP' }],
      },
    },
  ])
})

test('a stopped service keeps its hosts and closes its ports', () => {
  const kinds = plain(publicationOf({ hosts: [host], ports: [port] }, null)).map(({ kind }) => kind)
  assert.deepEqual(kinds, ['Ingress'])
})

test('what the ingress cannot carry out is refused; what protects keeps the hosts closed', () => {
  const cases: [Partial<Exposure>, number, RegExp][] = [
    [{ hosts: [host], policy: { allow: ['10.0.0.0/8'] } }, 0, /the allowed addresses.*not published without/],
    [{ hosts: [host], policy: { users: [] } }, 0, /basic authentication.*not published without/],
    [{ hosts: [host], policy: { bodyBytes: 5 } }, 1, /the setting bodyBytes\.$/],
    [{ hosts: [{ ...host, path: '/a', rewrite: '/' }, host] }, 1, /path \/a of web\.test is not published/],
    [{ hosts: [{ ...host, protocol: 'GRPC' }] }, 0, /only with a gateway or grpc_annotations/],
  ]
  for (const [exposure, count, sentence] of cases) {
    const { manifests, refused } = describeIngresses(publicationOf(exposure), place)
    assert.equal(manifests.length, count, JSON.stringify(exposure))
    assert.match(refused.join(' '), sentence)
  }
  assert.deepEqual(describeIngresses(publicationOf({ policy: { allow: [] } }), place), { manifests: [], refused: [] })
})

test('another way has another mark', () => {
  const markOf = (exposure: Partial<Exposure>) =>
    describeIngresses(publicationOf(exposure), place).manifests[0]?.metadata.annotations?.['slipway.published']
  assert.equal(markOf({ hosts: [host] }), markOf({ hosts: [host] }))
  assert.notEqual(markOf({ hosts: [host] }), markOf({ hosts: [{ ...host, internalPort: 1 }] }))
})

test('hosts are published by the class that is named, with the certificates of an issuer or of the ingress itself', () => {
  const made = (ingress: Place['ingress']) => {
    const [manifest] = describeIngresses(publicationOf({ hosts: [host, { ...host, path: '/a' }] }), {
      ...place,
      ingress,
    }).manifests as (Manifest & { spec: { ingressClassName?: string; tls?: unknown } })[]
    const { 'slipway.published': _, ...annotations } = manifest!.metadata.annotations ?? {}
    return [manifest!.spec.ingressClassName, annotations, manifest!.spec.tls]
  }
  const issuer = { 'cert-manager.io/cluster-issuer': 'letsencrypt' }
  assert.deepEqual(made({}), [undefined, {}, undefined])
  assert.deepEqual(made({ className: 'nginx', hasCertificate: true }), ['nginx', {}, [{ hosts: ['web.test'] }]])
  const [, annotations, tls] = made({ issuer: 'letsencrypt' })
  assert.deepEqual(annotations, issuer)
  assert.match(JSON.stringify(tls), /^\[\{"hosts":\["web\.test"\],"secretName":"tls-[0-9a-f]{16}"\}\]$/)
})

test('through a Gateway each host is a route of its protocol, with its paths and rewrites', () => {
  const gateway = { name: 'main', namespace: 'ingress', sectionName: 'https' }
  const hosts = [
    host,
    { ...host, path: '/api', rewrite: '/', internalPort: 9090 },
    { host: 'calls.test', internalPort: 50_051, protocol: 'GRPC' } as const,
  ]
  const described = (more: Partial<Exposure>, over: object = {}) =>
    describeIngresses(publicationOf(more), { ...place, ingress: { gateway: { ...gateway, ...over } } })
  const route = (kind: string, name: string, hostname: string, rules: object[]) => ({
    apiVersion: 'gateway.networking.k8s.io/v1',
    kind,
    metadata: { name, namespace: 'slipway-env', labels },
    spec: {
      parentRefs: [{ group: 'gateway.networking.k8s.io', kind: 'Gateway', ...gateway }],
      hostnames: [hostname],
      rules,
    },
  })
  const to = (port: number) => ({ backendRefs: [{ name: 's-svc', port }] })
  const prefix = (value: string) => ({ matches: [{ path: { type: 'PathPrefix', value } }] })
  const replaced = { type: 'ReplacePrefixMatch', replacePrefixMatch: '/' }
  const wanted = [
    route('HTTPRoute', 's-svc-d775ce97', 'web.test', [
      { ...prefix('/'), ...to(8080) },
      { ...prefix('/api'), filters: [{ type: 'URLRewrite', urlRewrite: { path: replaced } }], ...to(9090) },
    ]),
    route('GRPCRoute', 's-svc-6029ec3c', 'calls.test', [to(50_051)]),
  ]
  const { manifests, refused } = described({ hosts })
  assert.deepEqual(
    manifests.map(({ metadata: { annotations: _, ...metadata }, ...rest }) => ({ ...rest, metadata })),
    wanted,
  )
  assert.deepEqual(refused, [])

  const kept = described({ hosts: [host], policy: { sticky: true } }, { keepsClients: true })
  assert.match(JSON.stringify(kept), /"sessionPersistence":\{"sessionName":"SLIPWAY_INSTANCE"/)
  assert.deepEqual(kept.refused, [])
  assert.match(described({ hosts: [host], policy: { sticky: true } }).refused.join(), /sticky sessions/)
  const mixed = described({ hosts: [host, { ...host, path: '/calls', protocol: 'GRPC' }] })
  assert.deepEqual(
    [mixed.manifests.length, /to HTTP or to gRPC ports, not to both/.test(mixed.refused.join())],
    [1, true],
  )
  const pathed = described({ hosts: [{ ...host, path: '/calls', protocol: 'GRPC' }] })
  assert.deepEqual([pathed.manifests.length, /by their host alone/.test(pathed.refused.join())], [0, true])
})

test('a controller gets the annotations that the cluster names: of all, of gRPC, of clients that stay, of balancers', () => {
  const ingress = {
    annotations: { all: '1' },
    grpcAnnotations: { protocol: 'GRPC' },
    stickyAnnotations: { affinity: 'cookie' },
    balancerAnnotations: { scheme: 'internal' },
  }
  const told = (more: Partial<Exposure>) => {
    const { manifests, refused } = describeIngresses(publicationOf(more), { ...place, ingress })
    assert.deepEqual(refused, [])
    return manifests.map(({ metadata }) => {
      const { 'slipway.published': _, ...own } = metadata.annotations ?? {}
      return [metadata.name, own]
    })
  }
  const hosts = [host, { ...host, path: '/calls', protocol: 'GRPC' as const }]
  assert.deepEqual(told({ hosts, ports: [port] }), [
    ['s-svc', { all: '1' }],
    ['s-svc-grpc', { all: '1', protocol: 'GRPC' }],
    ['s-svc-ports', { scheme: 'internal' }],
  ])
  assert.deepEqual(told({ hosts: [host], policy: { sticky: true } }), [['s-svc', { all: '1', affinity: 'cookie' }]])
})
