/** The same calls over TLS and over SSH, against a small server that answers as an engine does. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { createAuthority } from '../../../test/support/peers/certificates.ts'
import {
  makeSshKey,
  type SshServer,
  sshServerIsMissing,
  startSshServer,
} from '../../../test/support/peers/ssh-server.ts'
import { until } from '../../../test/support/until.ts'
import { Secret } from '../secret.ts'
import { createEngine, type Engine, EngineError } from './docker-engine.ts'
import type { EngineConnection, SshConnection, TcpConnection } from './engine-connection.ts'
import { explainEngine } from './engine-errors.ts'

const chunk = Buffer.alloc(1 << 20, 'a')

/** An engine with a ping, an upload that it counts, an error, and a stream without an end. */
const answer: RequestListener = (request, response) => {
  if (request.url === '/gone') return response.writeHead(404).end('{"message":"no such container"}')
  if (request.url === '/events') return response.writeHead(200).write('one\n')
  if (request.url === '/large') return response.end(Buffer.concat([chunk, chunk, chunk, chunk]))
  let size = 0
  request.on('data', (data: Buffer) => {
    size += data.length
  })
  request.on('end', () => response.setHeader('content-type', 'application/json').end(JSON.stringify({ size })))
}

const folder = mkdtempSync(join(tmpdir(), 'engine-test-'))
const authority = await createAuthority()
after(() => {
  authority.close()
  rmSync(folder, { recursive: true, force: true })
})

const open = (t: TestContext, connection: EngineConnection): Engine => {
  const engine = createEngine(connection)
  t.after(() => engine.close())
  return engine
}

const problem = (engine: Engine): Promise<string> =>
  engine.call('GET', '/_ping', { deadlineMs: 5000 }).then(() => 'answers', explainEngine)

/** Everything that the server does with an engine. */
const exercise = async (engine: Engine): Promise<void> => {
  assert.deepEqual(await engine.call('POST', '/build', { body: chunk }), { size: chunk.length })
  assert.deepEqual(await engine.call('POST', '/json', { body: { a: 1 } }), { size: 7 })
  await assert.rejects(
    engine.call('DELETE', '/gone'),
    (error: Error) => error instanceof EngineError && error.status === 404,
  )
  const streams = await Promise.all(Array.from({ length: 20 }, () => engine.stream('GET', '/events')))
  for (const stream of streams) assert.equal(String((await once(stream, 'data'))[0]), 'one\n')
  // Other requests are answered while the streams are open.
  let size = 0
  for await (const part of await engine.stream('GET', '/large')) size += (part as Buffer).length
  assert.equal(size, 4 * chunk.length)
  for (const stream of streams) stream.destroy()
  const control = new AbortController()
  const aborted = engine.stream('GET', '/events', { signal: control.signal })
  const read = await aborted
  control.abort(new Error('enough'))
  await assert.rejects(async () => {
    for await (const _ of read);
  })
}

const startTls = async (t: TestContext, name: string, days?: string): Promise<number> => {
  const own = await authority.sign(name, days === undefined ? {} : { notAfter: days })
  const server = createTlsServer({ ...own, ca: authority.ca, requestCert: true, rejectUnauthorized: true }, answer)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return (server.address() as AddressInfo).port
}

const client = await authority.sign()
const tls = { ca: authority.ca, cert: client.cert, key: new Secret(client.key) }

test('an engine behind TLS is reached with a client certificate, at the address that was checked', async (t) => {
  const port = await startTls(t, 'DNS:engine.example')
  const asked: string[] = []
  const pin: TcpConnection['pin'] = async (host, at) => {
    asked.push(`${host}:${at}`)
    return { address: '127.0.0.1' }
  }
  await exercise(open(t, { kind: 'tcp', host: 'engine.example', port, tls, pin }))
  assert.ok(asked.length > 1 && asked.every((each) => each === `engine.example:${port}`))
  const byAddress = await startTls(t, 'IP:127.0.0.1')
  assert.equal(await problem(open(t, { kind: 'tcp', host: '127.0.0.1', port: byAddress, tls })), 'answers')
})

