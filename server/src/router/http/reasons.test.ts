/** Unusual responses that the router passes on, and its messages about those that it refuses. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { openInside, readUntil, route, sendRaw, serve } from '../../../test/support/router/parts.ts'
import type { Target } from '../router.ts'

const host = 'Host: a.localhost\r\n'
const close = `${host}Connection: close\r\n\r\n`

/** A program of bytes: answers each connection's first bytes with these. */
const serveRaw = async (t: TestContext, answer: (asked: string, socket: Socket) => string): Promise<Target> => {
  const server = createServer((socket) => {
    socket.on('error', () => {})
    let asked = ''
    socket.on('data', (bytes) => {
      asked += bytes.toString('latin1')
      if (asked.includes('\r\n\r\n')) socket.write(answer(asked, socket), 'latin1')
    })
  }).listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  return { host: '127.0.0.1', port: (server.address() as AddressInfo).port }
}

const bodyOf = (answer: string): { status: number; message: string } =>
  JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4)) as { status: number; message: string }

test('bytes of a path that are not ASCII are passed on as they came, and lead where their encoded form leads', async (t) => {
  // A server of Node would refuse them.
  const tell = (name: string) =>
    serveRaw(t, (asked) => {
      const body = `${name} ${asked.split(' ')[1]}`
      const upgraded = 'HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'
      const plain = `HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`
      return (asked.includes('pgrade: x') ? upgraded : plain) + body
    })
  const [target, other] = [await tell('a'), await tell('b')]
  const { port } = await openInside(t, [route([target]), route([other], { path: '/x', rewrite: '/y' })])
  const path = '/café?q=ü'
  // Each character is a byte.
  const raw = Buffer.from(path).toString('latin1')
  const get = (of: string) => sendRaw(port, `GET ${of} HTTP/1.1\r\n${close}`)
  assert.ok((await get(path)).endsWith(`a ${raw}`))
  assert.ok((await get(`/x${path}`)).endsWith(`b /y${raw}`))
  assert.ok((await get('/x/caf%C3%A9')).endsWith('b /y/caf%C3%A9'))
  assert.match(await get(`/x/..${path}`), /^HTTP\/1.1 400 /)
  const upgrade = `GET ${path} HTTP/1.1\r\n${host}Connection: upgrade\r\nUpgrade: x\r\n\r\n`
  const client = connect(port, '127.0.0.1')
  t.after(() => client.destroy())
  client.write(upgrade)
  assert.ok((await readUntil(client, /a \S+$/)).endsWith(`a ${raw}`))
})

test('a refused request gets the reason', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end())
  const { port } = await openInside(t, [route([target]), route([target], { path: '/x' })])
  const refused: [string, RegExp][] = [
    [`GET /a\x01b HTTP/1.1\r\n${close}`, /path has a control character/],
    [`GET /a\x7fb HTTP/1.1\r\n${close}`, /path has a control character/],
    [`GET /a#b HTTP/1.1\r\n${close}`, /path has a control character, a space or a "#"/],
    [`NOBODYKNOWS / HTTP/1.1\r\n${close}`, /method/],
    [`GET / HTTP/3.0\r\n${close}`, /HTTP\/1\.1/],
    [`GET / HTTP/1.1\r\n${host}A: b\r\n c\r\n\r\n`, /folded/],
    [`GET / HTTP/1.1\r\n${host}A : b\r\n\r\n`, /not of the form "Name: value"/],
    [`GET / HTTP/1.1\r\n${host}A: b\x00\r\n\r\n`, /control character/],
    [`POST / HTTP/1.1\r\n${host}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc`, /more than one Content-Length/],
    [`POST / HTTP/1.1\r\n${host}Content-Length: +3\r\n\r\nabc`, /Content-Length is not a number/],
    [`POST / HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\nx\r\n`, /chunks/],
    ['GET / HTTP/1.1\r\n\r\n', /one Host header/],
    [`GET http://b.localhost/ HTTP/1.1\r\n${close}`, /another host/],
    [`GET /a/../b HTTP/1.1\r\n${close}`, /path of the request differently/],
  ]
  for (const [bytes, why] of refused) {
    const answer = await sendRaw(port, bytes)
    assert.match(answer, /^HTTP\/1.1 400 /, bytes)
    assert.equal(bodyOf(answer).status, 400)
    assert.match(bodyOf(answer).message, why, bytes)
  }
  const large = await sendRaw(port, `GET / HTTP/1.1\r\nX: ${'x'.repeat(40_000)}\r\n${close}`)
  assert.deepEqual(bodyOf(large).message, 'The headers of the request are larger than 32 kB.')
})

