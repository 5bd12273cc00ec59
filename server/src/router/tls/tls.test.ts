/** HTTPS of the router: which certificate, which host, which protocol; and keys that try to break it. */
import assert from 'node:assert/strict'
import { generateKeyPairSync, X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { connect as connectHttp2 } from 'node:http2'
import { type RequestOptions, request } from 'node:https'
import { connect } from 'node:net'
import { type TestContext, test } from 'node:test'
import { connect as connectTls, type TLSSocket } from 'node:tls'
import { echo, serveGrpc } from '../../../test/support/router/grpc.ts'
import {
  type Answer,
  ask,
  freePort,
  readAnswer,
  route,
  serve,
  startProcess,
  until,
} from '../../../test/support/router/parts.ts'
import { hostileKey, lockedKey } from '../../../test/support/tls/hostile-key.ts'
import { createTestCa } from '../../../test/support/tls/test-ca.ts'
import type { ProcessRouter } from '../control/client.ts'
import type { Route, Target } from '../router.ts'
import { refuseCertificate } from './check-certificate.ts'

const ca = await createTestCa()

const httpsPort = async (router: ProcessRouter): Promise<number> => (await router.health())!.tlsPort!

const open = async (t: TestContext, more: { hstsSeconds?: number } = {}) => {
  const started = await startProcess(t, { tlsPort: 0, ...more })
  return { ...started, tlsPort: await httpsPort(started.router) }
}

const give = async (router: ProcessRouter, host: string, life?: { notAfter?: Date }): Promise<string> => {
  const pair = await ca.issue(host, life)
  await router.setTls(host, pair)
  return pair.certificate
}

const askTls = async (port: number, host: string, more: RequestOptions & { body?: string } = {}): Promise<Answer> => {
  const { body, ...rest } = more
  const options = { host: '127.0.0.1', port, servername: host, ca: ca.certificate, agent: false, ...rest }
  const out = request({ ...options, headers: { host, ...more.headers } })
  out.end(body)
  const [answer] = (await once(out, 'response')) as [Parameters<typeof readAnswer>[0]]
  return readAnswer(answer)
}

interface Streamed {
  status: number
  headers: Record<string, unknown>
  trailers: Record<string, unknown>
  body: string
}

const askHttp2 = async (
  t: TestContext,
  port: number,
  servername: string,
  headers: Record<string, string | string[]>,
  body?: string,
): Promise<Streamed> => {
  const session = connectHttp2(`https://${servername}:${port}`, {
    ca: ca.certificate,
    createConnection: () =>
      connectTls({ host: '127.0.0.1', port, servername, ca: ca.certificate, ALPNProtocols: ['h2'] }),
  })
  t.after(() => session.destroy())
  session.on('error', () => {})
  const stream = session.request({ ':path': '/', ...headers }, { endStream: body === undefined })
  if (body !== undefined) stream.end(body)
  let trailers = {}
  stream.on('trailers', (found) => {
    trailers = found
  })
  const [found] = (await once(stream, 'response')) as [Record<string, unknown>]
  let text = ''
  for await (const chunk of stream.setEncoding('utf8')) text += chunk
  session.close()
  return { status: Number(found[':status']), headers: found, trailers, body: text }
}

/** The answer to bytes that are sent as they are. */
const sendTls = async (port: number, servername: string, bytes: string): Promise<string> => {
  const socket = connectTls({ host: '127.0.0.1', port, servername, ca: ca.certificate, ALPNProtocols: ['http/1.1'] })
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk
  })
  socket.on('error', () => {})
  socket.write(bytes)
  await once(socket, 'close')
  return text
}

const twoHosts = (target: Target): Route[] => [route([target]), route([target], { host: 'b.localhost' })]

