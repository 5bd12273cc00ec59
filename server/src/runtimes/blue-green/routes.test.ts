import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import { type AnyRoute, isStreamRoute, PortUnavailable, partyOf, type Router } from '../../router/router.ts'
import { areEqual, routeWhatCan } from '../../router/routes.ts'
import type { Exposure } from '../ingress.ts'
import type { PlacedInstance } from './instances.ts'
import { routesFor } from './routes.ts'

const serviceId = 'a'
const address = (port: number) => ({ host: '127.0.0.1', port })
const instance = standIn<PlacedInstance>({ endpoints: { 80: address(15_000), 53: address(15_001) } })
const exposure: Exposure = {
  hosts: [{ host: 'a.localhost', internalPort: 80, protocol: 'HTTP' }],
  ports: [
    { protocol: 'TCP', externalPort: 30_000, internalPort: 53 },
    { protocol: 'UDP', externalPort: 30_001, internalPort: 53 },
  ],
}

const places = (routes: readonly AnyRoute[]) =>
  routes.map((route) => `${route.protocol} ${isStreamRoute(route) ? route.port : route.host}`)

test('each name and port leads to the port it names on every instance; the ports of a stopped service are closed', () => {
  const routes = routesFor({ serviceId }, exposure, 'up', [instance])
  assert.deepEqual(places(routes), ['HTTP a.localhost', 'TCP 30000', 'UDP 30001'])
  const owned = routesFor({ serviceId, organizationId: 'b' }, exposure, 'up', [instance])
  assert.deepEqual(new Set(owned.map(partyOf)), new Set(['b']))
  assert.deepEqual(
    routes.map(({ targets }) => targets),
    [[address(15_000)], [address(15_001)], [address(15_001)]],
  )
  assert.deepEqual(places(routesFor({ serviceId }, exposure, 'stopped', [])), ['HTTP a.localhost'])
  assert.ok(areEqual(routes, routes.toReversed()))
  assert.ok(!areEqual(routes, routesFor({ serviceId }, exposure, 'up', [])))
  const other = standIn<PlacedInstance>({ endpoints: { 80: address(15_002) } })
  const both = routesFor({ serviceId }, exposure, 'up', [instance, other])
  assert.ok(areEqual(both, routesFor({ serviceId }, exposure, 'up', [other, instance])))
  assert.ok(!areEqual(both, routes))
})

test('unavailable ports are left out and returned; any other error is thrown', async () => {
  const routes = routesFor({ serviceId }, exposure, 'up', [instance])
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
  const broken = standIn<Router>({ setService: () => Promise.reject(new Error('the router is not running')) })
  await assert.rejects(routeWhatCan(broken, serviceId, routes), /not running/)
  const stubborn = standIn<Router>({ setService: () => Promise.reject(new PortUnavailable('no', 1)) })
  await assert.rejects(routeWhatCan(stubborn, serviceId, routes), PortUnavailable)
})