test('the client of an answer that is not HTTP gets the reason, also in a handshake', async (t) => {
  const ok = 'HTTP/1.1 200 OK\r\n'
  const answers: [string, RegExp][] = [
    [`${ok}Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi`, /not valid HTTP: it has more than one Content-Length\./],
    [`${ok}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nhi`, /both a Content-Length and a Transfer-Encoding/],
    [`${ok}A: b\r\n c\r\n\r\n`, /not valid HTTP: a header is folded into several lines\./],
    ['hello\r\n\r\n', /its first line is not of the form/],
    [`${ok}Transfer-Encoding: gzip\r\n\r\n`, /Transfer-Encoding is not "chunked"/],
    [`${ok}A: ${'x'.repeat(70_000)}\r\n\r\n`, /headers that are larger than 64 kB/],
  ]
  let next = ''
  const target = await serveRaw(t, () => next)
  const reports: string[] = []
  const { port, traffic } = await openInside(t, [route([target])])
  Object.assign(traffic, { report: (line: string) => reports.push(line) })
  for (const [answer, why] of answers) {
    next = answer
    const told = await sendRaw(port, `POST / HTTP/1.1\r\n${close}`)
    assert.match(told, /^HTTP\/1.1 502 /)
    assert.match(bodyOf(told).message, why)
  }
  assert.match(reports[0]!, /its response is not valid HTTP: it has more than one Content-Length/)
  next = 'hello\r\n\r\n'
  const shaken = await sendRaw(port, `GET / HTTP/1.1\r\n${host}Connection: upgrade\r\nUpgrade: x\r\n\r\n`)
  assert.match(bodyOf(shaken).message, /not valid HTTP/)
})

test('trailers of a request are read and left out, and the next request of the connection is not part of them', async (t) => {
  const asked: string[] = []
  const target = await serveRaw(t, (text) => {
    asked.push(text)
    return text.endsWith('0\r\n\r\n') ? 'HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n' : ''
  })
  const { port } = await openInside(t, [route([target])])
  const body = '2\r\nhi\r\n0\r\nX-Sum: 1\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n'
  const answer = await sendRaw(
    port,
    `POST / HTTP/1.1\r\n${host}Connection: close\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
  )
  assert.match(answer, /^HTTP\/1.1 204 /)
  assert.ok(asked.at(-1)!.endsWith('\r\n2\r\nhi\r\n0\r\n\r\n'))
  assert.doesNotMatch(asked.at(-1)!, /x-sum: 1|6\.6\.6\.6/i)
})

test('an open websocket keeps its instance for the drain time, and is left to the program then', async (t) => {
  const { server, target } = await serve(t, (_req, res) => res.end())
  server.on('upgrade', (_req, socket) => {
    socket.write('HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n')
    socket.on('data', (bytes) => socket.write(bytes)).on('end', () => socket.end())
  })
  const { port, traffic, table } = await openInside(t, [route([target])])
  const client = connect(port, '127.0.0.1')
  t.after(() => client.destroy())
  client.write(`GET / HTTP/1.1\r\n${host}Connection: upgrade\r\nUpgrade: x\r\n\r\n`)
  await readUntil(client, /\r\n\r\n$/)
  await table.change(() => [])
  assert.equal(await traffic.upstreams.drain([target], AbortSignal.timeout(50)), 1)
  traffic.upstreams.endConnections([target])
  client.write('still here')
  await readUntil(client, /still here$/)
  const drained = traffic.upstreams.drain([target], AbortSignal.timeout(10_000))
  client.destroy()
  assert.equal(await drained, 0)
})
