import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Router } from '../router/router.ts'
import type { Instance, WorkloadPort } from '../runtimes/runtime.ts'
import { routesFor, routeWhatCan } from './routes.ts'

const serviceId = 'a'
const address = (port: number) => ({ host: '127.0.0.1', port })
const instance = { endpoints: { 80: address(15_000), 53: address(15_001) } } as unknown as Instance
const open = (internalPort: number, protocol: WorkloadPort['protocol'], externalPort?: number): WorkloadPort => ({
  internalPort,
  protocol,
  publiclyAccessible: true,
  ...(externalPort === undefined ? {} : { externalPort }),
})
const hosts = [{ host: 'a.localhost', serviceId, port: 80, protocol: 'HTTP' as const }]
const outside = [
  { serviceId, protocol: 'TCP' as const, port: 30_000 },
  { serviceId, protocol: 'UDP' as const, port: 30_001 },
  { serviceId, protocol: 'TCP' as const, port: 30_002 },
]
const ports = [open(80, 'HTTP'), open(53, 'TCP', 30_000), open(53, 'UDP', 30_001), open(99, 'TCP', 40_000)]

const places = (routes: readonly AnyRoute[]) =>
  routes.map((route) => `${route.protocol} ${isStreamRoute(route) ? route.port : route.host}`)

test('a service is routed to at its hosts and at those of its own outside ports that the version has', () => {
  const routes = routesFor({ hosts, outside }, ports, 'up', [instance])
  assert.deepEqual(places(routes), ['HTTP a.localhost', 'TCP 30000', 'UDP 30001'])
  assert.deepEqual(
    routes.map(({ targets }) => targets),
    [[address(15_000)], [address(15_001)], [address(15_001)]],
  )
  assert.deepEqual(places(routesFor({ hosts, outside }, ports, 'stopped', [])), ['HTTP a.localhost'])
  const hidden = ports.map((port) => ({ ...port, publiclyAccessible: false }))
  assert.deepEqual(places(routesFor({ hosts, outside }, hidden, 'up', [instance])), ['HTTP a.localhost'])
})

test('ports that cannot be had are left out and told; any other error goes on', async () => {
  const routes = routesFor({ hosts, outside }, ports, 'up', [instance])
  let routed: AnyRoute[] = []
  const setService: Router['setService'] = async (_, all) => {
    const bad = all.find((route) => isStreamRoute(route))
    if (bad !== undefined && isStreamRoute(bad)) throw new PortUnavailable(`no ${bad.port}`, bad.port)
    routed = all
  }
  const refused = await routeWhatCan({ setService } as Router, serviceId, routes)
  assert.deepEqual(
    refused.map(({ port }) => port),
    [30_000, 30_001],
  )
  assert.deepEqual(places(routed), ['HTTP a.localhost'])
  const broken = { setService: () => Promise.reject(new Error('the router is not running')) } as unknown as Router
  await assert.rejects(routeWhatCan(broken, serviceId, routes), /not running/)
  const stubborn = { setService: () => Promise.reject(new PortUnavailable('no', 1)) } as unknown as Router
  await assert.rejects(routeWhatCan(stubborn, serviceId, routes), PortUnavailable)
})