test('what is wrong with a connection over TLS is said in a sentence', async (t) => {
  const port = await startTls(t, 'IP:127.0.0.1')
  const base: TcpConnection = { kind: 'tcp', host: '127.0.0.1', port, tls }
  const other = await createAuthority()
  t.after(() => other.close())
  const stranger = await other.sign()
  const plain = createServer(answer).listen(0, '127.0.0.1')
  await once(plain, 'listening')
  t.after(() => plain.close())
  const cases: [Partial<TcpConnection>, RegExp][] = [
    [{ tls: { ...tls, ca: other.ca } }, /not signed by the given certificate authority/],
    [{ tls: { ca: tls.ca } }, /client certificate/],
    [{ tls: { ca: tls.ca, cert: stranger.cert, key: new Secret(stranger.key) } }, /client certificate/],
    [{ port: await startTls(t, 'DNS:engine.example') }, /is not for this host name/],
    [{ port: await startTls(t, 'IP:127.0.0.1', '0') }, /has expired/],
    [{ port: (plain.address() as AddressInfo).port }, /does not use TLS/],
    [{ port: 1 }, /connection was refused/],
    [{ host: 'no-such-host.invalid' }, /host name could not be resolved/],
  ]
  for (const [change, expected] of cases) assert.match(await problem(open(t, { ...base, ...change })), expected)
})

const startSsh = async (t: TestContext): Promise<{ server: SshServer; connection: SshConnection }> => {
  const socketPath = join(folder, `${t.name.length}.sock`)
  const engine = createServer(answer).listen(socketPath)
  await once(engine, 'listening')
  const server = await startSshServer()
  t.after(async () => {
    engine.close()
    engine.closeAllConnections()
    await server.close()
  })
  const { host, port, user, hostKeys } = server
  return { server, connection: { kind: 'ssh', host, port, user, hostKeys, key: new Secret(server.key), socketPath } }
}

test('an engine behind SSH is reached over one connection, and again when that broke', {
  skip: sshServerIsMissing,
}, async (t) => {
  const { server, connection } = await startSsh(t)
  let logins = 0
  const engine = open(t, {
    ...connection,
    host: 'engine.example',
    pin: async () => {
      logins += 1
      return { address: server.host }
    },
  })
  await exercise(engine)
  assert.equal(logins, 1)
  const events = await engine.stream('GET', '/events')
  await server.stop()
  await assert.rejects(async () => {
    for await (const _ of events);
  })
  assert.match(await problem(engine), /connection was refused/)
  await server.start()
  await until(async () => (await problem(engine)) === 'answers', { what: 'the engine to answer again' })
})

test('a machine with another host key gets no login, and what is wrong over SSH is said in a sentence', {
  skip: sshServerIsMissing,
}, async (t) => {
  const { server, connection } = await startSsh(t)
  const stranger = await makeSshKey(join(folder, 'stranger'))
  const cases: [Partial<SshConnection>, RegExp][] = [
    [{ hostKeys: `engine ${stranger.line}` }, /host key is not one of those given/],
    [{ key: new Secret(stranger.key) }, /refused the login/],
    [{ user: 'nobody-of-this-name' }, /refused the login/],
    [{ socketPath: join(folder, 'none.sock') }, /not allowed to open the engine.s socket/],
    [{ port: 1 }, /connection was refused/],
  ]
  for (const [change, expected] of cases) assert.match(await problem(open(t, { ...connection, ...change })), expected)
  assert.equal(await problem(open(t, connection)), 'answers')
  await server.changeHostKey()
  assert.match(await problem(open(t, connection)), /host key is not one of those given/)
})

test('what an engine of another machine sends is counted before it is parsed, and no longer than it may be', async (t) => {
  const values = `[${'{},'.repeat(1_000_000)}{}]`
  const row = { Id: 'a', Labels: { own: 'o', other: 'x' }, More: Array(100).fill({}) }
  const list = JSON.stringify(Array(10_000).fill(row))
  let sent = 0
  const socketPath = join(folder, 'hostile.sock')
  const server = createServer((request, response) => {
    response.setHeader('content-type', 'application/json')
    if (request.url === '/containers/json') return response.end(list)
    if (request.url !== '/version') return response.end(values)
    const send = (): void => {
      while (!response.destroyed && sent < 60 << 20) {
        sent += chunk.length
        if (!response.write(chunk)) return void response.once('drain', send)
      }
      response.end()
    }
    return send()
  }).listen(socketPath)
  await once(server, 'listening')
  t.after(() => server.close())
  const engine = open(t, { kind: 'local', socketPath })
  const longest = longestParsed(t)
  for (const path of ['/version', '/info', '/volumes'])
    await assert.rejects(engine.call('GET', path), (error: Error & { code?: string }) => {
      assert.equal(error.code, 'engine_unavailable')
      assert.match(explainEngine(error), /not from a Docker engine, or too large/)
      return true
    })
  assert.ok(sent < 16 << 20, 'it was read to its end')
  const keep = [{ Id: true, Labels: { own: true } }] as const
  const rows = await engine.call<object[]>('GET', '/containers/json', { keep })
  assert.deepEqual([rows.length, rows[0]], [10_000, { Id: 'a', Labels: { own: 'o' } }])
  assert.ok(longest() < list.length / 2)
})
