import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ChartedObject } from './charted.ts'
import { asOurs } from './own-objects.ts'
import { judgeWays } from './ways-in.ts'

const object = (kind: string, name: string, spec: object): ChartedObject => {
  const group = { Service: '', Ingress: 'networking.k8s.io/', NetworkPolicy: 'networking.k8s.io/' }[kind]
  return { apiVersion: `${group ?? 'gateway.networking.k8s.io/'}v1`, kind, metadata: { name }, spec }
}
const service = (name: string, spec: object = {}): ChartedObject =>
  object('Service', name, {
    selector: { app: name },
    ports: [
      { name: 'http', port: 80, targetPort: 'web' },
      { name: 'admin', port: 9000 },
    ],
    ...spec,
  })
const ingress = (name: unknown, port: object = { number: 80 }): ChartedObject =>
  object('Ingress', 'shop', { rules: [{ host: 'a', http: { paths: [{ backend: { service: { name, port } } }] } }] })
const route = (ref: object): ChartedObject => object('HTTPRoute', 'shop', { rules: [{ backendRefs: [ref] }] })

const ids = {
  organizationId: 'o',
  environmentId: 'e',
  serviceId: '11111111-2222-4333-8444-555555555555',
  revision: 'r',
}
const made = (...objects: ChartedObject[]) =>
  asOurs(objects, ids, { ownerId: 'owner', canPause: true, runAs: null }).filter(({ kind }) => kind === 'NetworkPolicy')
const opened = (...objects: ChartedObject[]) =>
  made(...objects).map(({ spec }) => {
    const { podSelector, ingress: rules } = spec as {
      podSelector: { matchLabels: object }
      ingress: { ports: object[] }[]
    }
    return [podSelector.matchLabels, ...rules.flatMap(({ ports }) => ports)]
  })

test('the world reaches the ports of a chart that something of it leads to, on its own pods, and no others', () => {
  const own = { 'slipway.chart': ids.serviceId }
  const web = [
    { app: 'shop', ...own },
    { port: 'web', protocol: 'TCP' },
  ]
  assert.deepEqual(opened(service('shop'), service('data'), ingress('shop')), [web])
  assert.deepEqual(opened(service('shop'), ingress('shop', { name: 'http' })), [web])
  assert.deepEqual(opened(service('shop'), route({ name: 'shop', port: 80 })), [web])
  assert.deepEqual(opened(service('shop', { type: 'LoadBalancer' })), [[...web, { port: 9000, protocol: 'TCP' }]])
  assert.deepEqual(opened(service('shop')), [])
  assert.deepEqual(opened(service('shop', { selector: {}, type: 'NodePort' })), [])
})

test('what leads into a chart leads to its own pods, and its policies open no way out', () => {
  const refused: [ChartedObject[], RegExp][] = [
    [[ingress('s-other')], /leads to s-other, which is not a Service of the chart/],
    [[ingress(undefined)], /leads to something else/],
    [[service('a', { type: 'ExternalName', externalName: 'b.test' }), ingress('a')], /does not stand for pods/],
    [[service('a', { selector: null }), ingress('a')], /does not stand for pods/],
    [[service('a'), route({ kind: 'Bucket', name: 'a' })], /leads to something else/],
  ]
  for (const [objects, reason] of refused)
    assert.throws(() => judgeWays(objects), { code: 'chart_refused', message: reason }, String(reason))
  judgeWays([service('a'), ingress('a'), ingress('redirect', { name: 'use-annotation' })])
  judgeWays([service('a', { type: 'ExternalName', externalName: 'b.test' })])

  const wide = { podSelector: {}, policyTypes: ['Egress'], egress: [{}] }
  assert.deepEqual(made(object('NetworkPolicy', 'out', wide))[0]!.spec, { podSelector: {}, policyTypes: ['Ingress'] })
})
