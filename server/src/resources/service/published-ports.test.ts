import assert from 'node:assert/strict'
import { test } from 'node:test'
import { databaseBody } from '../../../test/cases/database.ts'
import { applicationBody, type Json, newApplication, newPlace, startApi } from '../../../test/support/api.ts'
import { loadEffectiveVariables } from '../../../test/support/effective-variables.ts'
import { until } from '../../../test/support/until.ts'
import { usualLimits } from '../../limits/limits.ts'
import { isStreamRoute, PortUnavailable, type StreamRoute } from '../../router/router.ts'

const portRange = { first: 30_000, last: 30_199 }
const extraPorts = [
  { first: 29_000, last: 29_999 },
  { first: 25, last: 25 },
]
const api = await startApi({ settings: { portRange, extraPorts, databasePort: 29_432 } })
const { call } = api

const port = (internal_port: number, protocol: string, more: object = {}) => ({
  internal_port,
  protocol,
  publicly_accessible: true,
  ...more,
})

const send = async (method: string, path: string, body: unknown, status: number): Promise<Json> => {
  const answer = await call(method, path, body)
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  return answer.body
}

const application = async (ports: object[], environmentId?: string): Promise<Json> =>
  newApplication(api, environmentId ?? (await newPlace(api)).environmentId, { ports })

const outside = (service: Json): number[] => service.ports.map((each: Json) => each.external_port)

const held = (id: string): Promise<{ protocol: string; port: number }[]> =>
  api.database.query('select protocol, port from outside_port where service_id = $1 order by protocol, port', [id])

const streams = async (id: string): Promise<StreamRoute[]> =>
  (await api.router.routes()).filter((route) => isStreamRoute(route)).filter((route) => route.serviceId === id)

const settle = async (path: string, action: string, state: string): Promise<void> => {
  await send('POST', `${path}/${action}`, {}, 202)
  const headers = { 'x-state-vocabulary': 'deployment' }
  const now = async () => (await call('GET', `${path}/status`, undefined, headers)).body.state
  await until(async () => (await now()) === state, { what: `${state} of ${path}` })
}

test('each public TCP and UDP port gets a free port of the range, of its own, also when many ask at once', async () => {
  const { environmentId } = await newPlace(api)
  const ports = [port(80, 'HTTP'), port(53, 'TCP'), port(53, 'UDP'), { internal_port: 6379, protocol: 'TCP' }]
  const made = await Promise.all(Array.from({ length: 20 }, () => application(ports, environmentId)))
  const drawn = made.flatMap((one) => {
    const [web, tcp, udp, inner] = outside(one)
    assert.deepEqual([web, inner], [443, 6379])
    return [tcp!, udp!]
  })
  assert.equal(new Set(drawn).size, 40)
  assert.ok(drawn.every((each) => each >= portRange.first && each <= portRange.last))
  const [first] = made
  assert.deepEqual((await call('GET', `/application/${first.id}`)).body.ports, first.ports)
  for (const { id } of made) await api.database.query('delete from node where id = $1', [id])
})

test('an edit keeps the ports that it leaves out or repeats, and a port that another has is a 409 with its field', async () => {
  const one = await application([port(7000, 'TCP'), port(7001, 'TCP', { external_port: 29_001 })])
  const [drawn] = outside(one)
  const path = `/application/${one.id}`
  for (const ports of [one.ports, [port(7000, 'TCP'), port(7001, 'TCP')]])
    assert.deepEqual(outside(await send('PUT', path, { ports }, 200)), [drawn, 29_001])
  assert.deepEqual(outside(await send('PUT', path, { description: 'another' }, 200)), [drawn, 29_001])

  await settle(path, 'deploy', 'DEPLOYED')
  const other = await application([port(1, 'HTTP'), port(7000, 'UDP', { external_port: drawn })])
  assert.equal(outside(other)[1], drawn, 'UDP ports are others')
  const body = applicationBody('late', { ports: [port(1, 'HTTP'), port(2, 'TCP', { external_port: 29_001 })] })
  const refusals = [
    await call('POST', `/environment/${one.environment.id}/application`, body),
    await call('PUT', `/application/${other.id}`, { ports: body.ports }),
  ]
  for (const { status, body: error } of refusals) {
    assert.deepEqual([status, error.code, error.details[0].field], [409, 'port_taken', '/ports/1/external_port'])
    assert.match(error.message, /ports\.1\.external_port: is already used by another service/)
  }
  assert.deepEqual(await held(other.id), [])
})

