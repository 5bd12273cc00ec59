import assert from 'node:assert/strict'
import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { WebSocket, WebSocketServer } from 'ws'
import { ask, openInside, readAnswer, route, serve, startProcess, until } from '../../../test/support/router/parts.ts'
import { patience } from '../../../test/support/until.ts'
import type { Target } from '../router.ts'

const never = new AbortController().signal

/** A version of an application: `/slow` takes 300 ms, POST echoes, websockets echo until it ends with 1012. */
const startVersion = async (t: TestContext, name: string): Promise<{ target: Target; end(): void }> => {
  const { server, target, close } = await serve(t, (req, res) => {
    res.setHeader('x-version', name)
    if (req.method === 'POST') req.pipe(res)
    else setTimeout(() => res.end(name), req.url === '/slow' ? 300 : 0)
  })
  const sockets = new WebSocketServer({ server })
  sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(String(data))))
  const end = (): void => {
    for (const socket of sockets.clients) socket.close(1012)
    close()
  }
  return { target, end }
}

interface Tally {
  ok: number
  failed: string[]
  reconnects: number
}

const runClient = async (port: number, index: number, tally: Tally, isOver: () => boolean): Promise<void> => {
  const agent = new Agent({ keepAlive: index % 4 !== 0, maxSockets: 1 })
  const method = index % 4 === 2 ? 'POST' : 'GET'
  const path = index % 4 === 1 ? '/slow' : '/'
  const sent = method === 'POST' ? `${index} `.repeat(10_000) : ''
  while (!isOver()) {
    try {
      const out = request({ host: '127.0.0.1', port, method, path, agent, headers: { host: 'a.localhost' } })
      out.end(sent)
      const [answer] = (await once(out, 'response')) as [IncomingMessage]
      const { status, body } = await readAnswer(answer)
      if (status === 200 && (method === 'GET' || body === sent)) tally.ok++
      else tally.failed.push(`${method} ${path} ${status} ${body.slice(0, 100)}`)
    } catch (error) {
      tally.failed.push(`${method} ${path} ${error}`)
    }
  }
  agent.destroy()
}

const runWebsocket = async (port: number, tally: Tally, isOver: () => boolean): Promise<void> => {
  while (!isOver()) {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { host: 'a.localhost' } })
    let count = 0
    socket.on('open', () => socket.send('0'))
    socket.on('message', (data) => {
      if (String(data) !== String(count)) tally.failed.push(`echo ${data} instead of ${count}`)
      if (isOver()) socket.close()
      else setTimeout(() => socket.send(String(++count), () => {}), 1)
    })
    socket.on('error', (error) => tally.failed.push(`websocket ${error}`))
    const [code] = await once(socket, 'close')
    if (code === 1012) tally.reconnects++
    else if (!isOver()) tally.failed.push(`websocket closed with ${code}`)
  }
}

test('20 switches under the load of 16 clients and a websocket fail no request', async (t) => {
  const { router, port } = await startProcess(t)
  let current = await startVersion(t, 'v0')
  await router.setService('a', [route([current.target])])
  const tally: Tally = { ok: 0, failed: [], reconnects: 0 }
  let isOver = false
  const clients = Array.from({ length: 16 }, (_, index) => runClient(port, index, tally, () => isOver))
  const websocket = runWebsocket(port, tally, () => isOver)
  for (let round = 1; round <= 20; round++) {
    const before = { ...tally }
    await until(() => tally.ok > before.ok + 50 && tally.reconnects >= round - 1)
    const next = await startVersion(t, `v${round}`)
    await router.setService('a', [route([next.target])])
    assert.equal((await ask(port)).headers['x-version'], `v${round}`)
    // The websocket, which ends with its target.
    assert.deepEqual(await router.drain([current.target], 1_000, never), { remaining: 1 })
    current.end()
    current = next
  }
  await until(() => tally.reconnects >= 20)
  isOver = true
  await Promise.all([...clients, websocket])
  assert.deepEqual(tally.failed, [])
  const counts = await router.counts()
  assert.deepEqual([counts.failures, counts.internalErrors, counts.inFlight], [0, 0, 0])
  t.diagnostic(`${tally.ok} requests, ${counts.retries} retries, ${tally.reconnects} websocket reconnects`)
})

