import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import { createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { createOutbound, OutboundFailed, OutboundRefused } from './outbound.ts'

const serve = async (t: TestContext, handler: RequestListener): Promise<{ server: Server; port: number }> => {
  const server = createServer(handler).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return { server, port: (server.address() as AddressInfo).port }
}

const names = (table: Record<string, string[]>) => async (host: string) => {
  if (table[host] === undefined) throw Object.assign(new Error('not found'), { code: 'ENOTFOUND' })
  return table[host].map((address) => ({ address }))
}

const call = (port: number, path = '/') => ({ method: 'POST', url: `http://hook.test:${port}${path}`, body: '{}' })

test('the connection goes to the checked address with the name in the Host header', async (t) => {
  let seen: IncomingMessage | undefined
  const { port } = await serve(t, (request, response) => {
    seen = request
    response.setHeader('x-two', ['a', 'b']).end('hello')
  })
  const outbound = createOutbound({ allow: ['loopback'], resolve: names({ 'hook.test': ['127.0.0.1'] }) })
  const answer = await outbound.request({ ...call(port, '/in?x=1'), headers: { 'x-mark': 'yes' } })
  assert.deepEqual([answer.status, answer.body, answer.truncated], [200, 'hello', false])
  assert.equal(answer.headers['x-two'], 'a, b')
  assert.deepEqual([seen?.headers.host, seen?.url, seen?.headers['x-mark']], [`hook.test:${port}`, '/in?x=1', 'yes'])
})

test('a name is looked up once, so a second answer of its server cannot move the connection', async (t) => {
  const { port } = await serve(t, (_, response) => response.end('ok'))
  let lookups = 0
  const rebinding = async () => [{ address: lookups++ === 0 ? '127.0.0.1' : '10.255.255.1' }]
  const outbound = createOutbound({ allow: ['127.0.0.1'], resolve: rebinding })
  assert.equal((await outbound.request(call(port))).body, 'ok')
  assert.equal(lookups, 1)
  await assert.rejects(outbound.request(call(port)), OutboundRefused)
})

test('one refused address among several refuses the name', async () => {
  const outbound = createOutbound({ allow: [], resolve: names({ 'hook.test': ['93.184.216.34', '10.0.0.1'] }) })
  await assert.rejects(outbound.check(new URL('http://hook.test/')), /SLIPWAY_OUTBOUND_ALLOW/)
})

test('nothing is sent to a refused address', async (t) => {
  let requests = 0
  const { port } = await serve(t, (_, response) => {
    requests++
    response.end()
  })
  const outbound = createOutbound({ allow: ['private'], resolve: names({ 'hook.test': ['127.0.0.1'] }) })
  await assert.rejects(outbound.request(call(port)), OutboundRefused)
  await assert.rejects(outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/` }), OutboundRefused)
  assert.equal(requests, 0)
})

test('the real resolver is refused for localhost', async () => {
  await assert.rejects(createOutbound({ allow: [] }).check(new URL('http://localhost:8080/')), OutboundRefused)
})

test('a part of this server is refused on its port only, whatever name leads to it', async () => {
  const resolve = names({ 'hook.test': ['10.0.0.9'], 'db.inner': ['10.0.0.9'] })
  const outbound = createOutbound({ allow: ['private'], own: ['db.inner:9999'], resolve })
  await assert.rejects(outbound.check(new URL('http://hook.test:9999/')), /part of this server/)
  assert.equal((await outbound.check(new URL('http://hook.test:9998/'))).address, '10.0.0.9')
})

test('a redirect is an answer and is not followed', async (t) => {
  const paths: (string | undefined)[] = []
  const { port } = await serve(t, (request, response) => {
    paths.push(request.url)
    response.writeHead(302, { location: '/secret' }).end()
  })
  const outbound = createOutbound({ allow: ['loopback'], resolve: names({ 'hook.test': ['127.0.0.1'] }) })
  assert.equal((await outbound.request(call(port))).status, 302)
  assert.deepEqual(paths, ['/'])
})

test('a proxy in the environment is not used', async (t) => {
  const { port } = await serve(t, (_, response) => response.end('direct'))
  process.env.http_proxy = 'http://127.0.0.1:1'
  t.after(() => delete process.env.http_proxy)
  const outbound = createOutbound({ allow: ['loopback'] })
  assert.equal((await outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/` })).body, 'direct')
})

const certificate = (t: TestContext): { key: Buffer; cert: Buffer } | undefined => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-tls-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const [key, cert] = [join(folder, 'key'), join(folder, 'cert')]
  const made = spawnSync('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'],
    ...['-subj', '/CN=hook.test', '-addext', 'subjectAltName=DNS:hook.test', '-keyout', key, '-out', cert],
  ])
  return made.status === 0 ? { key: readFileSync(key), cert: readFileSync(cert) } : undefined
}

