/**
 * Requests to a sleeping service: they wait, wake it once, and do not affect other services, whatever happens to it.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import { callGrpc, echo, openClient, openStream, serveGrpc } from '../../../test/support/router/grpc.ts'
import {
  type Answer,
  ask,
  type Inside,
  openInside,
  readAnswer,
  route,
  sendRaw,
  serve,
  startProcess,
  until,
} from '../../../test/support/router/parts.ts'
import type { AnyRoute, Route, Target } from '../router.ts'
import { createParked, usualParkLimits } from './parked.ts'

const nap = (more: Partial<Route> = {}): Route => route([], { state: 'asleep', ...more })

/** The services for which the router has reported waiting requests. */
const wantedOf = ({ traffic }: Inside): string[] => {
  const told: string[] = []
  traffic.parked.listen((serviceId) => told.push(serviceId))
  return told
}

const handshake = 'GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'

const inFlight = ({ traffic }: Inside, count: number) => until(() => traffic.counts.inFlight === count)

test('requests, uploads, websockets and gRPC calls wait for a service that sleeps, and are served when it runs', async (t) => {
  const program = await serve(t, async (req, res) => {
    let body = ''
    for await (const chunk of req) body += chunk
    res.end(`${req.method} ${body.length}`)
  })
  program.server.on('upgrade', (_, socket) => {
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello')
  })
  const grpc = await serveGrpc(t, echo('v1'))
  const calls = { host: 'b.localhost', serviceId: 'b', protocol: 'GRPC' } as const
  const inside = await openInside(t, [nap(), nap(calls)])
  const { port, table } = inside
  const told = wantedOf(inside)
  const waiting = [
    ask(port),
    ask(port, { method: 'POST', body: 'x'.repeat(300_000) }),
    ask(port, { method: 'PUT', body: 'short', headers: { expect: '100-continue' } }),
  ]
  const tunnel = sendRaw(port, handshake)
  const called = callGrpc(openClient(t, port), '/x', 'hello', { ':authority': 'b.localhost' })
  await inFlight(inside, 4)
  await until(() => told.length >= 2)
  assert.deepEqual([...new Set(told)].sort(), ['a', 'b'])
  await table.change(() => [route([program.target]), route([grpc.target], calls)])
  const answers = await Promise.all(waiting)
  assert.deepEqual(
    answers.map(({ status, body }) => `${status} ${body}`),
    ['200 GET 0', '200 POST 300000', '200 PUT 5'],
  )
  assert.match(await tunnel, /^HTTP\/1.1 101 .*hello$/s)
  assert.deepEqual([(await called).body, (await called).trailers['grpc-status']], ['hello', '0'])
})

test('who may not ask wakes nothing: lists, passwords and the size of a body come first', async (t) => {
  const users = ['ada:$2b$04$/A3/4GvmJiE5suNNvkVKdOC4iSN0mNqIsyCXTxEvHNn.h1b1.g1KO']
  const cases: [Route['policy'], number, string, string][] = [
    [{ users }, 401, 'POST', 'x'],
    [{ deny: ['127.0.0.0/8'] }, 403, 'GET', ''],
    [{ bodyBytes: 3 }, 413, 'POST', 'four'],
  ]
  for (const [policy, status, method, body] of cases) {
    const inside = await openInside(t, [nap({ policy: policy! })])
    const told = wantedOf(inside)
    assert.equal((await ask(inside.port, { method, ...(body === '' ? {} : { body }) })).status, status)
    if (status !== 413) assert.match(await sendRaw(inside.port, handshake), new RegExp(`^HTTP/1.1 ${status} `))
    const call = openClient(t, inside.port)
    await inside.table.change(() => [nap({ policy: policy!, protocol: 'GRPC' })])
    if (status !== 413) assert.notEqual((await callGrpc(call, '/x', 'hello')).trailers['grpc-status'], '0')
    assert.deepEqual(told, [])
  }
})