test('ports of the server itself, and one port twice, are refused with the field', async () => {
  const { environmentId } = await newPlace(api)
  const { port: own, routerPort } = api.parts.settings
  const cases: [object[], string][] = [
    [[port(1, 'TCP', { external_port: own })], '/ports/0/external_port'],
    [[port(1, 'TCP', { external_port: 29_432 })], '/ports/0/external_port'],
    [
      [port(1, 'UDP', { external_port: 29_001 }), port(2, 'TCP', { external_port: routerPort })],
      '/ports/1/external_port',
    ],
    [[port(1, 'TCP', { external_port: 29_500 }), port(2, 'TCP', { external_port: 29_500 })], '/ports/1/external_port'],
    [[port(1, 'TCP', { external_port: 65_536 })], '/ports/0/external_port'],
  ]
  for (const [ports, field] of cases) {
    const { status, body } = await call(
      'POST',
      `/environment/${environmentId}/application`,
      applicationBody('wrong', { ports }),
    )
    assert.deepEqual([status, body.details[0].field], [400, field], JSON.stringify(ports))
  }
})

test('a port that the operator does not list is refused with the limit and the setting; one that is kept from before, at the next edit', async () => {
  const { environmentId } = await newPlace(api)
  const create = (number: number, protocol = 'TCP') =>
    call(
      'POST',
      `/environment/${environmentId}/application`,
      applicationBody(`at-${protocol}-${number}`, { ports: [port(1, protocol, { external_port: number })] }),
    )
  for (const number of [22, 599, 1024, 5432, 28_081, 30_200, 65_535])
    for (const protocol of ['TCP', 'UDP']) {
      const { status, body } = await create(number, protocol)
      assert.deepEqual([status, body.details?.[0].field], [400, '/ports/0/external_port'], String(number))
      assert.match(body.message, /SLIPWAY_PORT_RANGE \(30000-30199\) or of SLIPWAY_EXTRA_PORTS \(29000-29999, 25\)/)
    }
  const listed = await create(25)
  assert.equal(listed.status, 201)
  const { id } = listed.body
  const path = `/application/${id}`
  await settle(path, 'deploy', 'DEPLOYED')
  // As created when any port could be named.
  const spec = `replace(spec::text, '"external_port": 25', '"external_port": 599')::jsonb`
  await api.database.query(`update node set spec = ${spec} where id = $1`, [id])
  await api.database.query('update outside_port set port = 599 where service_id = $1', [id])
  await settle(path, 'redeploy', 'DEPLOYED')
  assert.deepEqual(
    (await streams(id)).map((each) => each.port),
    [599],
  )
  const kept = await call('PUT', path, { description: 'another' })
  assert.deepEqual([kept.status, kept.body.details?.[0].field], [400, '/ports/0/external_port'])
  await send('PUT', path, { ports: [port(1, 'TCP', { external_port: 29_700 })] }, 200)
})

test('a clone has published ports of its own, and those of a deleted service are free again', async () => {
  const ports = [port(7000, 'TCP', { external_port: 29_100 }), port(7000, 'UDP')]
  const source = await application(ports)
  const wish = { name: 'copy', environment_id: source.environment.id }
  const copy = await send('POST', `/application/${source.id}/clone`, wish, 202)
  assert.equal(new Set([...outside(source), ...outside(copy)]).size, 4)
  const whole = await send('POST', `/environment/${source.environment.id}/clone`, { name: 'whole' }, 202)
  const copies = (await call('GET', `/environment/${whole.id}/application`)).body.results
  assert.equal(new Set([source, copy, ...copies].flatMap(outside)).size, 8)

  await settle(`/application/${source.id}`, 'deploy', 'DEPLOYED')
  assert.equal((await call('PUT', `/application/${copy.id}`, { ports })).status, 409)
  await send('DELETE', `/application/${source.id}`, undefined, 204)
  await until(async () => (await held(source.id)).length === 0, { what: 'the end' })
  await send('PUT', `/application/${copy.id}`, { ports }, 200)
})

