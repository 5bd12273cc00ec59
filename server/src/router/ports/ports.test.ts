import assert from 'node:assert/strict'
import { createSocket, type Socket as UdpSocket } from 'node:dgram'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import {
  ask,
  freePort,
  openInside,
  route,
  serve,
  startProcess,
  stream,
  until,
} from '../../../test/support/router/parts.ts'
import { PortUnavailable, type Target } from '../router.ts'

const never = new AbortController().signal
const localhost = '127.0.0.1'

interface Program {
  server: Server
  target: Target
  sockets: Set<Socket>
}

const serveTcp = async (t: TestContext, handler: (socket: Socket) => void, port = 0): Promise<Program> => {
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.once('close', () => sockets.delete(socket)))
    socket.on('error', () => {})
    handler(socket)
  }).listen(port, localhost)
  await once(server, 'listening')
  t.after(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return { server, sockets, target: { host: localhost, port: (server.address() as AddressInfo).port } }
}

/** Says its name, then echoes. */
const echo = (name: string) => (socket: Socket) => {
  socket.write(`${name}\n`)
  socket.pipe(socket)
}

const open = (t: TestContext, port: number): Socket => {
  const socket = connect({ port, host: localhost, allowHalfOpen: true })
  t.after(() => socket.destroy())
  return socket.on('error', () => {})
}

/** Resolves at its end with whether that was an error. */
const closeOf = (socket: Socket): Promise<boolean> => new Promise((resolve) => socket.once('close', resolve))

const readAll = async (socket: Socket): Promise<string> => {
  let text = ''
  for await (const chunk of socket.setEncoding('latin1')) text += chunk
  return text
}

const nameOf = async (socket: Socket): Promise<string> => String((await once(socket, 'data'))[0]).trim()

/** The first word of a new connection, or 'closed'. */
const greetingOf = async (port: number): Promise<string> => {
  const socket = connect(port, localhost)
  const closed = closeOf(socket.on('error', () => {})).then(() => 'closed')
  const word = await Promise.race([nameOf(socket).catch(() => 'closed'), closed])
  socket.destroy()
  return word
}

/** Until it succeeds. */
const succeed = async <Result>(work: () => Promise<Result>): Promise<Result> => {
  let result: Result | undefined
  await until(async () => {
    result = await work().catch(() => undefined)
    return result !== undefined
  })
  return result!
}

test('1 MB goes both ways over half-closed connections during 20 switches, and none breaks', async (t) => {
  const { router } = await startProcess(t)
  const port = await freePort()
  let current = await serveTcp(t, echo('v0'))
  await router.setService('a', [stream(port, [current.target])])
  const megabyte = 'm'.repeat(1 << 20)
  let ok = 0
  let isOver = false
  const failed: string[] = []
  const runClient = async (): Promise<void> => {
    while (!isOver) {
      const socket = open(t, port)
      socket.end(megabyte)
      const text = await readAll(socket).catch(String)
      if (/^v\d+\n$/.test(text.slice(0, -megabyte.length)) && text.endsWith(megabyte)) ok++
      else failed.push(text.slice(0, 100))
    }
  }
  const clients = Array.from({ length: 4 }, runClient)
  for (let round = 1; round <= 20; round++) {
    const before = ok
    await until(() => ok > before + 4 || failed.length > 0)
    const next = await serveTcp(t, echo(`v${round}`))
    await router.setService('a', [stream(port, [next.target])])
    assert.equal(await greetingOf(port), `v${round}`)
    assert.deepEqual(await router.drain([current.target], 5_000, never), { remaining: 0 })
    assert.equal(current.sockets.size, 0)
    current = next
  }
  isOver = true
  await Promise.all(clients)
  assert.deepEqual(failed, [])
  const { connections, failures, internalErrors } = await router.counts()
  assert.deepEqual([connections.open, failures, internalErrors], [0, 0, 0])
  t.diagnostic(`${connections.total} connections`)
})