test('HTTPS is served for a host that has a certificate, over TLS 1.2 and 1.3, and HTTP leads to it', async (t) => {
  const { target } = await serve(t, (req, res) => res.end(JSON.stringify(req.headers)))
  const { router, port, tlsPort } = await open(t, { hstsSeconds: 300 })
  await router.setService('a', twoHosts(target))
  assert.equal((await ask(port)).status, 200)
  await give(router, 'a.localhost')
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    const answer = await askTls(tlsPort, 'a.localhost', { minVersion: version, maxVersion: version })
    const seen = JSON.parse(answer.body)
    assert.deepEqual([seen['x-forwarded-proto'], seen['x-forwarded-for']], ['https', '127.0.0.1'])
    assert.equal(answer.headers['strict-transport-security'], 'max-age=300')
  }
  const moved = await ask(port, { method: 'POST', path: '/x?y=1', body: 'z' })
  assert.deepEqual([moved.status, moved.headers.location], [308, `https://a.localhost:${tlsPort}/x?y=1`])
  assert.equal(moved.headers['strict-transport-security'], undefined)
  assert.equal((await ask(port, { host: 'b.localhost' })).status, 200)
  assert.equal(router.url('a.localhost'), `https://a.localhost:${tlsPort}`)
  assert.equal(router.url('b.localhost'), `http://b.localhost:${port}`)
  await router.setService('a', [route([target], { policy: { keepsHttp: true } })])
  assert.equal((await ask(port)).status, 200)
})

