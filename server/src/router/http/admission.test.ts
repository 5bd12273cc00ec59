/** An admission by some rules is not one by others: a request that is parked or repeated is checked again. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { callGrpc, echo, openClient, serveGrpc } from '../../../test/support/router/grpc.ts'
import { ask, freePort, type Inside, openInside, route, sendRaw, serve } from '../../../test/support/router/parts.ts'
import type { Policy } from '../policy.ts'
import type { AnyRoute, Route } from '../router.ts'

// A hash of `secret`: compared in a thread, so the request waits.
const bcrypted = 'ada:$2b$04$/A3/4GvmJiE5suNNvkVKdOC4iSN0mNqIsyCXTxEvHNn.h1b1.g1KO'
const authorization = `Basic ${Buffer.from('ada:secret').toString('base64')}`
const nobody: Policy = { deny: ['127.0.0.0/8'] }

/** Puts `next` in force right after the first lookup of the host, before anything else of its request happens. */
const changeAfterFirst = ({ traffic, table }: Inside, host: string, next: AnyRoute[]): void => {
  const { find } = traffic.table
  let isFirst = true
  traffic.table.find = (asked, path) => {
    const found = find(asked, path)
    if (isFirst && asked === host) void table.change(() => next)
    isFirst &&= asked !== host
    return found
  }
}

const upgrade = (port: number): Promise<string> =>
  sendRaw(
    port,
    `GET / HTTP/1.1\r\nHost: a.localhost\r\nAuthorization: ${authorization}\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n`,
  )

/** The answers to each kind of request when its rules change from `before` to rules that admit no client. */
const cases = (before: (live: Route) => Promise<Route>) => async (t: TestContext) => {
  let reached = 0
  const http = await serve(t, (_, res) => {
    reached++
    res.end()
  })
  http.server.on('upgrade', (_, socket) => {
    reached++
    socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n')
  })
  const grpc = await serveGrpc(t, (stream, headers) => {
    reached++
    echo('a')(stream, headers)
  })
  const open = async (live: Route) => {
    const inside = await openInside(t, [await before(live)])
    changeAfterFirst(inside, 'a.localhost', [{ ...live, policy: nobody }])
    return inside
  }
  const plain = await open(route([http.target]))
  assert.equal((await ask(plain.port, { headers: { authorization } })).status, 403)
  const tunnel = await open(route([http.target]))
  assert.match(await upgrade(tunnel.port), /^HTTP\/1.1 403 /)
  const streams = await open(route([grpc.target], { protocol: 'GRPC' }))
  const session = openClient(t, streams.port)
  const called = await callGrpc(session, '/x', 'hello', { ':authority': 'a.localhost', authorization })
  assert.equal(called.trailers['grpc-status'], '7')
  assert.equal(reached, 0)
}

test(
  'a request that waits while its password is compared is asked again when the rules have changed',
  cases(async (live) => ({ ...live, policy: { users: [bcrypted] } })),
)

test(
  'a request that is repeated is asked again when the rules have changed',
  cases(async (live) => ({ ...live, targets: [{ host: '127.0.0.1', port: await freePort() }] })),
)

test('a request that its service wants repeated is asked again, and its time continues', async (t) => {
  let asked = 0
  const { target } = await serve(t, async (_, res) => {
    if (++asked > 1) return
    await table.change(() => [route([target], { policy: { users: [bcrypted], requestMs: 60_000 } })])
    res.writeHead(503).end()
  })
  const retry = { times: 1, on: ['5xx'], statuses: [] }
  const { port, table } = await openInside(t, [route([target], { policy: { retry, requestMs: 400 } })])
  assert.deepEqual([(await ask(port)).status, asked], [401, 1])
  asked = 0
  await table.change(() => [route([target], { policy: { retry, requestMs: 400 } })])
  assert.deepEqual([(await ask(port, { headers: { authorization } })).status, asked], [504, 2])
})
