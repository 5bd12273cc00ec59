import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { ChartedObject } from './charted.ts'
import { judgeHosts } from './claims.ts'

const object = (kind: string, spec: object, more: Partial<ChartedObject> = {}, annotations: object = {}) =>
  ({
    ...{ apiVersion: /Route$/.test(kind) ? 'gateway.networking.k8s.io/v1' : 'networking.k8s.io/v1', kind, spec },
    metadata: { name: 'shop', annotations },
    ...more,
  }) as ChartedObject
const rules = (...hosts: (string | undefined)[]) => ({ rules: hosts.map((host) => ({ host })) })
const domains = ['www.shop.test', '*.any.test']

const verdict = (...objects: ChartedObject[]): string => {
  try {
    return judgeHosts(objects, domains).join()
  } catch (error) {
    return (error as Error).message
  }
}

test('a chart is led to by hosts of its service alone, whatever it makes to be led to', () => {
  const all = [
    object('Ingress', rules('WWW.shop.test')),
    object('HTTPRoute', { hostnames: ['a.any.test', '*.any.test'] }),
  ]
  assert.equal(verdict(...all), '')
  assert.equal(verdict(object('Ingress', rules('www.shop.test'))), '*.any.test', 'what leads nowhere is told')
  assert.equal(verdict(object('Ingress', {})), domains.join())
  const others: [ChartedObject, RegExp][] = [
    [
      object('Ingress', rules('www.shop.test', 'bank.test')),
      /Ingress shop names the host bank\.test, which is not a custom/,
    ],
    [object('Ingress', rules('shop.test')), /host shop\.test/],
    [object('Ingress', rules('*.shop.test')), /host \*\.shop\.test/],
    [object('Ingress', rules('a.b.any.test')), /host a\.b\.any\.test/],
    [object('Ingress', rules('any.test')), /host any\.test/],
    [object('Ingress', { tls: [{ hosts: ['bank.test'] }] }), /host bank\.test/],
    [object('Ingress', rules(undefined)), /every host/],
    [object('Ingress', rules('')), /every host/],
    [object('Ingress', { defaultBackend: {} }), /every host/],
    [object('Ingress', { backend: {} }, { apiVersion: 'extensions/v1beta1' }), /every host/],
    [object('HTTPRoute', {}), /every host/],
    [object('GRPCRoute', { hostnames: ['bank.test'] }), /GRPCRoute shop names the host bank\.test/],
    [object('TLSRoute', { hostnames: [7] }), /every host/],
    [object('Certificate', { dnsNames: ['bank.test'] }, { apiVersion: 'cert-manager.io/v1' }), /host bank\.test/],
    [object('Certificate', { commonName: 'bank.test' }, { apiVersion: 'cert-manager.io/v1' }), /host bank\.test/],
    [object('VirtualService', { hosts: ['bank.test'] }, { apiVersion: 'networking.istio.io/v1' }), /cannot be checked/],
    [object('IngressRoute', {}, { apiVersion: 'traefik.io/v1alpha1' }), /cannot be checked/],
    [
      object('Ingress', rules('www.shop.test'), {}, { 'nginx.ingress.kubernetes.io/server-alias': 'x' }),
      /server-alias/,
    ],
    [object('Ingress', {}, {}, { 'nginx.ingress.kubernetes.io/configuration-snippet': 'x' }), /snippet/],
    [object('Ingress', {}, {}, { 'nginx.ingress.kubernetes.io/from-to-www-redirect': 'true' }), /from-to-www/],
    [object('Ingress', {}, {}, { 'haproxy-ingress.github.io/config-backend': 'x' }), /config-backend/],
    [object('Ingress', {}, {}, { 'haproxy-ingress.github.io/server-alias-regex': '.*' }), /server-alias-regex/],
    [object('Ingress', {}, {}, { 'cert-manager.io/alt-names': 'www.shop.test,bank.test' }), /host bank\.test/],
    [object('Ingress', {}, {}, { 'cert-manager.io/common-name': 'bank.test' }), /host bank\.test/],
    [
      object(
        'Service',
        {},
        { apiVersion: 'v1' },
        { 'external-dns.alpha.kubernetes.io/hostname': 'www.shop.test, bank.test' },
      ),
      /Service shop names the host bank\.test/,
    ],
    [object('Service', { externalIPs: ['192.0.2.1'] }, { apiVersion: 'v1' }), /externalIPs/],
  ]
  for (const [each, reason] of others) assert.match(verdict(each), reason, JSON.stringify(each))
})