test('an old version of TLS, a host without a certificate and a client that names none are not served', async (t) => {
  const { router, tlsPort } = await open(t)
  await give(router, 'a.localhost')
  await assert.rejects(askTls(tlsPort, 'a.localhost', { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1' }))
  await assert.rejects(askTls(tlsPort, 'b.localhost', { rejectUnauthorized: false }))
  const socket = connectTls({ host: '127.0.0.1', port: tlsPort, rejectUnauthorized: false })
  await assert.rejects(once(socket, 'secureConnect'))
  assert.equal((await askTls(tlsPort, 'a.localhost')).status, 404)
})

test('a connection is for the host of its certificate only, over HTTP/1.1, HTTP/2 and for gRPC', async (t) => {
  const program = await serve(t, (_req, res) => res.end('inside'))
  const far = await serveGrpc(t, echo('v1'))
  const { router, tlsPort } = await open(t)
  await router.setService('a', twoHosts(program.target))
  await router.setService('g', [route([far.target], { host: 'g.localhost', serviceId: 'g', protocol: 'GRPC' })])
  for (const host of ['a.localhost', 'b.localhost', 'g.localhost']) await give(router, host)
  for (const host of ['b.localhost', 'none.localhost', 'a.localhost.evil']) {
    assert.equal((await askTls(tlsPort, 'a.localhost', { headers: { host } })).status, 421)
    const over2 = await askHttp2(t, tlsPort, 'a.localhost', { ':authority': host })
    assert.deepEqual([over2.status, over2.body.includes('inside')], [421, false])
  }
  const upgrade = { host: 'b.localhost', connection: 'upgrade', upgrade: 'websocket' }
  assert.equal((await askTls(tlsPort, 'a.localhost', { headers: upgrade })).status, 421)
  const headers = { ':method': 'POST', ':authority': 'g.localhost', 'content-type': 'application/grpc' }
  assert.equal((await askHttp2(t, tlsPort, 'a.localhost', headers, 'x')).headers['grpc-status'], '13')
  assert.equal((await askHttp2(t, tlsPort, 'g.localhost', { ...headers, ':path': '/unary' }, 'x')).body, 'x')
  assert.equal((await askTls(tlsPort, 'a.localhost', { headers: { host: 'A.localhost.:99' } })).body, 'inside')
})

test('a service that speaks HTTP/1.1 is asked over HTTP/2: bodies, cookies, trailers, HEAD and refusals', async (t) => {
  const { target } = await serve(t, async (req, res) => {
    let body = ''
    try {
      for await (const chunk of req) body += chunk
    } catch {
      // Its head was passed on before more than the allowed bytes arrived.
      return
    }
    res.setHeader('set-cookie', ['a=1', 'b=2'])
    res.setHeader('x-connection', String(req.headers.connection))
    if (req.url === '/trailers') res.writeHead(200, { trailer: 'x-sum' })
    res.write(JSON.stringify({ url: req.url, method: req.method, headers: req.headers, body }))
    if (req.url === '/trailers') res.addTrailers({ 'http2-settings': 'never passed on', 'x-sum': '42' })
    res.end()
  })
  const { router, tlsPort } = await open(t, { hstsSeconds: 60 })
  await router.setService('a', [route([target])])
  await give(router, 'a.localhost')
  const asked = { ':method': 'POST', ':path': '/p?q=1', cookie: ['a=1', 'b=2'], 'x-forwarded-for': '6.6.6.6' }
  const answer = await askHttp2(t, tlsPort, 'a.localhost', asked, 'hello')
  const seen = JSON.parse(answer.body)
  assert.deepEqual([answer.status, seen.url, seen.method, seen.body], [200, '/p?q=1', 'POST', 'hello'])
  const { cookie, host } = seen.headers
  assert.deepEqual([cookie, host], ['a=1; b=2', `a.localhost:${tlsPort}`])
  assert.deepEqual([seen.headers['x-forwarded-for'], seen.headers['x-forwarded-proto']], ['127.0.0.1', 'https'])
  assert.deepEqual(answer.headers['set-cookie'], ['a=1', 'b=2'])
  assert.equal(answer.headers['strict-transport-security'], 'max-age=60')
  assert.equal(answer.headers.connection, undefined)
  assert.equal((await askHttp2(t, tlsPort, 'a.localhost', { ':path': '/trailers' })).trailers['x-sum'], '42')
  assert.equal(JSON.parse((await askHttp2(t, tlsPort, 'a.localhost', { ':method': 'POST' }, '')).body).body, '')
  const head = await askHttp2(t, tlsPort, 'a.localhost', { ':method': 'HEAD' })
  assert.deepEqual([head.status, head.body], [200, ''])
  await router.setService('a', [route([target], { policy: { bodyBytes: 10 } })])
  const large = await askHttp2(t, tlsPort, 'a.localhost', { ':method': 'POST' }, 'x'.repeat(100_000))
  assert.equal(large.status, 413)
  await router.setService('a', [route([target], { state: 'stopped' })])
  assert.equal((await askHttp2(t, tlsPort, 'a.localhost', {})).status, 503)
  assert.equal((await router.counts()).internalErrors, 0)
})

test('what two servers could read differently is refused over TLS as without, and HTTP/2 smuggles nothing', async (t) => {
  const urls: string[] = []
  const { target } = await serve(t, (req, res) => {
    urls.push(String(req.url))
    req.resume().on('end', () => res.end('ok'))
  })
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target])])
  await give(router, 'a.localhost')
  const head = 'POST /seen HTTP/1.1\r\nHost: a.localhost\r\n'
  const inner = 'GET /smuggled HTTP/1.1\r\nHost: a.localhost\r\n\r\n'
  const attacks = [
    `${head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${inner}`,
    `${head}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${inner}`,
    `${head}Content-Length: 0\r\nContent-Length: 44\r\n\r\n${inner}`,
    `${head}Host: b.localhost\r\nContent-Length: 0\r\n\r\n`,
    `${head}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${inner}`,
    `${head}Content-Length: +5\r\n\r\n${inner}`,
  ]
  for (const bytes of attacks) {
    const answer = await sendTls(tlsPort, 'a.localhost', bytes)
    assert.match(answer, /^HTTP\/1\.1 (400|501) /, bytes)
    assert.ok(!answer.includes('\nok'), bytes)
  }
  // Node's client refuses to send headers of HTTP/1.1, so only those that it allows are tried here.
  const lengths: Record<string, string>[] = [{ 'content-length': '0' }, { 'content-length': '3' }]
  for (const headers of lengths) {
    const asked = askHttp2(t, tlsPort, 'a.localhost', { ':method': 'POST', ':path': '/length', ...headers }, inner)
    await asked.then(
      ({ status }) => assert.notEqual(status, 200),
      () => {},
    )
  }
  for (const path of ['*', 'http://b.localhost/x', '/a b', '/a\r\nX: y']) {
    const asked = Promise.resolve().then(() => askHttp2(t, tlsPort, 'a.localhost', { ':path': path }))
    await asked.then(
      ({ status }) => assert.equal(status, 400, path),
      () => {},
    )
  }
  assert.ok(!urls.includes('/smuggled'), JSON.stringify(urls))
  assert.equal((await router.counts()).internalErrors, 0)
  assert.equal((await askTls(tlsPort, 'a.localhost')).body, 'ok')
})

const frame = (type: number, flags: number, payload: Buffer = Buffer.alloc(0), stream = 1): Buffer => {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.set([type, flags], 3)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** A header as it is, which no honest client would send. */
const literal = (name: string, value: string): Buffer =>
  Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)])

