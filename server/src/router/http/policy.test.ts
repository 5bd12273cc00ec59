import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import { callGrpc, echo, openClient, openStream, readStream, serveGrpc } from '../../../test/support/router/grpc.ts'
import { ask, openInside, readUntil, route, sendRaw, serve, until } from '../../../test/support/router/parts.ts'
import { patience } from '../../../test/support/until.ts'
import type { Policy } from '../policy.ts'

// Hashes of `secret`, by `htpasswd -nbB`, `openssl passwd -apr1` and `htpasswd -nbs`.
const bcrypted = 'ada:$2b$04$/A3/4GvmJiE5suNNvkVKdOC4iSN0mNqIsyCXTxEvHNn.h1b1.g1KO'
const apr1 = 'bob:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/'
const sha = 'eve:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ='

const login = (name: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`,
})

const serveNames = async (t: Parameters<typeof serve>[0], name: string) =>
  serve(t, (req, res) => res.setHeader('x-frame-options', 'NONE').setHeader('vary', 'Accept').end(`${name} ${req.url}`))

// No limit of these tests is as long as the default ones, so that they cannot be confused.
const timeout = 30_000

const withPolicy = async (t: Parameters<typeof serve>[0], policy: Policy, more: { trusted?: string[] } = {}) => {
  const { target } = await serveNames(t, 'a')
  return openInside(t, [route([target], { policy })], more)
}

test('without a right password nothing reaches the service, whatever kind of hash it has', async (t) => {
  let reached = 0
  const { target } = await serve(t, (_, res) => {
    reached++
    res.end()
  })
  const { port } = await openInside(t, [route([target], { policy: { users: [bcrypted, apr1, sha] } })])
  for (const name of ['ada', 'bob', 'eve']) {
    assert.equal((await ask(port, { headers: login(name, 'secret') })).status, 200, name)
    assert.equal((await ask(port, { headers: login(name, 'secret') })).status, 200, 'the second time')
    assert.equal((await ask(port, { headers: login(name, 'Secret') })).status, 401, name)
  }
  assert.equal((await ask(port, { headers: login('nobody', 'secret') })).status, 401)
  const asked = await ask(port)
  assert.equal(asked.status, 401)
  assert.match(asked.headers['www-authenticate'] ?? '', /^Basic realm=/)
  const upgrade = await sendRaw(
    port,
    'GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n',
  )
  assert.match(upgrade, /^HTTP\/1.1 401 /)
  assert.equal(reached, 6)
  const broken = await withPolicy(t, { users: ['ada:secret'] })
  assert.equal((await ask(broken.port, { headers: login('ada', 'secret') })).status, 401, 'a line that cannot be read')
})

test('who may ask is decided by the address of the socket, and by what a trusted proxy says of it', async (t) => {
  const forged = { 'x-forwarded-for': '10.1.2.3', 'x-real-ip': '10.1.2.3', forwarded: 'for=10.1.2.3' }
  const allowed = await withPolicy(t, { allow: ['10.0.0.0/8'] })
  assert.equal((await ask(allowed.port, { headers: forged })).status, 403)
  const denied = await withPolicy(t, { deny: ['127.0.0.1'] })
  assert.equal((await ask(denied.port, { headers: forged })).status, 403)
  const own = await withPolicy(t, { allow: ['127.0.0.0/8'], deny: ['10.0.0.0/8'] })
  assert.equal((await ask(own.port, { headers: forged })).status, 200)
  const behind = await withPolicy(t, { allow: ['10.0.0.0/8'] }, { trusted: ['127.0.0.1'] })
  const says = async (chain: string) => (await ask(behind.port, { headers: { 'x-forwarded-for': chain } })).status
  assert.equal(await says('10.1.2.3'), 200)
  assert.equal(await says('10.1.2.3, 6.6.6.6'), 403, 'what stands before the last stranger is the stranger’s')
  assert.equal(await says('10.1.2.3, nonsense'), 403)
  assert.equal(await says('10.1.2.3, ::ffff:127.0.0.1'), 200, 'the proxy itself')
  for (const mapped of ['::ffff:10.1.2.3', '::ffff:a01:203']) assert.equal(await says(mapped), 200, mapped)
})

test('a body that is too large is refused before and while it is sent; 0 takes every size', async (t) => {
  const { target } = await serve(t, (req, res) => {
    if (req.url === '/head') res.writeHead(200, { connection: 'close' }).end('early')
    else req.resume().on('end', () => res.end('all'))
  })
  const small = await openInside(t, [route([target], { policy: { bodyBytes: 1000 } })])
  assert.equal((await ask(small.port, { method: 'POST', body: 'x'.repeat(1000) })).status, 200)
  assert.equal((await ask(small.port, { method: 'POST', body: 'x'.repeat(1001) })).status, 413)
  const chunked = 'POST / HTTP/1.1\r\nHost: a.localhost\r\nTransfer-Encoding: chunked\r\n\r\n'
  const half = `258\r\n${'x'.repeat(600)}\r\n`
  assert.match(await sendRaw(small.port, `${chunked}${half}${half}`), /^HTTP\/1.1 413 /)
  const open = await openInside(t, [route([target], { policy: { bodyBytes: 0 } })])
  assert.equal((await ask(open.port, { method: 'POST', body: 'x'.repeat(200_000) })).status, 200)
  // More than the default allows; the program answers before it has arrived.
  const large = `POST /head HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: ${200 << 20}\r\n\r\nx`
  const answerOf = async (port: number): Promise<string> => {
    const socket = connect(port, '127.0.0.1')
    t.after(() => socket.destroy())
    socket.write(large)
    return readUntil(socket, /^HTTP\/1.1 \d+/)
  }
  assert.match(await answerOf(open.port), /^HTTP\/1.1 200 /)
  const usual = await openInside(t, [route([target])])
  assert.match(await answerOf(usual.port), /^HTTP\/1.1 413 /)
})

test('a target that is silent for too long gets a 504 or is cut off, but one that keeps sending may take forever', {
  timeout,
}, async (t) => {
  const { target } = await serve(t, (req, res) => {
    if (req.url === '/hang') return
    res.write('first ')
    if (req.url === '/stuck') return
    let left = 4
    const timer = setInterval(() => (--left === 0 ? res.end('last', () => clearInterval(timer)) : res.write('. ')), 700)
  })
  const { port } = await openInside(t, [route([target], { policy: { readMs: 1500 } })])
  const [hang, posted, stuck, slow] = await Promise.all([
    ask(port, { path: '/hang' }),
    ask(port, { path: '/hang', method: 'POST', body: 'x' }),
    ask(port, { path: '/stuck' }).then(
      () => 'whole',
      () => 'cut',
    ),
    ask(port, { path: '/slow' }),
  ])
  assert.deepEqual([hang.status, posted.status, stuck, slow.body], [504, 504, 'cut', 'first . . . last'])
})

test('the whole of a request, reading by the client and reading by the target have limits of their own', {
  timeout,
}, async (t) => {
  const { target } = await serve(t, (req, res) => {
    if (req.url === '/drip') return void setInterval(() => res.write('.'), 50).unref()
    if (req.url === '/much') return void res.end(Buffer.alloc(32 << 20))
    if (req.url === '/deaf') return
    req.pipe(res)
  })
  const { port, traffic } = await openInside(t, [
    route([target], { policy: { requestMs: 600 } }),
    route([target], { host: 'b.localhost', serviceId: 'b', policy: { clientMs: 400, sendMs: 400 } }),
  ])
  await assert.rejects(ask(port, { path: '/drip' }), { code: 'ECONNRESET' })
  const client = connect(port, '127.0.0.1').on('error', () => {})
  client.write('GET /much HTTP/1.1\r\nHost: b.localhost\r\n\r\n')
  const closed = once(client, 'close')
  client.pause()
  await until(() => traffic.counts.inFlight === 1)
  await until(() => traffic.counts.inFlight === 0)
  client.resume()
  await closed
  assert.ok(client.bytesRead < 32 << 20, `${client.bytesRead} bytes`)
  const sender = connect(port, '127.0.0.1').on('error', () => {})
  const refused = readUntil(sender, /^HTTP\/1.1 504 /)
  sender.write(`POST /deaf HTTP/1.1\r\nHost: b.localhost\r\nContent-Length: ${64 << 20}\r\n\r\n`)
  sender.write(Buffer.alloc(64 << 20))
  await refused
  sender.destroy()
})

test('browsers of listed origins may read answers; preflights are answered without a login', async (t) => {
  const cors = { origins: ['https://app.example.com', 'https://*.shop.example'], methods: 'GET, PUT', headers: 'X-A' }
  const { port } = await withPolicy(t, { cors, users: [sha] })
  const preflight = (origin: string) =>
    ask(port, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'PUT' } })
  const answer = await preflight('https://app.example.com')
  assert.equal(answer.status, 204)
  assert.equal(answer.headers['access-control-allow-origin'], 'https://app.example.com')
  assert.equal(answer.headers['access-control-allow-methods'], 'GET, PUT')
  assert.equal((await preflight('https://a.shop.example')).status, 204)
  for (const stranger of [
    'https://shop.example',
    'https://evil.example',
    'https://app.example.com.evil.example',
    'null',
  ])
    assert.equal((await preflight(stranger)).status, 401, stranger)
  const origin = { origin: 'https://app.example.com' }
  assert.equal((await ask(port, { headers: origin })).headers['access-control-allow-origin'], origin.origin, 'of a 401')
  const read = await ask(port, { headers: { ...origin, ...login('eve', 'secret') } })
  assert.equal(read.headers['access-control-allow-credentials'], 'true')
  // A cache must not give one origin what it keeps for another, or for none.
  for (const headers of [{}, origin, { origin: 'https://evil.example' }]) {
    assert.equal((await ask(port, { headers })).headers.vary, 'Origin', 'of a 401')
    const { status, headers: own } = await ask(port, { headers: { ...headers, ...login('eve', 'secret') } })
    assert.deepEqual([status, own.vary], [200, 'Accept, Origin'])
  }
  const all = await withPolicy(t, { cors: { ...cors, origins: ['*'] } })
  const { headers } = await ask(all.port, { headers: origin })
  assert.deepEqual(
    [headers['access-control-allow-origin'], headers['access-control-allow-credentials']],
    ['*', undefined],
  )
  assert.equal(headers.vary, 'Accept', 'the same for all')
})

test('extra headers take the place of the service’s own', async (t) => {
  const { port } = await withPolicy(t, { headers: { 'X-Frame-Options': 'DENY', 'X-Robots-Tag': 'noindex' } })
  const { headers } = await ask(port)
  assert.deepEqual([headers['x-frame-options'], headers['x-robots-tag']], ['DENY', 'noindex'])
})

test('a client stays with its instance as long as that answers, and gets another one then', async (t) => {
  const programs = await Promise.all(['1', '2', '3'].map((name) => serveNames(t, name)))
  const targets = programs.map(({ target }) => target)
  const { port, table } = await openInside(t, [route(targets, { policy: { sticky: true } })])
  const first = await ask(port)
  const [cookie = ''] = first.headers['set-cookie'] ?? []
  assert.match(cookie, /^SLIPWAY_INSTANCE=[\w-]{22}; Path=\/; Max-Age=86400; HttpOnly; SameSite=Lax$/)
  const headers = { cookie: `a=b; ${cookie.split(';')[0]}; c=d` }
  for (let turn = 0; turn < 6; turn++) {
    const again = await ask(port, { headers })
    assert.equal(again.body, first.body)
    assert.equal(again.headers['set-cookie'], undefined)
  }
  await table.change(() => [
    route(
      targets.filter((_, at) => String(at + 1) !== first.body[0]),
      { policy: { sticky: true } },
    ),
  ])
  const moved = await ask(port, { headers })
  assert.equal(moved.status, 200)
  assert.notEqual(moved.body, first.body)
  assert.match(moved.headers['set-cookie']?.[0] ?? '', /^SLIPWAY_INSTANCE=/)
  assert.notEqual(moved.headers['set-cookie']?.[0], cookie)
})

test('the longest prefix above a path wins; nothing gets past one by spelling the path differently', async (t) => {
  const [root, api, admin] = await Promise.all(['root', 'api', 'admin'].map((name) => serveNames(t, name)))
  const { port } = await openInside(t, [
    route([root!.target]),
    route([api!.target], { path: '/api', rewrite: '/' }),
    route([admin!.target], { path: '/api/admin', rewrite: '/inner' }),
    route([api!.target], { host: 'b.localhost', path: '/only' }),
  ])
  const goes = async (path: string, host = 'a.localhost') => {
    const { status, body } = await ask(port, { path, host })
    return status === 200 ? body : status
  }
  const cases: [string, string | number][] = [
    ['/', 'root /'],
    ['/apix', 'root /apix'],
    ['/API/x', 'root /API/x'],
    ['/api', 'api /'],
    ['/api?q=/api/admin', 'api /?q=/api/admin'],
    ['/api/x%20y?z=1', 'api /x%20y?z=1'],
    ['/api/admin', 'admin /inner'],
    ['/api/admin/u', 'admin /inner/u'],
    ['/%61pi/x', 'api /x'],
    ['//api//x', 'api /x'],
    ['/x/../api/admin', 400],
    ['/api/%2e%2e/x', 400],
    ['/api/./x', 400],
    ['/api/..;/x', 400],
    ['/api%2fadmin', 400],
    ['/api%5cadmin', 400],
    ['/api\\admin', 400],
    ['/%00', 400],
  ]
  for (const [path, wanted] of cases) assert.equal(await goes(path), wanted, path)
  assert.equal(await goes('/only/x', 'b.localhost'), 'api /only/x')
  assert.equal(await goes('/', 'b.localhost'), 404)
})

test('a request is repeated as the settings say, and not when it has a body', { timeout }, async (t) => {
  let asked = 0
  const { target } = await serve(t, (req, res) => {
    asked++
    if (req.url === '/hang' && asked < 2) return
    req.resume()
    res.writeHead(asked < 3 && req.url !== '/hang' ? 503 : 200).end()
  })
  const retry = { times: 2, on: ['retriable-status-codes', 'reset'], statuses: [503], perTryMs: 300 }
  const { port } = await openInside(t, [route([target], { policy: { retry } })])
  assert.deepEqual([(await ask(port)).status, asked], [200, 3])
  asked = 0
  assert.deepEqual([(await ask(port, { method: 'POST', body: 'x' })).status, asked], [503, 1])
  asked = 0
  assert.deepEqual([(await ask(port, { path: '/hang' })).status, asked], [200, 2])
})

test('a client’s connection ends when the settings say, and says so', { timeout }, async (t) => {
  const { target } = await serveNames(t, 'a')
  // Its answer is later than the age that its clients' connections may have.
  const late = await serve(t, (_, res) => void setTimeout(() => res.end(), 100))
  const { port } = await openInside(t, [
    route([target], { policy: { keepAliveMs: 2000 } }),
    route([late.target], { host: 'b.localhost', serviceId: 'b', policy: { connectionMs: 20 } }),
    route([late.target], { host: 'd.localhost', serviceId: 'd', policy: { connectionMs: 60_000 } }),
    route([target], { host: 'c.localhost', serviceId: 'c', policy: { keepAliveMs: 0 } }),
  ])
  const socket = connect(port, '127.0.0.1')
  t.after(() => socket.destroy())
  const closed = once(socket, 'close')
  const said = readUntil(socket, /a \//)
  socket.write('GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n')
  assert.match(await said, /keep-alive: timeout=2\r\n/i)
  socket.resume()
  await closed
  for (const host of ['b', 'c'])
    assert.match(await sendRaw(port, `GET / HTTP/1.1\r\nHost: ${host}.localhost\r\n\r\n`), /connection: close/i)
  const young = connect(port, '127.0.0.1')
  t.after(() => young.destroy())
  young.write('GET / HTTP/1.1\r\nHost: d.localhost\r\n\r\n')
  assert.match(await readUntil(young, /\r\n\r\n/), /connection: keep-alive/i)
})

test('connections to a target stay open as long as the settings say, and a change drops no request', {
  timeout,
}, async (t) => {
  let open = 0
  const used = new Set<unknown>()
  const usual = await serve(t, (_, res) => res.end())
  usual.server.on('connection', (socket) => {
    open++
    socket.once('close', () => open--)
  })
  const held = Promise.withResolvers<void>()
  const kept = await serve(t, async (req, res) => {
    used.add(req.socket)
    await held.promise
    res.end()
  })
  // They do not say how long they would wait.
  for (const { server } of [usual, kept]) server.keepAliveTimeout = 0
  const other = route([usual.target], { host: 'b.localhost', serviceId: 'b' })
  const { port, table } = await openInside(t, [route([kept.target]), other])
  const running = Promise.all(Array.from({ length: 20 }, () => ask(port)))
  await until(() => used.size === 20)
  await table.change(() => [route([kept.target], { policy: { idleMs: 60_000 } }), other])
  held.resolve()
  assert.deepEqual(new Set((await running).map(({ status }) => status)), new Set([200]))
  used.clear()
  await ask(port)
  await ask(port, { host: 'b.localhost' })
  await until(() => open === 0)
  await ask(port)
  assert.equal(used.size, 1)
})

test('headers of a response may be as large as the settings say', async (t) => {
  const { target } = await serve(t, (_, res) => res.setHeader('x-large', 'x'.repeat(100_000)).end('large'))
  const { port } = await openInside(t, [
    route([target]),
    route([target], { host: 'b.localhost', serviceId: 'b', policy: { headerBytes: 128 << 10 } }),
  ])
  assert.equal((await ask(port)).status, 502)
  const answered = await new Promise<number | undefined>((resolve, reject) =>
    request(
      { port, host: '127.0.0.1', maxHeaderSize: 1 << 20, headers: { host: 'b.localhost' }, agent: false },
      (answer) => resolve(answer.resume().statusCode),
    )
      .on('error', reject)
      .end(),
  )
  assert.equal(answered, 200)
})

/** A program whose queue is full, so that the kernel answers no further client. */
const serveNobody = async (t: Parameters<typeof serve>[0]): Promise<number> => {
  const program = `const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    require('node:fs').writeSync(1, server.address().port + '\\n')
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
  })`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  const [line] = await once(child.stdout.setEncoding('utf8'), 'data')
  const port = Number(line)
  for (let isFull = false; !isFull; ) {
    const socket = connect(port, '127.0.0.1').on('error', () => {})
    t.after(() => socket.destroy())
    const late = AbortSignal.timeout(200)
    isFull = await once(socket, 'connect', { signal: late }).then(
      () => false,
      () => true,
    )
  }
  return port
}

test('connecting may take no longer than the settings say', async (t) => {
  const target = { host: '127.0.0.1', port: await serveNobody(t) }
  const { port } = await openInside(t, [route([target], { policy: { connectMs: 300 } })])
  const began = performance.now()
  assert.equal((await ask(port)).status, 504)
  const tookMs = performance.now() - began
  assert.ok(tookMs > 290 && tookMs < 1400 * patience, `${tookMs} ms`)
})

test('gRPC: lists, passwords, prefixes, extra headers and silence act as for HTTP, in gRPC’s words', {
  timeout,
}, async (t) => {
  const { target } = await serveGrpc(t, echo('a'))
  const grpc = (host: string, policy: Policy, more = {}) =>
    route([target], { host, serviceId: host, protocol: 'GRPC', policy, ...more })
  const { port } = await openInside(t, [
    grpc('a.localhost', { users: [sha], headers: { 'x-extra': '1' } }),
    grpc('b.localhost', { deny: ['127.0.0.1'] }),
    grpc('c.localhost', { grpcReadMs: 300 }),
    grpc('d.localhost', {}, { path: '/pkg.One' }),
    grpc('e.localhost', { requestMs: 300 }),
    // As an earlier release may still send: HTTP/2 has no such headers.
    grpc('g.localhost', { headers: { 'Proxy-Connection': 'close', 'HTTP2-Settings': 'x', 'X-Extra': '2' } }),
    grpc('h.localhost', { headers: { 'Proxy-Connection': 'close' }, deny: ['127.0.0.1'] }),
    grpc('f.localhost', { cors: { origins: ['https://app.example.com'], methods: 'POST', headers: 'X-A' } }),
  ])
  const session = openClient(t, port)
  const call = (authority: string, path = '/x', more = {}) =>
    callGrpc(session, path, 'hello', { ':authority': `${authority}.localhost`, ...more })
  assert.equal((await call('a')).trailers['grpc-status'], '16')
  const good = await call('a', '/x', login('eve', 'secret'))
  assert.deepEqual([good.body, good.headers['x-extra']], ['hello', '1'])
  const crossing = await call('f', '/x', { origin: 'https://evil.example' })
  assert.deepEqual([crossing.body, crossing.headers.vary], ['hello', 'Origin'])
  const other = await call('g')
  assert.deepEqual([other.body, other.headers['x-extra']], ['hello', '2'])
  assert.equal((await call('h')).trailers['grpc-status'], '7')
  assert.equal((await call('b')).trailers['grpc-status'], '7')
  assert.equal((await call('c', '/hang')).trailers['grpc-status'], '4')
  assert.equal((await call('d', '/pkg.One/Do')).body, 'hello')
  assert.equal((await call('d', '/pkg.Two/Do')).trailers['grpc-status'], '12')
  const endless = openStream(session, '/x', { ':authority': 'e.localhost' })
  const timer = setInterval(() => endless.destroyed || endless.write('.'), 50)
  assert.equal((await readStream(endless)).trailers['grpc-status'], '4')
  clearInterval(timer)
})

test('a gRPC stream whose target leaves it unread ends when the settings say, not sooner, and 0 lets it wait', {
  timeout: 20_000,
}, async (t) => {
  // It answers, and reads nothing.
  const { target } = await serveGrpc(t, (stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
    stream.pause()
  })
  const { port } = await openInside(t, [
    route([target], { host: 'a.localhost', serviceId: 'a', protocol: 'GRPC', policy: { grpcSendMs: 600 } }),
    route([target], {
      host: 'b.localhost',
      serviceId: 'b',
      protocol: 'GRPC',
      policy: { grpcReadMs: 300, grpcSendMs: 0 },
    }),
  ])
  const session = openClient(t, port)
  const flood = (authority: string) => {
    const stream = openStream(session, '/x', { ':authority': authority })
    for (let sent = 0; sent < 8; sent += 1) stream.write(Buffer.alloc(256 * 1024))
    return stream
  }
  const patient = flood('b.localhost')
  const began = performance.now()
  const late = await readStream(flood('a.localhost'))
  const tookMs = performance.now() - began
  assert.equal(late.trailers['grpc-status'], '4')
  assert.ok(tookMs > 500 && tookMs < 5000, `${tookMs} ms`)
  assert.equal(patient.closed, false)
  patient.close()
})

test('response headers may end in LF alone, as for nginx and browsers; those of requests may not', async (t) => {
  const { createServer } = await import('node:net')
  const server = createServer((socket) =>
    socket
      .on('error', () => {})
      .once('data', () => socket.end('HTTP/1.0 200 OK\nContent-Type: text/plain\nX-A: b\n\nhello')),
  ).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => server.close())
  const { port: own } = server.address() as { port: number }
  const { port } = await openInside(t, [route([{ host: '127.0.0.1', port: own }])])
  const answer = await ask(port)
  assert.deepEqual([answer.status, answer.headers['x-a'], answer.body], [200, 'b', 'hello'])
  assert.match(await sendRaw(port, 'GET / HTTP/1.1\nHost: a.localhost\n\n'), /^HTTP\/1.1 400 /)
})