test('places are few: past the limits there is none, and the largest crowd gives one to a service with fewer', async () => {
  const limits = { ...usualParkLimits, perService: 3, total: 4, bytes: 100 }
  const parked = createParked(assert.fail, limits)
  const said: string[] = []
  const take = (serviceId: string, name: string, bytes = 1) =>
    parked.take(serviceId, bytes, {
      resume: () => said.push(`${name} goes on`),
      refuse: (page) => said.push(`${name} ${page}`),
    })
  assert.ok(take('a', 'a1', 101) === null && take('a', 'a1'))
  const leaving = take('a', 'a2')!
  assert.ok(take('a', 'a3') !== null && take('a', 'a4') === null)
  assert.ok(take('b', 'b1') !== null && take('b', 'b2') !== null)
  await until(() => said.length === 1)
  assert.deepEqual(said, ['a3 crowded'])
  assert.equal(take('b', 'b3'), null, 'it would have more than who gives')
  leaving.leave()
  leaving.leave()
  assert.ok(take('b', 'b3') !== null)
  parked.settle([nap()])
  await until(() => said.length === 4)
  assert.deepEqual(said.slice(1), ['b1 goes on', 'b2 goes on', 'b3 goes on'])
  parked.end()
  await until(() => said.length === 5)
  assert.equal(said.at(-1), 'a1 waking')
})

test('an organization with many services that sleep leaves places to one with few', async () => {
  const parked = createParked(assert.fail, { ...usualParkLimits, total: 12 })
  const crowded: string[] = []
  const take = (serviceId: string, party: string): boolean =>
    parked.take(serviceId, 1, { resume: assert.fail, refuse: () => crowded.push(party) }, party) !== null
  for (let service = 0; service < 12; service += 1) assert.ok(take(`b${service}`, 'b'))
  for (let count = 0; count < 6; count += 1) assert.ok(take('a', 'a'))
  assert.ok(!take('a', 'a'), 'it has as much as the other one')
  await until(() => crowded.length === 6)
  assert.deepEqual(new Set(crowded), new Set(['b']))
  parked.end()
  await until(() => crowded.length === 18)
})

test('what waits never takes more memory than its limit, however small those are who make room', async () => {
  const parked = createParked(assert.fail, { ...usualParkLimits, bytes: 100 })
  const crowded: string[] = []
  let held = 0
  const take = (serviceId: string, bytes: number): boolean => {
    const place = parked.take(serviceId, bytes, {
      resume: assert.fail,
      refuse(page) {
        held -= bytes
        crowded.push(`${serviceId} ${page}`)
      },
    })
    if (place !== null) held += bytes
    return place !== null
  }
  for (let count = 0; count < 30; count += 1) assert.ok(take('a', 1))
  for (let count = 0; count < 6; count += 1) assert.ok(take('b', 10))
  assert.ok(!take('b', 60), 'it has the most already')
  assert.ok(take('c', 20))
  await until(() => crowded.length === 1)
  assert.deepEqual([held, crowded], [100, ['b crowded']])
})

test('a client that leaves frees the place, and one that waits too long may retry', async (t) => {
  const inside = await openInside(t, [nap(), nap({ host: 'b.localhost', serviceId: 'b', protocol: 'GRPC' })])
  const { port, traffic } = inside
  const { take } = traffic.parked
  const open = new Set<object>()
  traffic.parked.take = (...args) => {
    const place = take(...args)
    const id = {}
    open.add(id)
    const leave = (): void => {
      open.delete(id)
      place?.leave()
    }
    return { leave }
  }
  const plain = request({ host: '127.0.0.1', port, agent: false, headers: { host: 'a.localhost' } })
  plain.on('error', () => {}).end()
  const stream = openStream(openClient(t, port), '/x', { ':authority': 'b.localhost' })
  const [half, broken] = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')]
  for (const socket of [half, broken]) socket.write(handshake)
  await until(() => open.size === 4)
  plain.destroy()
  stream.close()
  half.end()
  broken.resetAndDestroy()
  await until(() => open.size === 0)
  const late = await openInside(t, [nap()], { parked: { longestMs: 100 } })
  const answer = await ask(late.port)
  assert.deepEqual([answer.status, answer.headers['retry-after']], [503, '5'])
  assert.match(await sendRaw(late.port, handshake), /^HTTP\/1.1 503 .*retry-after: 5/is)
})