test('TLS is verified against the name of the URL, though an address is connected to', async (t) => {
  const tls = certificate(t)
  if (tls === undefined) return t.skip('needs openssl')
  const server = createTlsServer(tls, (_, response) => response.end('safe')).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const { port } = server.address() as AddressInfo
  const resolve = names({ 'hook.test': ['127.0.0.1'], 'other.test': ['127.0.0.1'] })
  const outbound = createOutbound({ allow: ['loopback'], resolve })
  const at = (host: string) => ({ method: 'GET', url: `https://${host}:${port}/` })
  const ca = tls.cert.toString()
  assert.equal((await outbound.request({ ...at('hook.test'), ca })).body, 'safe')
  await assert.rejects(outbound.request({ ...at('other.test'), ca }), /ERR_TLS_CERT_ALTNAME_INVALID/)
  await assert.rejects(outbound.request(at('hook.test')), OutboundFailed)
})

test('an endless answer is cut at the cap and its connection closed', async (t) => {
  let closed: Promise<unknown> | undefined
  const { port } = await serve(t, (_, response) => {
    const timer = setInterval(() => response.write('x'.repeat(10_000)), 1)
    closed = once(response, 'close').then(() => clearInterval(timer))
  })
  const outbound = createOutbound({ allow: ['loopback'] })
  const answer = await outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/`, maxResponseBytes: 1000 })
  assert.deepEqual([answer.status, answer.body.length, answer.truncated], [200, 1000, true])
  await closed
})

test('a receiver that never finishes is given up after the total time', async (t) => {
  const { port } = await serve(t, (request, response) => {
    if (request.url === '/half') response.write('{')
  })
  const outbound = createOutbound({ allow: ['loopback'] })
  for (const path of ['/silent', '/half']) {
    const slow = outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}${path}`, totalTimeoutMs: 120 })
    await assert.rejects(slow, (error: OutboundFailed) => error instanceof OutboundFailed && error.code === 'timeout')
  }
})

test('a resolver that hangs is given up after the connect time', async () => {
  const outbound = createOutbound({ allow: [], resolve: () => new Promise(() => {}) })
  const slow = outbound.request({ ...call(80), connectTimeoutMs: 60 })
  await assert.rejects(slow, { name: 'OutboundFailed', code: 'timeout' })
})

