import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { type AddressInfo, connect, createServer as createTcpServer, type Socket } from 'node:net'
import { test } from 'node:test'
import {
  ask,
  freePort,
  openInside,
  readAnswer,
  readUntil,
  route,
  sendRaw,
  serve,
  until,
} from '../../../test/support/router/parts.ts'

test('a request and its answer pass unchanged but for what belongs to each connection', async (t) => {
  const { target } = await serve(t, async (req, res) => {
    let body = ''
    for await (const chunk of req) body += chunk
    res.writeHead(201, [
      ...['Set-Cookie', 'a=1', 'Set-Cookie', 'b=2', 'X-Odd', 'caf\xe9', 'Keep-Alive', 'timeout=9'],
      ...['Connection', 'keep-alive, x-private', 'X-Private', 'secret', 'Trailer', 'X-Sum'],
    ])
    res.write(JSON.stringify({ method: req.method, url: req.url, headers: req.headers, body }))
    res.addTrailers({ 'X-Sum': '42' })
    res.end()
  })
  const { port } = await openInside(t, [route([target])])
  const answer = await ask(port, {
    host: 'A.localhost:8000',
    method: 'POST',
    path: '/p/%41?q=1&q=2',
    body: 'hello',
    headers: {
      connection: 'close, x-hop',
      'x-hop': '1',
      te: 'trailers',
      'proxy-authorization': 'secret',
      'x-forwarded-for': '6.6.6.6',
      'x-forwarded-proto': 'https',
      forwarded: 'for=6.6.6.6',
      'content-type': 'text/plain',
    },
  })
  assert.equal(answer.status, 201)
  assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2'])
  assert.equal(answer.headers['x-odd'], 'caf\xe9')
  assert.equal(answer.headers['x-private'], undefined)
  assert.equal(answer.trailers['x-sum'], '42')
  const seen = JSON.parse(answer.body)
  assert.deepEqual([seen.method, seen.url, seen.body], ['POST', '/p/%41?q=1&q=2', 'hello'])
  const { connection, ...headers } = seen.headers
  assert.equal(connection, 'keep-alive')
  assert.deepEqual(headers, {
    host: 'A.localhost:8000',
    'content-type': 'text/plain',
    'content-length': '5',
    'x-forwarded-for': '127.0.0.1',
    'x-forwarded-proto': 'http',
    'x-forwarded-host': 'A.localhost:8000',
  })
})

test("a configured proxy's X-Forwarded headers are kept and continued", async (t) => {
  const { target } = await serve(t, (req, res) => res.end(JSON.stringify(req.headers)))
  const { port } = await openInside(t, [route([target])], { trusted: ['127.0.0.0/8'] })
  const { body } = await ask(port, { headers: { 'x-forwarded-for': '9.9.9.9', 'x-forwarded-proto': 'https' } })
  const headers = JSON.parse(body)
  assert.equal(headers['x-forwarded-for'], '9.9.9.9, 127.0.0.1')
  assert.equal(headers['x-forwarded-proto'], 'https')
})

test('HEAD, 204, 304 and early hints pass; 100 is sent when the target takes the body', async (t) => {
  const { target } = await serve(t, (req, res) => {
    if (req.url === '/head') res.writeHead(200, { 'content-length': '12345' }).end()
    else if (req.url === '/204') res.writeHead(204).end()
    else if (req.url === '/304') res.writeHead(304, { etag: '"x"' }).end()
    else res.writeEarlyHints({ link: '</a.css>; rel=preload' }, () => req.pipe(res))
  })
  const { port } = await openInside(t, [route([target])])
  const head = await ask(port, { method: 'HEAD', path: '/head' })
  assert.deepEqual([head.status, head.headers['content-length'], head.body], [200, '12345', ''])
  assert.equal((await ask(port, { path: '/204' })).status, 204)
  assert.equal((await ask(port, { path: '/304' })).headers.etag, '"x"')
  const text = await sendRaw(
    port,
    'POST / HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi',
  )
  assert.match(text, /^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 103 Early Hints\r\nLink: .*\r\n\r\nHTTP\/1.1 200 /s)
  const unknown = await sendRaw(port, 'POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n')
  assert.match(unknown, /^HTTP\/1.1 404 /)
})