/** The frames of one request, in order; the body ends the stream. */
const rawStream = (fields: Record<string, string | string[]>, body: string): Buffer => {
  const all = { ':method': 'POST', ':scheme': 'https', ':path': '/seen', ':authority': 'a.localhost', ...fields }
  const names = Object.entries(all).flatMap(([name, value]) => [value].flat().map((each) => literal(name, each)))
  return Buffer.concat([
    Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
    frame(4, 0, Buffer.alloc(0), 0),
    frame(1, 4, Buffer.concat(names)),
    frame(0, 1, Buffer.from(body)),
  ])
}

test('frames of HTTP/2 that would be two requests, or other headers, in HTTP/1.1 reach no program as such', async (t) => {
  const seen: string[] = []
  const { target } = await serve(t, (req, res) => {
    const { 'x-forwarded-for': _, 'x-injected': injected, host } = req.headers
    seen.push(`${req.method} ${req.url} ${host} ${injected}`)
    req.resume().on('end', () => res.end('ok'))
  })
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target]), route([target], { host: 'b.localhost' })])
  await give(router, 'a.localhost')
  const inner = 'GET /smuggled HTTP/1.1\r\nHost: b.localhost\r\nX-Injected: 1\r\n\r\n'
  const attacks: [Record<string, string | string[]>, string][] = [
    [{ 'transfer-encoding': 'chunked' }, `0\r\n\r\n${inner}`],
    [{ 'content-length': '0' }, inner],
    [{ 'content-length': ['0', String(inner.length)] }, inner],
    [{ connection: 'transfer-encoding' }, inner],
    [{ upgrade: 'websocket', connection: 'upgrade' }, inner],
    [{ 'x-a': `b\r\n\r\n${inner}` }, ''],
    [{ 'x-a': 'b\r\nx-injected: 1' }, ''],
    [{ 'x-a': 'b\nx-injected: 1' }, ''],
    [{ 'x-a: b\r\nx-injected': '1' }, ''],
    [{ ':path': `/seen HTTP/1.1\r\nX-Injected: 1\r\n\r\n${inner}` }, ''],
    [{ ':path': '/seen\r\nx-injected:1' }, ''],
    [{ ':path': ['/seen', '/smuggled'] }, ''],
    [{ ':path': 'https://b.localhost/smuggled' }, ''],
    [{ ':method': `GET /smuggled HTTP/1.1\r\nX-Injected: 1\r\nX:` }, ''],
    [{ ':authority': 'b.localhost' }, ''],
    [{ ':authority': ['a.localhost', 'b.localhost'] }, ''],
    [{ host: 'b.localhost' }, ''],
    [{ ':authority': 'a.localhost\r\nx-injected: 1' }, ''],
    [{ ':authority': 'a.localhost@b.localhost' }, ''],
  ]
  for (const [fields, body] of attacks) {
    const place = { host: '127.0.0.1', port: tlsPort, servername: 'a.localhost', ca: ca.certificate }
    const socket = connectTls({ ...place, ALPNProtocols: ['h2'] })
    socket.on('error', () => {})
    await once(socket, 'secureConnect')
    // The stream or its connection ends, or a response begins.
    let isAnswered = false
    let bytes = Buffer.alloc(0)
    socket.once('close', () => {
      isAnswered = true
    })
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      while (bytes.length >= 9 && bytes.length >= 9 + bytes.readUIntBE(0, 3)) {
        if ([1, 3, 7].includes(bytes[3]!)) isAnswered = true
        bytes = bytes.subarray(9 + bytes.readUIntBE(0, 3))
      }
    })
    socket.write(rawStream(fields, body))
    await until(() => isAnswered)
    socket.destroy()
  }
  assert.equal((await askTls(tlsPort, 'a.localhost')).body, 'ok')
  // The request that did reach it was one plain request, for the host of its connection.
  const others = seen.filter((each) => !/^(POST \/seen|GET \/) a\.localhost undefined$/.test(each))
  assert.deepEqual(others, [])
  assert.equal((await router.counts()).internalErrors, 0)
})

const serialOf = (socket: TLSSocket): string => socket.getPeerCertificate().serialNumber