test('a request under way ends on the old target; drain waits for it and not a moment longer', async (t) => {
  const { promise: asked, resolve: onAsked } = Promise.withResolvers<() => void>()
  const old = await serve(t, (_req, res) => onAsked(() => res.end('old')))
  const fresh = await serve(t, (_req, res) => res.end('fresh'))
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([old.target])])
  const slow = ask(port)
  const answerNow = await asked
  await router.setService('a', [route([fresh.target])])
  assert.equal((await ask(port)).body, 'fresh')
  assert.deepEqual(await router.drain([old.target], 20, never), { remaining: 1 })
  const abort = new AbortController()
  const aborted = assert.rejects(router.drain([old.target], 60_000, abort.signal), /enough/)
  abort.abort(new Error('enough'))
  await aborted
  let isDrained = false
  const drained = router.drain([old.target, fresh.target], 60_000, never).then((result) => {
    isDrained = true
    return result
  })
  assert.equal((await ask(port)).body, 'fresh')
  assert.equal(isDrained, false)
  const start = performance.now()
  answerNow()
  assert.deepEqual(await drained, { remaining: 0 })
  assert.ok(performance.now() - start < 1_000 * patience)
  assert.equal((await slow).body, 'old')
  assert.deepEqual(await router.drain([{ host: '127.0.0.1', port: 9 }], 60_000, never), { remaining: 0 })
})

test('connections to a target that left the table are closed once nothing is under way', async (t) => {
  const connections = new Set<Socket>()
  const old = await serve(t, (_req, res) => res.end('old'))
  old.server.on('connection', (socket) => {
    connections.add(socket.once('close', () => connections.delete(socket)))
  })
  const { port, table } = await openInside(t, [route([old.target])])
  await ask(port)
  assert.equal(connections.size, 1)
  await table.change(() => [])
  await until(() => connections.size === 0)
})

test('a websocket outlives the switch and ends with its target', async (t) => {
  const old = await startVersion(t, 'old')
  const fresh = await startVersion(t, 'fresh')
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([old.target])])
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { headers: { host: 'a.localhost' } })
  await once(socket, 'open')
  await router.setService('a', [route([fresh.target])])
  assert.deepEqual(await router.drain([old.target], 20, never), { remaining: 1 })
  socket.send('still here')
  assert.equal(String((await once(socket, 'message'))[0]), 'still here')
  assert.equal((await router.counts()).upgrades.open, 1)
  old.end()
  assert.equal((await once(socket, 'close'))[0], 1012)
  await until(async () => (await router.counts()).upgrades.open === 0)
})

const megabyte = Buffer.alloc(1 << 20, 7)

test('200 MB each way pass without being held, however slow the reader', async (t) => {
  const total = 200
  const { target } = await serve(t, async (req, res) => {
    let received = 0
    for await (const chunk of req as AsyncIterable<Buffer>) received += chunk.length
    if (req.method === 'POST') return void res.end(String(received))
    for (let count = 0; count < total; count++) if (!res.write(megabyte)) await once(res, 'drain')
    res.end()
  })
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([target], { policy: { bodyBytes: 0 } })])
  let peak = 0
  const measure = async (): Promise<void> => {
    peak = Math.max(peak, (await router.counts()).rssBytes)
  }
  await measure()
  const idle = peak
  const up = request({ host: '127.0.0.1', port, method: 'POST', headers: { host: 'a.localhost' } })
  const answered = once(up, 'response') as Promise<[IncomingMessage]>
  for (let count = 0; count < total; count++) {
    if (!up.write(megabyte)) await once(up, 'drain')
    if (count % 20 === 0) await measure()
  }
  up.end()
  assert.equal((await readAnswer((await answered)[0])).body, String(total << 20))

  const down = request({ host: '127.0.0.1', port, headers: { host: 'a.localhost' } }).end()
  const [answer] = (await once(down, 'response')) as [IncomingMessage]
  // The clients do not read: any buffering in the router would grow now.
  for (let count = 0; count < 20; count++) await measure()
  let received = 0
  for await (const chunk of answer as AsyncIterable<Buffer>) received += chunk.length
  await measure()
  assert.equal(received, total << 20)
  t.diagnostic(`idle ${idle >> 20} MB, peak ${peak >> 20} MB`)
  assert.ok(peak - idle < 100 << 20, `it grew by ${(peak - idle) >> 20} MB`)
})

test('a client may send bytes without end to a target that answers early', async (t) => {
  const { target } = await serve(t, (_req, res) => res.writeHead(413).end('too much'))
  const { port } = await openInside(t, [route([target])])
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.write('POST / HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: 100000000\r\n\r\nabc')
  const [bytes] = await once(socket, 'data')
  assert.match(String(bytes), /^HTTP\/1.1 413 /)
  socket.destroy()
})
