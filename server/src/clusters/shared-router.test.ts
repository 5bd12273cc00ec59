import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { testDatabase } from '../../test/support/database.ts'
import { patience, until } from '../../test/support/until.ts'
import { newId } from '../lib/ids.ts'
import { createLog } from '../lib/log.ts'
import { systemClock } from '../lib/time/clock.ts'
import { type AnyRoute, isStreamRoute, PortUnavailable, type Route, type Router } from '../router/router.ts'
import { createWorkRegistry } from '../work/registry.ts'
import { createServers } from './servers.ts'
import { createSharedRouter, type SharedRouter } from './shared-router.ts'

const database = await testDatabase()
const open = new Set<SharedRouter>()
after(() => Promise.all([...open].map((router) => router.leave())))

const addService = async (): Promise<string> => {
  const id = newId()
  await database.query(
    `insert into node (id, organization_id, kind, parent_id, name_scope, name) values ($1, $1, 'organization', null, 'organization', $1::uuid::text)`,
    [id],
  )
  return id
}

const route = (serviceId: string, port: number): Route => ({
  host: `${serviceId}.localhost`,
  serviceId,
  protocol: 'HTTP',
  state: 'up',
  targets: [{ host: '10.0.0.1', port }],
})

/** A server's own router, in memory; it refuses ports that are taken. */
const createOwn = (busy: number[] = []) => {
  const table = new Map<string, AnyRoute[]>()
  const drained: number[] = []
  const used = new Set<string>()
  const own: Router = {
    start: async () => {},
    async setService(serviceId, routes) {
      const refused = routes.find((each) => isStreamRoute(each) && busy.includes(each.port))
      if (refused !== undefined && isStreamRoute(refused)) throw new PortUnavailable('it is taken', refused.port)
      table.set(serviceId, routes)
    },
    routes: async () => [...table.values()].flat(),
    async drain(targets) {
      drained.push(targets.length)
      return { remaining: 1 }
    },
    setTls: async () => {},
    tls: async () => ({}),
    wanted: () => {},
    idle: async (serviceIds) => serviceIds.filter((id) => !used.has(id)),
    url: (host) => host,
    address: String,
    stop: async () => {},
  }
  return { own, table, drained, used }
}

const startServer = async (busy: number[] = []) => {
  const its = createOwn(busy)
  const parts = { database, clock: systemClock, log: createLog('silent'), work: createWorkRegistry(systemClock) }
  const router = createSharedRouter({ ...parts, own: its.own, servers: createServers(parts) })
  const follow = async (): Promise<void> => {
    await router.follow()
    open.add(router)
  }
  const leave = async (): Promise<void> => {
    open.delete(router)
    await router.leave()
  }
  return { ...its, router, follow, leave }
}

const portOf = (table: Map<string, AnyRoute[]>, id: string) => table.get(id)?.[0]?.targets[0]?.port

test('when a route is set, the routers of all servers have it; a drain is of all of them', async () => {
  const [first, second] = [await startServer(), await startServer([5432])]
  await first.follow()
  const [web, gone] = [await addService(), await addService()]
  // A router may know services that were deleted meanwhile, and some that were routed before routers were shared.
  second.table.set(newId(), [route(gone, 1)])
  const before = await addService()
  second.table.set(before, [route(before, 7)])
  await first.router.setService(gone, [route(gone, 1)])
  await database.query('delete from node where id = $1', [gone])
  await first.router.setService(web, [route(web, 1)])
  await second.follow()
  assert.deepEqual(
    [portOf(second.table, web), portOf(second.table, gone), portOf(second.table, before)],
    [1, undefined, 7],
  )
  for (const [port, from, to] of [
    [2, first, second],
    [3, second, first],
  ] as const) {
    await from.router.setService(web, [route(web, port)])
    assert.deepEqual([portOf(from.table, web), portOf(to.table, web)], [port, port])
  }
  assert.deepEqual(await first.router.routes(), [route(web, 3)])
  // A port that is taken on another router is not an error here; one on our own is.
  const stream: AnyRoute = { ...route(web, 4), host: undefined, port: 5432, protocol: 'TCP' } as never
  await first.router.setService(web, [route(web, 4), stream])
  assert.deepEqual([first.table.get(web)!.length, second.table.get(web)!.length], [2, 1])
  await assert.rejects(second.router.setService(web, [stream]), PortUnavailable)
  const targets = Array.from({ length: 250 }, (_, port) => ({ host: '10.0.0.1', port }))
  const signal = AbortSignal.timeout(10_000)
  assert.deepEqual(await first.router.drain(targets, 1000, signal), { remaining: 4 })
  assert.deepEqual([first.drained, second.drained.sort((a, b) => b - a)], [[250], [100, 100, 50]])
  await first.router.setService(web, [])
  assert.deepEqual(second.table.get(web), [])
})

test('a server that has stopped is not waited for, one that is gone for its time only; what it missed it has when it is back', async () => {
  const [first, second] = [await startServer(), await startServer()]
  await first.follow()
  await second.follow()
  const web = await addService()
  await first.router.setService(web, [route(web, 1)])
  await second.leave()
  const beganMs = performance.now()
  await first.router.setService(web, [route(web, 2)])
  assert.ok(performance.now() - beganMs < Math.min(2000 * patience, 4000))
  assert.equal(portOf(second.table, web), 1)
  await database.query(`insert into server (id, lease_until) values ('dead', clock_timestamp() + interval '15 s')`)
  await first.router.setService(web, [route(web, 3)])
  await database.query(`delete from server where id = 'dead'`)
  await second.follow()
  await until(() => portOf(second.table, web) === 3, { what: 'what it missed' })
})