test('unknown, stopped and starting hosts get a page that says so, escaped, for browsers or programs', async (t) => {
  const { port } = await openInside(t, [
    route([], { host: 'stopped.localhost', state: 'stopped' }),
    route([], { host: 'starting.localhost', state: 'starting' }),
    route([], { host: 'empty.localhost' }),
  ])
  const html = { accept: 'text/html,*/*' }
  const unknown = await ask(port, { host: '<b>x</b>', headers: html })
  assert.equal(unknown.status, 404)
  assert.match(unknown.headers['content-type'] ?? '', /text\/html/)
  assert.match(unknown.body, /There is no service at &lt;b&gt;x&lt;\/b&gt;\./)
  assert.ok(!unknown.body.includes('<b>'))
  for (const host of ['stopped.localhost', 'starting.localhost', 'empty.localhost']) {
    const answer = await ask(port, { host })
    assert.equal(answer.status, 503)
    assert.ok(Number(answer.headers['retry-after']) > 0)
    const { status, error, message } = JSON.parse(answer.body)
    assert.deepEqual([status, error], [503, 'Service Unavailable'])
    assert.ok(
      message.includes(host) &&
        message.includes(host === 'empty.localhost' ? 'no running instance' : host.split('.')[0]!),
    )
  }
})

test('a target that refuses costs nothing when another serves, and a 502 page that says no address when none does', async (t) => {
  const { target } = await serve(t, (req, res) => req.pipe(res))
  const dead = { host: '127.0.0.1', port: await freePort() }
  const inside = await openInside(t, [route([dead, target]), route([dead], { host: 'dead.localhost' })])
  for (let count = 0; count < 20; count++) {
    const answer = await ask(inside.port, { method: 'POST', body: `body ${count}` })
    assert.deepEqual([answer.status, answer.body], [200, `body ${count}`])
  }
  assert.ok(inside.traffic.counts.retries > 0)
  const failed = await ask(inside.port, { host: 'dead.localhost' })
  assert.equal(failed.status, 502)
  assert.ok(!failed.body.includes(String(dead.port)) && !failed.body.includes('ECONN'))
})

test('an attempt that found no target reads the table again', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('new'))
  const dead = { host: '127.0.0.1', port: await freePort() }
  const { port, table, traffic } = await openInside(t, [route([dead])])
  const asked = ask(port)
  await until(() => traffic.counts.retries > 0)
  await table.change(() => [route([target])])
  assert.equal((await asked).body, 'new')
})

test('a connection that dies before any answer is tried anew for GET, and never for POST', async (t) => {
  const seen: string[] = []
  const server = createTcpServer((socket) => {
    socket.on('error', () => {})
    let requests = 0
    socket.on('data', (bytes) => {
      seen.push(bytes.toString().split(' ')[0] as string)
      if (++requests > 1) socket.resetAndDestroy()
      else socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    })
  }).listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const { port } = await openInside(t, [route([{ host: '127.0.0.1', port: (server.address() as AddressInfo).port }])])
  assert.equal((await ask(port)).status, 200)
  assert.equal((await ask(port)).status, 200)
  assert.equal((await ask(port, { method: 'POST' })).status, 502)
  assert.deepEqual(seen, ['GET', 'GET', 'GET', 'POST'])
})

test('an event arrives while the answer is still open, and so does a head without a body', async (t) => {
  const { target } = await serve(t, (req, res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    if (req.url === '/head') res.flushHeaders()
    else res.write('data: 1\n\n')
  })
  const { port } = await openInside(t, [route([target])])
  for (const path of ['/', '/head']) {
    const out = request({ host: '127.0.0.1', port, path, agent: false, headers: { host: 'a.localhost' } }).end()
    const [answer] = (await once(out, 'response')) as [IncomingMessage]
    if (path === '/') assert.equal(String((await once(answer, 'data'))[0]), 'data: 1\n\n')
    out.on('error', () => {}).destroy()
  }
})