test('a certificate is replaced under load without a failed request, and open connections stay', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target])])
  await give(router, 'a.localhost')
  const kept = connectTls({ host: '127.0.0.1', port: tlsPort, servername: 'a.localhost', ca: ca.certificate })
  await once(kept, 'secureConnect')
  const first = serialOf(kept)
  let isOver = false
  const client = async (): Promise<number> => {
    let count = 0
    for (; !isOver; count++) assert.equal((await askTls(tlsPort, 'a.localhost')).body, 'ok')
    return count
  }
  const clients = Array.from({ length: 4 }, client)
  let newest = ''
  for (let turn = 0; turn < 10; turn++) newest = await give(router, 'a.localhost')
  isOver = true
  assert.ok((await Promise.all(clients)).every((count) => count > 0))
  const fresh = connectTls({ host: '127.0.0.1', port: tlsPort, servername: 'a.localhost', ca: ca.certificate })
  await once(fresh, 'secureConnect')
  assert.notEqual(serialOf(fresh), first)
  assert.equal(serialOf(fresh), new X509Certificate(newest).serialNumber)
  kept.write('GET / HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n')
  const [bytes] = (await once(kept, 'data')) as [Buffer]
  assert.match(bytes.toString(), /^HTTP\/1\.1 200 /)
  fresh.destroy()
})

test('certificates outlast the death of the router, in files of its own user, and end with their host', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const ports = { port: await freePort(), tlsPort: await freePort() }
  const { router, dataDir } = await startProcess(t, ports)
  await router.setService('a', [route([target])])
  await give(router, 'a.localhost')
  const { pid } = (await router.health())!
  process.kill(pid, 'SIGKILL')
  // The next call starts it.
  assert.equal((await router.tls())['a.localhost']?.isServed, true)
  assert.equal((await askTls(ports.tlsPort, 'a.localhost')).body, 'ok')
  assert.equal((await stat(`${dataDir}/router/tls`)).mode & 0o777, 0o700)
  await router.setTls('a.localhost', {})
  assert.deepEqual(await router.tls(), {})
  await assert.rejects(askTls(ports.tlsPort, 'a.localhost'))
})

test('a wildcard serves the names of its level that have no certificate of their own', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, tlsPort, port } = await open(t)
  const hosts = ['a.level.localhost', 'own.level.localhost', 'b.a.level.localhost'] as const
  const routes = hosts.map((host) => route([target], { host }))
  await router.setService('a', routes)
  const pems = [await give(router, '*.level.localhost'), await give(router, 'own.level.localhost')]
  for (const [index, pem] of pems.entries()) {
    const servername = hosts[index]!
    const socket = connectTls({ host: '127.0.0.1', port: tlsPort, servername, ca: ca.certificate })
    await once(socket, 'secureConnect')
    assert.equal(serialOf(socket), new X509Certificate(pem).serialNumber)
    socket.destroy()
    assert.equal((await ask(port, { host: servername })).status, 308)
  }
  await assert.rejects(askTls(tlsPort, hosts[2]))
})

test('answers to challenges come over HTTP, before anything leads to HTTPS', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('the service'))
  const { router, port } = await open(t)
  await router.setService('a', [route([target])])
  const pair = await ca.issue('a.localhost')
  await router.setTls('a.localhost', { ...pair, challenge: { token: 'tok-en_1', answer: 'tok-en_1.print' } })
  await router.setTls('c.localhost', { challenge: { token: 'other', answer: 'other.print' } })
  const path = (token: string) => ({ path: `/.well-known/acme-challenge/${token}` })
  const answer = await ask(port, path('tok-en_1'))
  assert.deepEqual([answer.status, answer.body], [200, 'tok-en_1.print'])
  assert.equal((await ask(port, { ...path('other'), host: 'c.localhost' })).body, 'other.print')
  assert.equal((await ask(port, { ...path('tok-en_1'), host: 'c.localhost' })).status, 404)
  assert.equal((await ask(port, path('unknown'))).status, 308)
})