test('a port opens with a deployment and stays with its service until another version runs; a stop closes it', async () => {
  const one = await application([port(7000, 'TCP')])
  const [first] = outside(one)
  const path = `/application/${one.id}`
  assert.deepEqual([await streams(one.id), await held(one.id)], [[], []])
  await settle(path, 'deploy', 'DEPLOYED')
  const [route] = await streams(one.id)
  assert.deepEqual([route!.port, route!.protocol, route!.state, route!.targets.length], [first, 'TCP', 'up', 1])

  await send('PUT', path, { ports: [port(7000, 'TCP', { external_port: 29_200 })] }, 200)
  assert.deepEqual(
    (await held(one.id)).map((each) => each.port),
    [first],
  )
  await settle(path, 'redeploy', 'DEPLOYED')
  assert.deepEqual(
    (await streams(one.id)).map((each) => each.port),
    [29_200],
  )
  assert.deepEqual(await held(one.id), [{ protocol: 'TCP', port: 29_200 }])

  await settle(path, 'stop', 'STOPPED')
  assert.deepEqual(await streams(one.id), [])
  assert.deepEqual(await held(one.id), [{ protocol: 'TCP', port: 29_200 }])
  await settle(path, 'deploy', 'DEPLOYED')
  assert.equal((await streams(one.id)).length, 1)
})

test('a port that the router cannot open fails the deployment with a sentence, and what ran before is routed to', async () => {
  const one = await application([port(80, 'HTTP')])
  const path = `/application/${one.id}`
  await settle(path, 'deploy', 'DEPLOYED')
  const before = (await api.router.routes()).filter((route) => route.serviceId === one.id)
  const { setService } = api.router
  api.router.setService = async (serviceId, routes) => {
    if (routes.some((route) => isStreamRoute(route) && route.port === 29_300))
      throw new PortUnavailable('the router cannot open the TCP port 29300: it is in use on this machine', 29_300)
    return setService(serviceId, routes)
  }
  await send('PUT', path, { ports: [port(80, 'HTTP'), port(7000, 'TCP', { external_port: 29_300 })] }, 200)
  await settle(path, 'redeploy', 'DEPLOYMENT_ERROR')
  const log = JSON.stringify((await call('GET', `/environment/${one.environment.id}/logs`)).body)
  assert.match(log, /The router cannot open the TCP port 29300: it is in use on this machine\./)
  await until(
    async () => {
      const now = (await api.router.routes()).filter((route) => route.serviceId === one.id)
      return JSON.stringify(now) === JSON.stringify(before)
    },
    { what: 'the routes as they were' },
  )
  api.router.setService = setService
  await settle(path, 'redeploy', 'DEPLOYED')
  assert.equal((await streams(one.id)).length, 1)
})

test('services get the published ports of the others of their environment', async () => {
  const one = await application([port(7000, 'TCP'), port(53, 'UDP')])
  const { env } = await loadEffectiveVariables(api.database, api.parts.sealer, one.id)
  const [tcp, udp] = outside(one)
  for (const brand of ['SLIPWAY', 'QOVERY']) {
    const told = (name: string) => env[`${brand}_APPLICATION_Z${one.id.slice(0, 8).toUpperCase()}_${name}`]
    assert.deepEqual([told('HOST_EXTERNAL'), told('PORT_EXTERNAL')], ['localhost', String(tcp)])
    assert.deepEqual([told('PORT_7000_TCP_EXTERNAL'), told('PORT_53_UDP_EXTERNAL')], [String(tcp), String(udp)])
  }
  const links = (await call('GET', `/application/${one.id}/link`)).body.results
  assert.deepEqual(
    links.map((link: Json) => [link.url, link.internal_port, link.external_port, link.is_default]),
    [
      [`udp://localhost:${udp}`, 53, udp, false],
      [`tcp://localhost:${tcp}`, 7000, tcp, false],
    ],
  )
  const all = (await call('GET', `/environment/${one.environment.id}/link`)).body.results
  assert.deepEqual(all, links)
})