/** Each on a connection of its own. */
const crowd = (port: number, count: number, host = 'a.localhost'): Promise<Answer>[] => {
  const agent = new Agent({ maxSockets: Number.POSITIVE_INFINITY })
  return Array.from({ length: count }, async () => {
    const out = request({ host: '127.0.0.1', port, agent, headers: { host } })
    out.end()
    const [answer] = await once(out, 'response')
    return readAnswer(answer)
  })
}

test('a thousand requests that wait are all served by a program that has only begun', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const inside = await openInside(t, [nap()])
  const told = wantedOf(inside)
  const answers = crowd(inside.port, 1000)
  await inFlight(inside, 1000)
  assert.deepEqual([...new Set(told)], ['a'])
  await inside.table.change(() => [route([target])])
  const statuses = (await Promise.all(answers)).map(({ status, body }) => `${status} ${body}`)
  assert.deepEqual([...new Set(statuses)], ['200 ok'])
})

test('requests that wait for what is stopped, deleted or cannot start are answered so, and no other route notices', async (t) => {
  const headers = { 'x-frame-options': 'DENY', 'keep-alive': 'timeout=1' }
  const policy = { headers }
  const { target } = await serve(t, (_req, res) => res.end('sibling'))
  const sibling = route([target], { host: 's.localhost', serviceId: 's' })
  const called = { host: 'g.localhost', serviceId: 'g', protocol: 'GRPC' } as const
  const ends: [AnyRoute[], number][] = [
    [[route([], { state: 'stopped', policy }), route([], { ...called, state: 'stopped', policy })], 503],
    [[route([], { state: 'failed', policy }), route([], { ...called, state: 'failed', policy })], 503],
    [[], 404],
  ]
  for (const [end, status] of ends) {
    const inside = await openInside(t, [nap(), nap(called), sibling])
    const { port, table } = inside
    const answers = crowd(port, 1300)
    const session = openClient(t, port)
    const calls = Array.from({ length: 100 }, () => callGrpc(session, '/x', 'hi', { ':authority': 'g.localhost' }))
    await inFlight(inside, 1400)
    // A changed setting wakes nothing and ends no wait.
    await table.change(() => [nap({ policy }), nap({ ...called, policy }), sibling])
    let isOver = false
    const others: number[] = []
    const asking = (async () => {
      while (!isOver) others.push((await ask(port, { host: 's.localhost' })).status)
    })()
    await table.change(() => [...end, sibling])
    const statuses = (await Promise.all(answers)).map((answer) => answer.status)
    assert.deepEqual([...new Set(statuses)], [status])
    for (const call of await Promise.all(calls)) assert.match(String(call.trailers['grpc-status']), /^(12|14)$/)
    await until(() => others.length > 0)
    isOver = true
    await asking
    assert.deepEqual([...new Set(others)], [200])
    assert.deepEqual([inside.traffic.counts.internalErrors, inside.traffic.counts.inFlight], [0, 0])
  }
})

test('a router process notifies listeners, also later ones, of wanted services; after a kill it parks the next request', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('awake'))
  const { router, port } = await startProcess(t, { port: 0 })
  await router.setService('a', [nap()])
  const early = ask(port).catch((error: Error) => error)
  const told: string[] = []
  router.wanted((serviceId) => told.push(serviceId))
  await until(() => told.includes('a'))
  process.kill((await router.health())!.pid, 'SIGKILL')
  assert.ok((await early) instanceof Error)
  await until(async () => (await router.health()) !== null)
  told.length = 0
  const { port: now } = (await router.health())!
  const late = ask(now)
  await until(() => told.includes('a'))
  await router.setService('a', [route([target as Target])])
  assert.equal((await late).body, 'awake')
  assert.deepEqual(await router.idle(['a', 'b'], 0), ['a'])
  assert.deepEqual(await router.idle(['a'], 60_000), [])
})
