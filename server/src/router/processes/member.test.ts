import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { type TestContext, test } from 'node:test'
import { ask, readUntil, route, serve } from '../../../test/support/router/parts.ts'
import type { Target } from '../router.ts'
import { startMember } from './member.ts'

/** The only process that accepts at a port. */
const open = async (t: TestContext, targets: Target[]) => {
  const listening = createServer().listen(0, '127.0.0.1')
  await once(listening, 'listening')
  const { port } = listening.address() as AddressInfo
  const member = startMember(() => {})
  t.after(() => member.kill())
  assert.equal(await member.ready, true)
  const accepts = [
    member.ask({ kind: 'begin', beginning: { routes: [route(targets)], trustedProxies: [], tls: null } }),
    member.ask({ kind: 'accept', over: 'http' }, 10_000, listening),
  ]
  await Promise.all(accepts)
  listening.close()
  return { member, port }
}

test('one that leaves answers its present clients, asks them to connect again, and ends when they have', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { member, port } = await open(t, [target])
  const client = connect(port, '127.0.0.1')
  t.after(() => client.destroy())
  const get = 'GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n'
  client.write(get)
  assert.match(await readUntil(client, /ok$/), /connection: keep-alive/i)
  await member.ask({ kind: 'leave' })
  await assert.rejects(ask(port), { code: 'ECONNREFUSED' })
  assert.equal(member.hasEnded, false)
  client.write(get)
  assert.match(await readUntil(client, /ok$/), /connection: close/i)
  await member.ended
})

test('one that does not answer is ended: what it goes by may no longer be so', async (t) => {
  const { member } = await open(t, [])
  process.kill(member.pid, 'SIGSTOP')
  assert.equal(await member.ask({ kind: 'routes', services: [] }, 100), null)
  assert.equal(member.hasEnded, true)
})

test('as many connections as it is asked to give up are ended with a response', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { member, port } = await open(t, [target])
  await member.ask({ kind: 'shed', connections: 2 })
  const said: (string | undefined)[] = []
  for (let client = 0; client < 4; client++) {
    const socket = connect(port, '127.0.0.1')
    t.after(() => socket.destroy())
    socket.write('GET / HTTP/1.1\r\nHost: a.localhost\r\n\r\n')
    said.push(/connection: ([\w-]+)/i.exec(await readUntil(socket, /ok$/))?.[1])
  }
  assert.deepEqual(said, ['close', 'close', 'keep-alive', 'keep-alive'])
})
