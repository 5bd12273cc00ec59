import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { ask, freePort, openInside, route, serve, stream, until } from '../../test/support/router/parts.ts'
import { createShares, type Holding } from './shares.ts'

const sizesOf = (holdings: readonly Holding[]): Record<string, number> => {
  const sizes: Record<string, number> = {}
  for (const { party, at } of holdings) if (at >= 0) sizes[party] = (sizes[party] ?? 0) + 1
  return sizes
}

const busy = { isIdle: false, giveUp: () => {} }

test('while there is enough every party has as much as it needs; then the one with the most gives up one for each new one', () => {
  const shares = createShares(10)
  const holdings: Holding[] = []
  const enter = (party: string, count: number) => {
    for (let n = 0; n < count; n++) holdings.push(shares.enter(busy, 1, party))
  }
  enter('b', 10)
  assert.deepEqual(sizesOf(holdings), { b: 10 })
  enter('a', 3)
  assert.deepEqual(sizesOf(holdings), { b: 7, a: 3 })
  enter('b', 20)
  assert.deepEqual(sizesOf(holdings), { b: 7, a: 3 })
  enter('a', 20)
  assert.deepEqual(sizesOf(holdings), { b: 5, a: 5 })
  enter('c', 2)
  assert.deepEqual(sizesOf(holdings), { b: 4, a: 4, c: 2 })
  assert.equal(shares.total, 10)
})

test('what is idle goes first, and what has left or moved is counted once', () => {
  const gone: string[] = []
  const holder = (name: string, isIdle: boolean) => ({ isIdle, giveUp: () => void gone.push(name) })
  let turn = 0
  const shares = createShares(4, () => (turn++ % 4) / 4)
  const [first] = ['one', 'two', 'three', 'four'].map((name) => shares.enter(holder(name, name === 'three'), 1))
  shares.enter(busy, 1, 'a')
  assert.deepEqual(gone, ['three'])
  shares.move(first!, 'a')
  shares.leave(first!)
  shares.leave(first!)
  shares.move(first!, 'b')
  assert.equal(shares.total, 3)
  shares.enter(busy, 1, 'b')
  assert.deepEqual(gone, ['three'])
})

const openMany = (t: TestContext, port: number, count: number, says: string): Socket[] => {
  const sockets = Array.from({ length: count }, () =>
    connect(port, '127.0.0.1', function (this: Socket) {
      this.write(says)
    }),
  )
  for (const socket of sockets) socket.on('error', () => {}).resume()
  t.after(() => sockets.forEach((socket) => void socket.destroy()))
  return sockets
}

const isOpen = (socket: Socket): boolean => !socket.destroyed

const request = (host: string): string => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`

test('requests that one organization never answers leave the others their connections', async (t) => {
  let asked = 0
  const mute = await serve(t, () => void asked++)
  const good = await serve(t, (_, res) => res.end('served'))
  const owner = { organizationId: 'o' }
  const { port, traffic } = await openInside(
    t,
    [
      route([good.target]),
      route([mute.target], { host: 'b.localhost', serviceId: 'b', ...owner }),
      route([mute.target], { host: 'c.localhost', serviceId: 'c', ...owner }),
    ],
    { descriptors: 40 },
  )
  const kept = openMany(t, port, 1, request('a.localhost'))
  const hogs = [...openMany(t, port, 15, request('b.localhost')), ...openMany(t, port, 15, request('c.localhost'))]
  await until(() => asked >= 15 && hogs.filter(isOpen).length <= 19)
  for (let n = 0; n < 10; n++) assert.equal((await ask(port)).body, 'served')
  assert.ok(kept.every(isOpen))
  assert.ok(traffic.shares.total <= 40)
})

test('connections that say nothing make room for those that do', async (t) => {
  const { target } = await serve(t, (_, res) => res.end('served'))
  const { port, traffic } = await openInside(t, [route([target])], { descriptors: 20 })
  const silent = openMany(t, port, 30, 'GET / HTTP/1.1\r\n')
  await until(() => silent.filter(isOpen).length <= 10)
  let served = 0
  for (let n = 0; n < 10; n++)
    served += await ask(port).then(
      ({ body }) => Number(body === 'served'),
      () => 0,
    )
  assert.ok(served > 0)
  assert.ok(traffic.shares.total <= 20)
})

test('TCP connections of one organization, at however many ports, leave another its own', async (t) => {
  const program = createServer((socket) => socket.on('error', () => {}).pipe(socket)).listen(0, '127.0.0.1')
  await once(program, 'listening')
  t.after(() => program.close())
  const target = { host: '127.0.0.1', port: (program.address() as { port: number }).port }
  const ports = await Promise.all([freePort(), freePort(), freePort()])
  const owned = (organizationId: string) => ({ organizationId, serviceId: organizationId })
  await openInside(
    t,
    [
      stream(ports[0]!, [target], owned('b')),
      stream(ports[1]!, [target], owned('b')),
      stream(ports[2]!, [target], owned('a')),
    ],
    { descriptors: 24 },
  )
  const hogs = [...openMany(t, ports[0]!, 10, 'x'), ...openMany(t, ports[1]!, 10, 'x')]
  await until(() => hogs.filter(isOpen).length <= 12)
  const own = openMany(t, ports[2]!, 4, 'x')
  await Promise.all(own.map((socket) => once(socket, 'data')))
  assert.ok(own.every(isOpen))
  await until(() => hogs.filter(isOpen).length <= 8)
})
