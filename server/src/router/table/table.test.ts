import assert from 'node:assert/strict'
import { test } from 'node:test'
import { route, stream } from '../../../test/support/router/parts.ts'
import type { AnyRoute } from '../router.ts'
import { createLiveTable, type HostEntry } from '../traffic/live-table.ts'
import { createUpstreams, markSuspect, pick } from '../traffic/upstreams.ts'
import { buildTable, checkRoutes, normalizeHost, replaceService } from './table.ts'

const nameOf = (route: AnyRoute): string => ('host' in route ? route.host : `${route.protocol} ${route.port}`)
const noPorts = { open: async () => {}, retain() {} }
const target = { host: '127.0.0.1', port: 3000 }

test('a host is looked up without case, port and final dot', () => {
  const cases: [string, string][] = [
    ['a.localhost', 'a.localhost'],
    ['A.LocalHost:8000', 'a.localhost'],
    ['a.localhost.', 'a.localhost'],
    ['a.localhost.:80', 'a.localhost'],
    ['[::1]:8000', '[::1]'],
    ['127.0.0.1:8000', '127.0.0.1'],
    ['', ''],
  ]
  for (const [header, host] of cases) assert.equal(normalizeHost(header), host, header)
})

test('routes that cannot be served are refused by the host they name', () => {
  const refused: [unknown, RegExp][] = [
    [{}, /array/],
    [[route([target], { host: 'A.localhost' })], /"A.localhost".*lower-case/],
    [[route([target], { host: 'a b' })], /host name/],
    [[route([target], { host: '' })], /host name/],
    [[route([target], { protocol: 'TCP' as 'HTTP' })], /"a.localhost".*port number/],
    [[stream(0, [target])], /route 0: .*port number/],
    [[stream(65_536, [target])], /port number/],
    [[{ ...stream(5432, [target]), host: 'a.localhost' }], /port number/],
    [[route([target], { protocol: 'SMTP' as 'HTTP' })], /protocol must be/],
    [[route([target], { serviceId: '' })], /service/],
    [[route([target], { state: 'odd' as 'up' })], /state/],
    [[route([{ host: '127.0.0.1', port: 0 }])], /target/],
    [[route([{ host: 'a/b', port: 80 }])], /target/],
    [[null], /host name/],
  ]
  for (const [value, why] of refused) assert.throws(() => checkRoutes(value), why)
  const good = [route([target]), route([target], { protocol: 'GRPC' }), stream(53, [target], { protocol: 'UDP' })]
  assert.deepEqual(checkRoutes(good), good)
})

test('replacing a service leaves the others; the later of two equal hosts serves', () => {
  const b = route([target], { host: 'b.localhost', serviceId: 'b' })
  const routes = replaceService([route([target]), b], 'a', [route([target], { host: 'new.localhost' })])
  assert.deepEqual(routes.map(nameOf), ['b.localhost', 'new.localhost'])
  assert.deepEqual(replaceService(routes, 'a', []), [b])
  assert.throws(() => replaceService(routes, 'a', [b]), /another service/)
  const moved = route([target], { host: 'b.localhost', serviceId: 'c' })
  assert.deepEqual(buildTable([b, moved]).byHost.get('b.localhost'), [moved])
})

test('ports and hosts are looked up by protocol', () => {
  const [tcp, udp] = [stream(53, [target]), stream(53, [], { protocol: 'UDP' })]
  const table = buildTable([tcp, udp, route([target])])
  assert.equal(table.byPort.TCP.get(53), tcp)
  assert.deepEqual(table.byPort.UDP.get(53)?.targets, [])
  assert.equal(table.byHost.size, 1)
})

test('the least busy target is chosen, in turn among equals, a suspect one last', () => {
  const upstreams = createUpstreams()
  const [one, two, three] = [1, 2, 3].map((port) => upstreams.of({ host: '127.0.0.1', port }))
  const choice = { upstreams: [one!, two!, three!], next: 0 }
  assert.deepEqual(
    [0, 1, 2, 3].map(() => pick(choice, null)),
    [one, two, three, one],
  )
  one!.inFlight = 1
  three!.inFlight = 1
  assert.deepEqual(
    [0, 1, 2].map(() => pick(choice, null)),
    [two, two, two],
  )
  markSuspect(two!)
  assert.notEqual(pick(choice, null), two)
  assert.equal(pick({ upstreams: [two!], next: 0 }, null), two)
  assert.equal(pick(choice, new Set([one!, two!, three!])), undefined)
})

test('a change that cannot be saved changes nothing; those beside it count', async () => {
  let isBroken = false
  const saved: string[][] = []
  const table = createLiveTable(
    [route([target])],
    createUpstreams(),
    async (routes) => {
      if (isBroken) throw new Error('disk full')
      saved.push(routes.map(nameOf))
    },
    noPorts,
  )
  isBroken = true
  await assert.rejects(
    table.change(() => []),
    /disk full/,
  )
  assert.equal((table.find('a.localhost', '/') as HostEntry).route.serviceId, 'a')
  isBroken = false
  const b = route([target], { host: 'b.localhost', serviceId: 'b' })
  const refused = assert.rejects(
    table.change(() => {
      throw new Error('no')
    }),
  )
  await Promise.all([refused, table.change((routes) => [...routes, b]), table.change((routes) => routes.slice(1))])
  assert.deepEqual(saved.at(-1), ['b.localhost'])
  assert.equal(table.find('a.localhost', '/'), undefined)
})