test('a head reaches its target before any of its body does, which may answer first', async (t) => {
  const { target } = await serve(t, (req, res) => {
    res.flushHeaders()
    req.pipe(res)
  })
  const { port } = await openInside(t, [route([target])])
  for (const framing of [{ 'content-length': '4' }, { 'transfer-encoding': 'chunked' }]) {
    const headers = { host: 'a.localhost', ...framing }
    const out = request({ host: '127.0.0.1', port, method: 'POST', agent: false, headers })
    out.flushHeaders()
    const [answer] = (await once(out, 'response', { signal: AbortSignal.timeout(5_000) })) as [IncomingMessage]
    out.end('late')
    assert.equal((await readAnswer(answer)).body, 'late')
  }
})

test('a client that goes away ends the request at the target, and a broken answer breaks the client off', async (t) => {
  const { promise: aborted, resolve: onAborted } = Promise.withResolvers<void>()
  const { target } = await serve(t, (req, res) => {
    if (req.url === '/break') return void res.write('half', () => res.destroy())
    res.on('close', onAborted)
    res.write('first')
  })
  const { port, traffic } = await openInside(t, [route([target])])
  const out = request({ host: '127.0.0.1', port, agent: false, headers: { host: 'a.localhost' } }).end()
  const [answer] = (await once(out, 'response')) as [IncomingMessage]
  answer.on('error', () => {})
  out.on('error', () => {}).destroy()
  await aborted
  await until(() => traffic.counts.inFlight === 0 && traffic.upstreams.of(target).inFlight === 0)
  const broken = request({
    host: '127.0.0.1',
    port,
    path: '/break',
    agent: false,
    headers: { host: 'a.localhost' },
  }).end()
  const [half] = (await once(broken, 'response')) as [IncomingMessage]
  await assert.rejects(readAnswer(half))
})

test('requests that two servers could read differently are refused and never reach a target', async (t) => {
  let reached = 0
  const { target } = await serve(t, (_req, res) => {
    reached++
    res.end()
  })
  const { port } = await openInside(t, [route([target])])
  const host = 'Host: a.localhost\r\n'
  const refused: [string, RegExp][] = [
    [`POST / HTTP/1.1\r\n${host}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, /^HTTP\/1.1 400 /],
    [`POST / HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n`, /^HTTP\/1.1 400 /],
    [`POST / HTTP/1.1\r\n${host}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd`, /^HTTP\/1.1 400 /],
    [`POST / HTTP/1.1\r\n${host}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`, /^HTTP\/1.1 501 /],
    [`POST / HTTP/1.1\r\n${host}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`, /^HTTP\/1.1 (400|501) /],
    [`GET / HTTP/1.1\r\n${host}Host: b.localhost\r\n\r\n`, /^HTTP\/1.1 400 /],
    [`GET / HTTP/1.1\r\n${host}${host}\r\n`, /^HTTP\/1.1 400 /],
    [`GET / HTTP/1.1\r\n${host}Host: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`, /^HTTP\/1.1 400 /],
    ['GET / HTTP/1.1\r\n\r\n', /^HTTP\/1.1 400 /],
    [`GET http://b.localhost/ HTTP/1.1\r\n${host}\r\n`, /^HTTP\/1.1 400 /],
    [`GET / HTTP/1.1\r\n${host}X: a\r\n b\r\n\r\n`, /^HTTP\/1.1 400 /],
    [`CONNECT a.localhost:80 HTTP/1.1\r\n${host}\r\n`, /^HTTP\/1.1 405 /],
  ]
  for (const [bytes, status] of refused) assert.match(await sendRaw(port, bytes), status, bytes)
  assert.equal(reached, 0)
  const absolute = `GET http://a.localhost/x HTTP/1.1\r\n${host}Connection: close\r\n\r\n`
  assert.match(await sendRaw(port, absolute), /^HTTP\/1.1 200 /)
})

test('slow and oversized headers end with 408 and 431 and delay no others', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { port } = await openInside(t, [route([target])], { limits: { headersTimeoutMs: 300 } })
  const slow = Array.from({ length: 50 }, () => sendRaw(port, 'GET / HTTP/1.1\r\nHost: a.local'))
  assert.equal((await ask(port)).status, 200)
  for (const text of await Promise.all(slow)) assert.match(text, /^HTTP\/1.1 408 /)
  const large = `GET / HTTP/1.1\r\nHost: a.localhost\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`
  assert.match(await sendRaw(port, large), /^HTTP\/1.1 431 /)
})