test('a CA that asks over TLS-ALPN-01 sees its challenge, and everybody else the certificate', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target])])
  const [pair, alpn] = [await ca.issue('a.localhost'), await ca.issue('a.localhost')]
  await router.setTls('a.localhost', { ...pair, alpn })
  const place = { host: '127.0.0.1', port: tlsPort, servername: 'a.localhost', ca: ca.certificate }
  const asking = connectTls({ ...place, ALPNProtocols: ['acme-tls/1'] })
  await once(asking, 'secureConnect')
  assert.equal(asking.alpnProtocol, 'acme-tls/1')
  assert.equal(serialOf(asking), new X509Certificate(alpn.certificate).serialNumber)
  asking.destroy()
  assert.equal((await askTls(tlsPort, 'a.localhost')).body, 'ok')
  assert.equal((await askHttp2(t, tlsPort, 'a.localhost', {})).body, 'ok')
  // The first message in two pieces.
  const both = connectTls({ ...place, ALPNProtocols: ['acme-tls/1', 'h2'] })
  await once(both, 'secureConnect')
  assert.equal(serialOf(both), new X509Certificate(pair.certificate).serialNumber)
  both.destroy()
})

test('a pair that cannot be served is refused, and the one before stays', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target])])
  const good = await ca.issue('a.localhost')
  await router.setTls('a.localhost', good)
  const other = await ca.issue('a.localhost')
  const bad: [string, unknown][] = [
    ['belongs to another certificate', { ...good, key: other.key }],
    ['another host', await ca.issue('b.localhost')],
    ['cannot be read', { ...good, certificate: 'x' }],
    ['cannot be read', { ...good, key: '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----' }],
    ['too large', { ...good, key: good.key + 'A'.repeat(9000) }],
    ['too large', { ...good, certificate: good.certificate.repeat(500) }],
    ['too large', { certificate: good.certificate }],
    ['malformed', { challenge: { token: '../x', answer: 'y' } }],
  ]
  for (const [why, pair] of bad) await assert.rejects(router.setTls('a.localhost', pair as never), new RegExp(why))
  await assert.rejects(router.setTls('A.localhost', good), /lower-case host name/)
  assert.equal((await askTls(tlsPort, 'a.localhost')).body, 'ok')
})

test('keys are looked at before anything is computed with them', async () => {
  const { certificate } = await ca.issue('a.localhost')
  const pem = (key: ReturnType<typeof generateKeyPairSync>['privateKey']) =>
    String(key.export({ type: 'pkcs8', format: 'pem' }))
  const judge = (key: string) => refuseCertificate('a.localhost', { certificate, key })
  const short = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey
  assert.match(String(await judge(pem(short as never))), /1024 bits/)
  const curve = generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).privateKey
  assert.match(String(await judge(pem(curve as never))), /curve/)
  assert.match(String(await judge(pem(generateKeyPairSync('ed25519').privateKey as never))), /RSA or ECDSA/)
  assert.match(String(await judge(hostileKey(1024, 1024, 512))), /bits; 2048 to 4096 are supported/)
  assert.match(String(await judge(hostileKey(2048, 2048, 1024))), /too large/)
  assert.match(String(await judge(hostileKey(257, 2048, 128))), /not consistent|cannot be read/)
  assert.match(String(await judge(hostileKey(257, 257, 700))), /not consistent|cannot be read/)
  assert.match(String(await judge(hostileKey(257, 257, 129))), /not consistent|cannot be read/)
  assert.match(String(await judge(hostileKey(257, 257, 129, 257))), /not consistent|cannot be read/)
  assert.match(String(await judge(lockedKey())), /without a password/)
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
  assert.match(String(await judge(pem(rsa as never))), /another certificate/)
})

test('a client that begins no handshake, or floods them, keeps no other client out', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { router, tlsPort } = await open(t)
  await router.setService('a', [route([target])])
  await give(router, 'a.localhost')
  const silent = Array.from({ length: 250 }, () => {
    const socket = connect(tlsPort, '127.0.0.1').on('error', () => {})
    return { socket, closed: new Promise((resolve) => socket.once('close', resolve)) }
  })
  t.after(() => {
    for (const { socket } of silent) socket.destroy()
  })
  // Some are over the limit of one address.
  await Promise.race(silent.map(({ closed }) => closed))
  for (const { socket } of silent) socket.destroy()
  await Promise.all(silent.map(({ closed }) => closed))
  await until(async () => (await askTls(tlsPort, 'a.localhost').catch(() => null))?.body === 'ok')
})