const listenTcp = async (t: TestContext, onConnection: (socket: Socket) => void): Promise<number> => {
  const open = new Set<Socket>()
  const server = createTcpServer((socket) => {
    open.add(socket.on('error', () => {}))
    onConnection(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

test('a failure names the part of the request that failed', async (t) => {
  const silent = await listenTcp(t, (socket) => socket.resume())
  const half = await listenTcp(t, (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf'))
  const closing = await listenTcp(t, (socket) => void socket.once('data', () => socket.destroy()))
  const rude = await listenTcp(t, (socket) => void socket.once('data', () => socket.end('no TLS here')))
  const never = createOutbound({ allow: ['loopback'], resolve: () => new Promise(() => {}) })
  const outbound = createOutbound({ allow: ['loopback'], resolve: names({ 'hook.test': ['127.0.0.1'] }) })
  const cases: [string, string, RegExp][] = [
    [`http://hook.test:${silent}/`, 'answer', /the connection was accepted, but there was no answer in time/],
    [`https://hook.test:${silent}/`, 'tls', /the TLS handshake did not complete in time/],
    [`http://hook.test:${half}/`, 'body', /the answer stopped before it was complete/],
    [`http://hook.test:${closing}/`, 'answer', /the connection was closed before an answer came/],
    [`https://hook.test:${rude}/`, 'tls', /the TLS handshake failed/],
  ]
  const read = async (url: string, client = outbound) => {
    const stream = await client.open({ method: 'GET', url, connectTimeoutMs: 1000, silenceMs: 2000, maxBytes: 1000 })
    await stream.body.toArray()
  }
  const request = (url: string, client = outbound) =>
    client.request({ method: 'GET', url, connectTimeoutMs: 1000, totalTimeoutMs: 2000 })
  const unresolved = { phase: 'resolve', message: 'the host name was not resolved in time' }
  const checks = [read, request].flatMap((ask) => [
    ...cases.map(([url, phase, message]) =>
      assert.rejects(ask(url), { name: 'OutboundFailed', phase, message }, `${ask.name} ${url}`),
    ),
    assert.rejects(ask('http://hook.test/', never), unresolved),
    assert.rejects(ask('http://gone.test/'), { code: 'unresolved', phase: 'resolve' }),
  ])
  await Promise.all(checks)
})

test('an abort ends the request', async (t) => {
  const { port } = await serve(t, () => {})
  const control = new AbortController()
  const outbound = createOutbound({ allow: ['loopback'] })
  const pending = outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/`, signal: control.signal })
  setImmediate(() => control.abort())
  await assert.rejects(pending, { name: 'OutboundFailed', code: 'aborted' })
})

test('a closed port and a server that is not HTTP are failures, not crashes', async (t) => {
  const outbound = createOutbound({ allow: ['loopback'] })
  const rude = createTcpServer((socket) =>
    socket
      .resume()
      .on('error', () => {})
      .end('garbage\r\n\r\n'),
  ).listen(0, '127.0.0.1')
  await once(rude, 'listening')
  const { port } = rude.address() as AddressInfo
  await assert.rejects(outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/` }), OutboundFailed)
  rude.close()
  await once(rude, 'close')
  await assert.rejects(outbound.request({ method: 'GET', url: `http://127.0.0.1:${port}/` }), /ECONNREFUSED/)
  t.diagnostic('both ended')
})

test('at creation a name without an address passes, a refused one does not', async () => {
  const outbound = createOutbound({ allow: [], resolve: names({ 'inner.test': ['10.0.0.1'] }) })
  assert.equal((await outbound.checkTarget('https://later.test/hook')).host, 'later.test')
  await assert.rejects(outbound.checkTarget('https://inner.test/hook'), OutboundRefused)
  await assert.rejects(outbound.checkTarget('https://later.test:22/hook'), OutboundRefused)
  await assert.rejects(outbound.check(new URL('https://later.test/')), { code: 'unresolved' })
  assert.throws(() => outbound.checkSyntax('http://127.0.0.1/'), OutboundRefused)
  assert.equal(outbound.checkSyntax('http://inner.test/').hostname, 'inner.test')
})

test('no message repeats the address that was sent', async () => {
  const outbound = createOutbound({ allow: [], resolve: names({}) })
  for (const url of [
    'http://10.9.8.7/',
    'http://nobody.test/',
    'http://marked:word@x.test/',
    'http://nobody.test:22/',
  ]) {
    const error = await outbound.request({ method: 'GET', url }).then(
      () => assert.fail(url),
      (failure: Error) => failure,
    )
    assert.doesNotMatch(error.message, /10\.9|nobody|marked|exist/)
  }
})

test('a kept connection serves the next request, and a broken one costs no request', async (t) => {
  const connections = new Set<unknown>()
  const { port } = await serve(t, (request, response) => {
    connections.add(request.socket)
    if (request.url === '/break' && connections.size === 1) return void request.socket.destroy()
    response.end('ok')
  })
  const outbound = createOutbound({ allow: ['loopback'], resolve: names({ 'hook.test': ['127.0.0.1'] }) })
  const send = async (path: string) => (await outbound.request({ ...call(port, path), keepAlive: true })).body
  assert.deepEqual([await send('/'), await send('/'), connections.size], ['ok', 'ok', 1])
  assert.deepEqual([await send('/break'), connections.size], ['ok', 2])
})

test('a kept connection is not used when the name has moved to an address that is refused', async (t) => {
  const { port } = await serve(t, (_, response) => response.end('ok'))
  let lookups = 0
  const rebinding = async () => [{ address: lookups++ === 0 ? '127.0.0.1' : '10.255.255.1' }]
  const outbound = createOutbound({ allow: ['127.0.0.1'], resolve: rebinding })
  assert.equal((await outbound.request({ ...call(port), keepAlive: true })).body, 'ok')
  await assert.rejects(outbound.request({ ...call(port), keepAlive: true }), OutboundRefused)
})

test('containers of this machine cannot be called, though private networks are allowed; the operator may list one', async () => {
  const interfaces = () => ({
    'br-0123456789ab': [{ cidr: '10.200.3.1/24' }],
    docker0: [{ cidr: '172.17.0.1/16' }],
    eth0: [{ cidr: '10.0.0.5/24' }],
    'br-lan': [{ cidr: '10.9.0.1/24' }],
  })
  const resolve = async () => [{ address: '10.200.3.7' }]
  const open = (...allow: string[]) => createOutbound({ allow, interfaces, resolve })
  for (const url of [
    'http://10.200.3.7:8080/',
    'http://172.17.0.2/',
    'http://hook.test/',
    'http://[::ffff:10.200.3.7]/',
  ])
    await assert.rejects(open('private').check(new URL(url)), /points to a container on this machine/, url)
  for (const url of ['http://10.0.0.9/', 'http://10.9.0.7/', 'http://10.200.4.7/'])
    assert.equal((await open('private').check(new URL(url))).family, 4, url)
  assert.equal((await open('10.200.3.7:8080').check(new URL('http://10.200.3.7:8080/'))).address, '10.200.3.7')
})

test('an engine or an SSH server may be at its own port, and is else judged as every address', async () => {
  const resolve = names({ 'engine.test': ['93.184.216.34'], 'inner.test': ['10.0.0.2'], 'own.test': ['93.184.216.35'] })
  const outbound = createOutbound({ allow: [], own: ['own.test:2376'], resolve })
  for (const port of [22, 2222, 2375, 2376])
    assert.deepEqual(await outbound.checkMachine('engine.test', port), { address: '93.184.216.34', family: 4 })
  const refused: [string, number][] = [
    ['engine.test', 5432],
    ['engine.test', 25],
    ['inner.test', 2376],
    ['own.test', 2376],
    ['127.0.0.1', 22],
    ['[::1]', 22],
    ['169.254.169.254', 2222],
    ['0x7f.1', 2376],
  ]
  for (const [host, port] of refused)
    await assert.rejects(outbound.checkMachine(host, port), OutboundRefused, `${host}:${port}`)
  await assert.rejects(outbound.check(new URL('https://engine.test:2376/')), OutboundRefused)
})