test('drain counts connections, waits for them, and ends at last those to targets that serve no more', async (t) => {
  const [old, fresh] = [await serveTcp(t, echo('old')), await serveTcp(t, echo('fresh'))]
  const { router } = await startProcess(t)
  const port = await freePort()
  await router.setService('a', [stream(port, [old.target])])
  const [stays, leaves] = [open(t, port), open(t, port)]
  assert.deepEqual([await nameOf(stays), await nameOf(leaves)], ['old', 'old'])
  assert.deepEqual(await router.drain([old.target], 20, never), { remaining: 2 })
  stays.write('still routed to')
  assert.equal(await nameOf(stays), 'still routed to')
  await router.setService('a', [stream(port, [fresh.target])])
  assert.equal(await greetingOf(port), 'fresh')
  const drained = router.drain([old.target], 300, never)
  leaves.end()
  await once(leaves, 'close')
  const broken = closeOf(stays)
  assert.deepEqual(await drained, { remaining: 1 })
  assert.equal(await broken, true, 'it must not look like the end of the data')
  await until(() => old.sockets.size === 0)
  assert.deepEqual(await router.drain([old.target], 60_000, never), { remaining: 0 })
})

test('what is sent before a target is there waits; a target that refuses costs nothing when another serves', async (t) => {
  const { target, sockets } = await serveTcp(t, echo('live'))
  const dead = { host: localhost, port: await freePort() }
  const [port, deadPort] = [await freePort(), await freePort()]
  const routes = [stream(port, [dead, target]), stream(deadPort, [dead])]
  const { traffic } = await openInside(t, routes)
  for (let count = 0; count < 10; count++) {
    const socket = open(t, port)
    socket.end('early')
    assert.equal(await readAll(socket), 'live\nearly')
  }
  assert.ok(traffic.counts.retries > 0)
  assert.equal(await greetingOf(deadPort), 'closed')
  assert.equal(traffic.counts.failures, 1)
  const socket = open(t, port)
  await nameOf(socket)
  const closed = closeOf(socket)
  for (const far of sockets) far.resetAndDestroy()
  assert.equal(await closed, true)
})

test('a service that is stopped or starting keeps its port and closes connections at once', async (t) => {
  const { target } = await serveTcp(t, echo('live'))
  const { table } = await openInside(t, [])
  const port = await freePort()
  for (const state of ['stopped', 'starting'] as const) {
    await table.change(() => [stream(port, [target], { state })])
    assert.equal(await greetingOf(port), 'closed')
    await assert.rejects(serveTcp(t, echo('other'), port), { code: 'EADDRINUSE' })
  }
  await table.change(() => [stream(port, [target])])
  assert.equal(await greetingOf(port), 'live')
  await table.change(() => [])
  await serveTcp(t, echo('other'), port)
})

test('a port that is taken is named, and nothing of that change is in force', async (t) => {
  const { target } = await serveTcp(t, echo('live'))
  const foreign = await serveTcp(t, echo('foreign'))
  const taken = foreign.target.port
  const { router } = await startProcess(t)
  const [kept, other] = [await freePort(), await freePort()]
  await router.setService('a', [stream(kept, [target])])
  const before = await router.routes()
  const bad = [stream(kept, []), stream(other, [target]), stream(taken, [target])]
  await assert.rejects(router.setService('a', bad), (error) => {
    assert.ok(error instanceof PortUnavailable)
    const message = `the router cannot open the TCP port ${taken}: it is in use on this machine`
    assert.deepEqual([error.message, error.port], [message, taken])
    return true
  })
  assert.deepEqual(await router.routes(), before)
  assert.equal(await greetingOf(kept), 'live')
  await serveTcp(t, echo('free'), other)
  // UDP ports are others.
  await router.setService('a', [...before, stream(taken, [target], { protocol: 'UDP' })])
  const changes = [router.setService('b', [stream(taken, [target], { serviceId: 'b' })]), router.setService('c', [])]
  assert.deepEqual(
    (await Promise.allSettled(changes)).map(({ status }) => status),
    ['rejected', 'fulfilled'],
  )
})

test('a router that is killed listens again on the ports of its table, and later on those it cannot have yet', async (t) => {
  const { target } = await serveTcp(t, echo('live'))
  const web = await serve(t, (_req, res) => res.end('ok'))
  const { router, port } = await startProcess(t, { port: await freePort() })
  const [tcpPort, lostPort] = [await freePort(), await freePort()]
  const routes = [stream(tcpPort, [target]), stream(lostPort, [target]), route([web.target])]
  await router.setService('a', routes)
  assert.equal(router.address(tcpPort), `127.0.0.1:${tcpPort}`)
  const { pid } = (await router.health())!
  process.kill(pid, 'SIGKILL')
  const thief = await succeed(() => serveTcp(t, echo('thief'), lostPort))
  await until(async () => ((await router.health())?.pid ?? pid) !== pid)
  assert.equal(await greetingOf(tcpPort), 'live')
  assert.equal(await greetingOf(lostPort), 'thief')
  assert.deepEqual(await router.routes(), routes)
  await router.setService('b', [])
  assert.equal((await ask(port)).body, 'ok')
  thief.server.close()
  await until(async () => (await greetingOf(lostPort)) === 'live')
})