test('a websocket is a tunnel of bytes; an end of either side ends the other; h2c is declined', async (t) => {
  const program = await serve(t, (_req, res) => res.end('plain'))
  const farEnds: Socket[] = []
  program.server.on('upgrade', (req, socket) => {
    farEnds.push(socket as Socket)
    socket.on('end', () => socket.end())
    socket.on('error', () => {})
    if (req.url === '/no') return void socket.end('HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno')
    socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello')
    socket.on('data', (bytes) => socket.write(bytes.toString().toUpperCase()))
  })
  const dead = { host: '127.0.0.1', port: await freePort() }
  const { port, traffic } = await openInside(t, [route([dead, program.target])])
  const handshake = (path: string, upgrade = 'websocket') =>
    `GET ${path} HTTP/1.1\r\nHost: a.localhost\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n\r\n`
  const open = async () => {
    const socket = connect(port, '127.0.0.1')
    socket.write(`${handshake('/')}early`)
    assert.match(await readUntil(socket, /EARLY$/), /^HTTP\/1.1 101 .*\r\n\r\nhelloEARLY$/s)
    return socket
  }
  const one = await open()
  assert.equal(traffic.counts.upgrades.open, 1)
  assert.equal(traffic.upstreams.of(program.target).inFlight, 1)
  farEnds.at(-1)!.destroy()
  await once(one, 'close')
  const two = await open()
  two.destroy()
  await once(farEnds.at(-1)!, 'close')
  await until(() => traffic.counts.upgrades.open === 0 && traffic.upstreams.of(program.target).inFlight === 0)
  assert.match(await sendRaw(port, handshake('/no')), /^HTTP\/1.1 401 .*\r\n\r\nno$/s)
  assert.match(await sendRaw(port, handshake('/').replace('a.', 'b.')), /^HTTP\/1.1 404 /)
  const declined = handshake('/', 'h2c').replace('Upgrade\r\n', 'Upgrade, close\r\n')
  assert.match(await sendRaw(port, declined), /^HTTP\/1.1 200 .*plain/s)
})

test('an upgrade behind another request loses nothing that its client sends before it is granted', async (t) => {
  const program = await serve(t, (_req, res) => res.end('plain'))
  const { promise: asked, resolve } = Promise.withResolvers<Socket>()
  program.server.on('upgrade', (_req, socket) => resolve(socket as Socket))
  const { port } = await openInside(t, [route([program.target])])
  const client = connect(port, '127.0.0.1')
  t.after(() => client.destroy())
  const start = 'GET / HTTP/1.1\r\nHost: a.localhost\r\n'
  client.write(`${start}\r\n${start}Connection: Upgrade\r\nUpgrade: x\r\n\r\n`)
  await readUntil(client, /plain$/)
  const far = await asked
  client.write('early')
  // Bytes sent before this request have arrived by now.
  assert.equal((await ask(port)).body, 'plain')
  far.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n')
  assert.equal(await readUntil(far, /early$/), 'early')
  far.destroy()
})

test('an empty line in front of a request may come in two pieces', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('plain'))
  const { port } = await openInside(t, [route([target])])
  const client = connect({ host: '127.0.0.1', port, noDelay: true })
  t.after(() => client.destroy())
  client.write('\r')
  // It has arrived before this request has been answered.
  assert.equal((await ask(port)).body, 'plain')
  client.write('\nGET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n')
  assert.match(await readUntil(client, /plain$|close/), /^HTTP\/1.1 200 /)
})

test('a websocket that is not opened in time is refused, and an open one may be silent', async (t) => {
  const { server, target } = await serve(t, (_, res) => res.end())
  server.on('upgrade', (req, socket) => {
    if (req.url === '/never') return
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n')
    setTimeout(() => socket.end('late'), 1000)
  })
  const { port } = await openInside(t, [route([target], { policy: { readMs: 300, sendMs: 300, requestMs: 300 } })])
  const open = (path: string): Promise<string> =>
    sendRaw(port, `GET ${path} HTTP/1.1\r\nHost: a.localhost\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n`)
  const [never, silent] = await Promise.all([open('/never'), open('/')])
  assert.match(never, /^HTTP\/1.1 502 /)
  assert.match(silent, /^HTTP\/1.1 101 .*late$/s)
})