test('a public database is found at this machine, also by the other services on it; the change counts with a deployment', async () => {
  const { environmentId } = await newPlace(api)
  const made = await send('POST', `/environment/${environmentId}/database`, databaseBody('data'), 201)
  const path = `/database/${made.id}`
  await settle(path, 'deploy', 'DEPLOYED')
  assert.deepEqual(await streams(made.id), [])
  const open = await send('PUT', path, { accessibility: 'PUBLIC' }, 200)
  assert.deepEqual([open.accessibility, open.host], ['PUBLIC', 'localhost'])
  assert.ok(open.port >= portRange.first && open.port <= portRange.last)
  assert.deepEqual((await call('GET', path)).body, open)
  assert.equal((await send('PUT', path, { memory: 300 }, 200)).port, open.port)
  assert.deepEqual(await streams(made.id), [])
  await settle(path, 'redeploy', 'DEPLOYED')
  assert.deepEqual(
    (await streams(made.id)).map((each) => [each.port, each.protocol]),
    [[open.port, 'TCP']],
  )

  const { host, port: outer, password } = (await call('GET', `${path}/masterCredentials`)).body
  assert.deepEqual([host, outer], ['localhost', open.port])
  const neighbour = await application([], environmentId)
  const { env, secretValues } = await loadEffectiveVariables(api.database, api.parts.sealer, neighbour.id)
  const told = (name: string) => env[`SLIPWAY_POSTGRESQL_Z${made.id.slice(0, 8).toUpperCase()}_${name}`]
  const inner = `service-${made.id}`
  assert.deepEqual([told('HOST'), told('HOST_EXTERNAL'), told('HOST_INTERNAL')], ['localhost', 'localhost', inner])
  assert.deepEqual([told('PORT'), told('PORT_EXTERNAL')], ['5432', String(open.port)])
  assert.equal(told('DATABASE_URL'), `postgresql://postgres:${password}@localhost:${open.port}/postgres`)
  assert.equal(told('DATABASE_URL_INTERNAL'), `postgresql://postgres:${password}@${inner}:5432/postgres`)
  assert.ok(secretValues.includes(told('DATABASE_URL')!))

  const copy = await send('POST', `${path}/clone`, { name: 'copy', environment_id: environmentId }, 202)
  assert.notEqual(copy.port, open.port)
  const closed = await send('PUT', path, { accessibility: 'PRIVATE' }, 200)
  assert.deepEqual([closed.host, closed.port], [inner, 5432])
  await settle(path, 'redeploy', 'DEPLOYED')
  assert.deepEqual([await streams(made.id), await held(made.id)], [[], []])
  assert.doesNotMatch(JSON.stringify(closed), /outside|"ports"/)
})

test('GRPC ports are routed as such, also behind a custom domain', async () => {
  const one = await application([port(9090, 'GRPC'), port(80, 'HTTP')])
  const path = `/application/${one.id}`
  await send('POST', `${path}/customDomain`, { domain: 'grpc.shop.example', generate_certificate: false }, 201)
  await settle(path, 'deploy', 'DEPLOYED')
  const routes = (await api.router.routes()).filter((route) => route.serviceId === one.id)
  const spoken = routes.map((route) => [isStreamRoute(route) ? '' : route.host.split('.')[0], route.protocol])
  assert.ok(spoken.some(([host, protocol]) => host === 'grpc' && protocol === 'GRPC'))
  assert.ok(spoken.some(([host, protocol]) => host!.startsWith('p80-') && protocol === 'HTTP'))
})