const bindUdp = async (t: TestContext): Promise<UdpSocket> => {
  const socket = createSocket('udp4').bind(0, localhost)
  await once(socket, 'listening')
  t.after(() => socket.close())
  return socket
}

/** Answers with its name and what it got; `from` holds the ports it was asked from. */
const serveUdp = async (t: TestContext, name: string): Promise<{ target: Target; from: Set<number> }> => {
  const socket = await bindUdp(t)
  const from = new Set<number>()
  socket.on('message', (bytes, peer) => {
    from.add(peer.port)
    socket.send(`${name} ${bytes}`, peer.port, peer.address)
  })
  return { from, target: { host: localhost, port: socket.address().port } }
}

/** Asks again until it is answered: datagrams may be lost. */
const askUdp = async (socket: UdpSocket, port: number, text: string): Promise<string> => {
  let answer = ''
  const onMessage = (bytes: Buffer): void => {
    if (bytes.toString().endsWith(` ${text}`)) answer = bytes.toString()
  }
  socket.on('message', onMessage)
  await until(() => {
    if (answer === '') socket.send(text, port, localhost)
    return answer !== ''
  })
  socket.off('message', onMessage)
  return answer
}

const freeUdpPort = async (): Promise<number> => {
  const socket = createSocket('udp4').bind(0, localhost)
  await once(socket, 'listening')
  const { port } = socket.address()
  socket.close()
  await once(socket, 'close')
  return port
}

test('datagrams of one client go to one target and its answers back, and after a switch to the new one', async (t) => {
  const [one, two] = [await serveUdp(t, 'one'), await serveUdp(t, 'two')]
  const { router } = await startProcess(t)
  const port = await freeUdpPort()
  const udp = { protocol: 'UDP' } as const
  await router.setService('a', [stream(port, [one.target, two.target], udp)])
  const clients = [await bindUdp(t), await bindUdp(t)]
  const names = await Promise.all(clients.map((client) => askUdp(client, port, 'x')))
  assert.deepEqual(names.toSorted(), ['one x', 'two x'])
  for (let count = 0; count < 20; count++)
    assert.equal(await askUdp(clients[0]!, port, String(count)), `${names[0]!.split(' ')[0]} ${count}`)
  assert.deepEqual([one.from.size, two.from.size], [1, 1])
  await router.setService('a', [stream(port, [two.target], udp)])
  for (const client of clients) assert.equal(await askUdp(client, port, 'after'), 'two after')
  assert.deepEqual(await router.drain([one.target], 60_000, never), { remaining: 0 })
  const { pid } = (await router.health())!
  process.kill(pid, 'SIGKILL')
  assert.equal(await askUdp(clients[0]!, port, 'again'), 'two again')
  const taken = createSocket('udp4')
  await assert.rejects(
    new Promise((resolve, reject) => taken.bind(port, localhost).on('error', reject).on('listening', resolve)),
    { code: 'EADDRINUSE' },
  )
  taken.close()
  await router.setService('a', [])
  const free = createSocket('udp4').bind(port, localhost)
  await once(free, 'listening')
  free.close()
})

test('a flow ends when it is silent, the oldest gives way to one too many, a dead target to a live one', async (t) => {
  const live = await serveUdp(t, 'live')
  const port = await freeUdpPort()
  const deadTarget = { host: localhost, port: await freeUdpPort() }
  const udp = { protocol: 'UDP' } as const
  const flowLimits = { idleMs: 200, lateMs: 50, most: 3 }
  const { traffic, table } = await openInside(t, [stream(port, [live.target], udp)], { flowLimits })
  const { flows } = traffic.counts
  for (let count = 0; count < 6; count++) await askUdp(await bindUdp(t), port, 'x')
  assert.ok(flows.total >= 6)
  await until(() => flows.open === 0)
  await table.change(() => [stream(port, [deadTarget, live.target], udp)])
  const client = await bindUdp(t)
  for (let count = 0; count < 4; count++) assert.equal(await askUdp(client, port, `${count}`), `live ${count}`)
  await table.change(() => [stream(port, [live.target], { ...udp, state: 'stopped' })])
  const asked = live.from.size
  client.send('x', port, localhost)
  await until(() => flows.open === 0)
  assert.equal(live.from.size, asked)
})