test('a range that is all taken by what is deployed says so', async () => {
  const settings = { portRange: { first: 30_000, last: 30_001 }, extraPorts: [{ first: 30_002, last: 30_002 }] }
  const full = await startApi({ settings })
  const { environmentId } = await newPlace(full)
  const create = (name: string, ports: object[]) =>
    full.call('POST', `/environment/${environmentId}/application`, applicationBody(name, { ports }))
  const one = await create('one', [port(1, 'TCP'), port(2, 'TCP')])
  assert.equal(one.status, 201)
  // Nothing is deployed: the same numbers can be named again.
  const early = await create('early', [port(1, 'TCP')])
  assert.equal(early.status, 201)
  assert.equal((await full.call('POST', `/application/${one.body.id}/deploy`, {})).status, 202)
  const { status, body } = await create('two', [port(1, 'TCP')])
  assert.deepEqual([status, body.code], [409, 'no_free_port'])
  assert.match(body.message, /30000 to 30001/)
  const late = await full.call('POST', `/application/${early.body.id}/deploy`, {})
  assert.deepEqual([late.status, late.body.code], [409, 'port_taken'])
  assert.match(late.body.message, /30000 to 30001/)
  assert.equal((await create('three', [port(1, 'TCP', { external_port: 30_002 })])).status, 201)
})

test('a port is claimed by the first deployment that needs it: a chosen one is refused then, a drawn one replaced', async () => {
  const chosen = await application([port(1, 'TCP', { external_port: 29_600 })])
  const rival = await application([port(1, 'TCP', { external_port: 29_600 })])
  const drawn = await application([port(1, 'TCP')])
  const [number] = outside(drawn)
  const thief = await application([port(1, 'TCP', { external_port: number })])
  for (const { id } of [chosen, thief]) await settle(`/application/${id}`, 'deploy', 'DEPLOYED')

  const plan = async (id: string) => {
    const { body } = await call('POST', `/application/${id}/deploy?dry_run=true`, {})
    return body.stages[0].services[0]
  }
  const refused = await plan(rival.id)
  assert.deepEqual(
    [refused.effect, refused.reason.includes('The TCP port 29600 is used by another')],
    ['REFUSED', true],
  )
  const answer = await call('POST', `/application/${rival.id}/deploy`, {})
  assert.deepEqual([answer.status, answer.body.code, answer.body.message], [409, 'port_taken', refused.reason])

  assert.equal((await plan(drawn.id)).effect, 'ROLL_OUT')
  await settle(`/application/${drawn.id}`, 'deploy', 'DEPLOYED')
  const [now] = outside((await call('GET', `/application/${drawn.id}`)).body)
  assert.notEqual(now, number)
  assert.deepEqual(
    (await streams(drawn.id)).map((each) => each.port),
    [now],
  )
  // Values that a client only read are not requests: sent back, the port stays a chosen one.
  const { ports } = (await call('GET', `/application/${drawn.id}`)).body
  assert.deepEqual(outside(await send('PUT', `/application/${drawn.id}`, { ports }, 200)), [now])
})

test('an organization has at most as many ports as its limit, which it can read; ports that are only named do not count', async () => {
  const limited = await startApi({ settings: { portRange, limits: { ...usualLimits, ports: 2 } } })
  const { environmentId } = await newPlace(limited)
  const create = async (ports: object[]): Promise<Json> => newApplication(limited, environmentId, { ports })
  const hoard = await create(Array.from({ length: 50 }, (_, index) => port(index + 1, 'TCP')))
  const two = await create([port(1, 'TCP'), port(1, 'UDP')])
  const used = async () => {
    const { results } = (await limited.call('GET', `/organization/${limited.organizationId}/limits`)).body
    const { limit, used: count, setting } = results.find(({ name }: Json) => name === 'PORTS')
    return [limit, count, setting]
  }
  assert.deepEqual(await used(), [2, 0, 'SLIPWAY_LIMIT_PORTS'])
  assert.equal((await limited.call('POST', `/application/${two.id}/deploy`, {})).status, 202)
  assert.deepEqual(await used(), [2, 2, 'SLIPWAY_LIMIT_PORTS'])
  const plan = (await limited.call('POST', `/application/${hoard.id}/deploy?dry_run=true`, {})).body
  assert.equal(plan.stages[0].services[0].effect, 'REFUSED')
  const refused = await limited.call('POST', `/application/${hoard.id}/deploy`, {})
  assert.deepEqual([refused.status, refused.body.code], [409, 'limit_reached'])
  assert.match(refused.body.message, /SLIPWAY_LIMIT_PORTS/)
  assert.deepEqual(await used(), [2, 2, 'SLIPWAY_LIMIT_PORTS'])
  assert.equal((await limited.call('POST', `/application/${two.id}/redeploy`, {})).status, 202)
})
