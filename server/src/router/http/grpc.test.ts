import assert from 'node:assert/strict'
import { once } from 'node:events'
import { constants, type ServerHttp2Stream } from 'node:http2'
import { connect } from 'node:net'
import { test } from 'node:test'
import {
  callGrpc,
  echo,
  ended,
  openClient,
  openStream,
  readStream,
  serveGrpc,
} from '../../../test/support/router/grpc.ts'
import { ask, freePort, openInside, route, serve, startProcess, until } from '../../../test/support/router/parts.ts'

const never = new AbortController().signal
const grpc = { protocol: 'GRPC' } as const

test('a unary call passes with its metadata and trailers, and headers of the connection stay behind', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const session = openClient(t, port)
  const more = { 'x-forwarded-for': '6.6.6.6', forwarded: 'for=6.6.6.6', 'x-one': ['a', 'b'], 'k-bin': 'AQI' }
  const answer = await callGrpc(session, '/echo.Echo/Unary', 'hello', more)
  assert.deepEqual([answer.headers[':status'], answer.body, answer.rstCode], [200, 'hello', 0])
  assert.deepEqual([answer.trailers['grpc-status'], answer.trailers['x-trailer-bin']], ['0', 'AAE'])
  const { headers } = program.streams[0]!
  assert.deepEqual(
    [headers[':path'], headers[':authority'], headers.te, headers['x-one'], headers['k-bin'], headers.forwarded],
    ['/echo.Echo/Unary', 'a.localhost', 'trailers', 'a, b', 'AQI', undefined],
  )
  assert.equal(headers['x-forwarded-for'], '127.0.0.1')
  const refused = await callGrpc(session, '/not-found', '')
  assert.deepEqual([refused.headers['grpc-status'], refused.trailers['grpc-status']], ['5', '5'])
  await until(() => traffic.counts.inFlight === 0 && traffic.upstreams.of(program.target).inFlight === 0)
})

test('a stream goes both ways at once', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { port } = await openInside(t, [route([program.target], grpc)])
  const stream = openStream(openClient(t, port), '/bidi')
  for (const word of ['one', 'two', 'three']) {
    stream.write(word)
    assert.equal(String((await once(stream, 'data'))[0]), word)
  }
  stream.end()
  assert.equal((await readStream(stream)).trailers['grpc-status'], '0')
})

test('clients that do not read delay only their own targets, and get all when they read', async (t) => {
  const [total, most] = [4 << 20, 1 << 20]
  const chunk = Buffer.alloc(65_536, 7)
  let sent = 0
  const flood = (stream: ServerHttp2Stream): void => {
    let left = total
    const write = (): void => {
      while (left > 0) {
        left -= chunk.length
        sent += chunk.length
        if (!stream.write(chunk)) return
      }
      stream.end()
    }
    stream.respond({ ':status': 200 })
    stream.on('drain', write)
    write()
  }
  const program = await serveGrpc(t, (stream, headers) =>
    headers[':path'] === '/flood' ? flood(stream) : echo('v1')(stream, headers),
  )
  const { port } = await openInside(t, [route([program.target], grpc)])
  const flooded = Array.from({ length: 16 }, () => openStream(openClient(t, port), '/flood'))
  await Promise.all(flooded.map((stream) => once(stream, 'response')))
  const session = openClient(t, port)
  for (let before = -1; before !== sent; ) {
    before = sent
    for (let count = 0; count < 20; count++) assert.equal((await callGrpc(session, '/unary', 'x')).body, 'x')
  }
  assert.equal(program.sessions.size, 1)
  assert.ok(sent < flooded.length * most, `${sent} bytes were taken from the target`)
  for (const stream of flooded) {
    let received = 0
    stream.on('data', ({ length }: Buffer) => {
      received += length
    })
    await ended(stream)
    assert.equal(received, total)
  }
})

test('a canceled call is canceled at the target, a reset by the target reaches the client', async (t) => {
  const program = await serveGrpc(t, (stream, headers) => {
    if (headers[':path'] === '/reset') stream.close(constants.NGHTTP2_INTERNAL_ERROR)
  })
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const session = openClient(t, port)
  const hanging = openStream(session, '/hang')
  await until(() => program.streams.length === 1)
  assert.equal(traffic.upstreams.of(program.target).inFlight, 1)
  hanging.close(constants.NGHTTP2_CANCEL)
  const { stream } = program.streams[0]!
  await until(() => stream.closed)
  assert.equal(stream.rstCode, constants.NGHTTP2_CANCEL)
  await until(() => traffic.upstreams.of(program.target).inFlight === 0)
  assert.equal((await callGrpc(session, '/reset', 'x')).rstCode, constants.NGHTTP2_INTERNAL_ERROR)
  assert.equal(traffic.counts.failures, 0)
})

test('a client that goes away without a word leaves nothing under way', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const session = openClient(t, port)
  const stream = openStream(session, '/bidi')
  stream.write('x')
  await once(stream, 'data')
  session.destroy()
  await until(() => traffic.counts.inFlight === 0 && traffic.upstreams.of(program.target).inFlight === 0)
  assert.equal(program.streams[0]!.stream.closed, true)
})

test('canceled calls of many clients do not add up to a break of the connection they share', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const stays = openStream(openClient(t, port), '/bidi')
  stays.write('a')
  await once(stays, 'response')
  for (let round = 0; round < 8; round++) {
    const session = openClient(t, port)
    const streams = Array.from({ length: 200 }, () => openStream(session, '/hang'))
    const before = program.streams.length
    await until(() => program.streams.length === before + 200)
    for (const stream of streams) stream.close(constants.NGHTTP2_CANCEL)
    await until(() => traffic.upstreams.of(program.target).inFlight === 1)
  }
  stays.end('b')
  assert.equal((await readStream(stays)).body, 'ab')
  assert.equal(traffic.counts.failures, 0)
})

test('a target that answers before it has read all ends the call, and the rest is not waited for', async (t) => {
  const program = await serveGrpc(t, (stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '8' }, { endStream: true })
  })
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const stream = openStream(openClient(t, port), '/early')
  stream.write('never ends')
  const { headers, rstCode } = await readStream(stream)
  assert.deepEqual([headers['grpc-status'], rstCode], ['8', 0])
  await until(() => traffic.counts.inFlight === 0 && traffic.upstreams.of(program.target).inFlight === 0)
})

test('gRPC clients get a status where others get a page, and no protocol gets the wrong target', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const plain = await serve(t, (_req, res) => res.end('plain'))
  const dead = { host: '127.0.0.1', port: await freePort() }
  const { port, traffic } = await openInside(t, [
    route([program.target], grpc),
    route([], { ...grpc, host: 'stopped.localhost', state: 'stopped' }),
    route([dead], { ...grpc, host: 'dead.localhost' }),
    route([dead, program.target], { ...grpc, host: 'half.localhost' }),
    route([plain.target], { ...grpc, host: 'other.localhost' }),
    route([plain.target], { host: 'plain.localhost' }),
  ])
  const session = openClient(t, port)
  const statusOf = async (authority: string): Promise<unknown[]> => {
    const { headers, trailers, rstCode } = await callGrpc(session, '/x', 'x', { ':authority': authority })
    return [headers[':status'], trailers['grpc-status'], rstCode]
  }
  assert.deepEqual(await statusOf('stopped.localhost'), [200, '14', 0])
  assert.deepEqual(await statusOf('nobody.localhost'), [200, '12', 0])
  assert.deepEqual(await statusOf('dead.localhost'), [200, '14', 0])
  // Speaks HTTP/1.1 whatever the route says.
  assert.deepEqual(await statusOf('other.localhost'), [200, '14', 0])
  for (let count = 0; count < 5; count++) assert.deepEqual(await statusOf('half.localhost'), [200, '0', 0])
  assert.ok(traffic.counts.retries > 0)
  const page = await callGrpc(session, '/x', '', { ':authority': 'stopped.localhost', 'content-type': 'text/plain' })
  assert.equal(page.headers[':status'], 503)
  assert.match(page.body, /The service at stopped.localhost is stopped/)
  assert.equal((await ask(port)).status, 505)
  assert.equal((await ask(port, { host: 'plain.localhost' })).body, 'plain')
  assert.deepEqual(await statusOf('plain.localhost'), [200, '12', 0])
})

test('a target that dies in the middle of a call leaves its client with a status', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { port, traffic } = await openInside(t, [route([program.target], grpc)])
  const session = openClient(t, port)
  const begun = openStream(session, '/bidi')
  begun.write('x')
  await once(begun, 'response')
  const waiting = readStream(openStream(session, '/hang'))
  await until(() => program.streams.length === 2)
  program.close()
  const { trailers, rstCode } = await readStream(begun)
  assert.deepEqual([trailers['grpc-status'], rstCode], ['14', 0])
  assert.equal((await waiting).headers['grpc-status'], '14')
  assert.equal(session.closed, false)
  await until(() => traffic.counts.inFlight === 0)
})

test('more streams than one connection of the target takes are spread over several', async (t) => {
  const held: ServerHttp2Stream[] = []
  const program = await serveGrpc(t, (stream) => held.push(stream), { maxConcurrentStreams: 4 })
  const { port } = await openInside(t, [route([program.target], grpc)])
  const session = openClient(t, port)
  await callGrpc(session, '/first', '', { ':authority': 'nobody' })
  const streams = Array.from({ length: 20 }, () => openStream(session, '/hold'))
  await until(() => held.length === 20)
  assert.ok(program.sessions.size >= 5)
  for (const stream of streams) stream.close()
})

test('20 switches under the load of unary calls and long streams fail no stream', async (t) => {
  const { router, port } = await startProcess(t)
  let current = await serveGrpc(t, echo('v0'))
  await router.setService('a', [route([current.target], grpc)])
  const failed: string[] = []
  let ok = 0
  let isOver = false
  const runUnary = async (index: number): Promise<void> => {
    const session = openClient(t, port)
    const sent = `${index} `.repeat(index % 2 === 0 ? 10 : 40_000)
    while (!isOver) {
      const { trailers, body, rstCode } = await callGrpc(session, '/unary', sent)
      if (trailers['grpc-status'] === '0' && body === sent) ok++
      else failed.push(`unary ${trailers['grpc-status']} ${trailers['grpc-message']} rst ${rstCode}`)
    }
  }
  const runStream = async (): Promise<void> => {
    const session = openClient(t, port)
    while (!isOver) {
      const stream = openStream(session, '/bidi')
      const answer = readStream(stream)
      for (let count = 0; count < 20; count++) {
        stream.write(`${count},`)
        await Promise.race([once(stream, 'data'), answer])
      }
      stream.end()
      const { trailers, body } = await answer
      if (trailers['grpc-status'] === '0' && body.split(',').length === 21) ok++
      else failed.push(`stream ${trailers['grpc-status']} ${body}`)
    }
  }
  const clients = [...Array.from({ length: 6 }, (_, index) => runUnary(index)), runStream(), runStream()]
  for (let round = 1; round <= 20; round++) {
    const before = ok
    await until(() => ok > before + 20 || failed.length > 0)
    const next = await serveGrpc(t, echo(`v${round}`))
    await router.setService('a', [route([next.target], grpc)])
    const answer = await callGrpc(openClient(t, port), '/unary', 'x')
    assert.equal(answer.headers['x-version'], `v${round}`)
    assert.deepEqual(await router.drain([current.target], 5_000, never), { remaining: 0 })
    current.close()
    current = next
  }
  isOver = true
  await Promise.all(clients)
  assert.deepEqual(failed, [])
  const counts = await router.counts()
  assert.deepEqual([counts.failures, counts.internalErrors, counts.inFlight], [0, 0, 0])
  t.diagnostic(`${ok} calls, ${counts.retries} retries`)
})

test('a stream under way ends on the old target, and drain counts it', async (t) => {
  const [old, fresh] = [await serveGrpc(t, echo('old')), await serveGrpc(t, echo('fresh'))]
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([old.target], grpc)])
  const session = openClient(t, port)
  const stream = openStream(session, '/bidi')
  stream.write('a')
  await once(stream, 'response')
  await router.setService('a', [route([fresh.target], grpc)])
  assert.equal((await callGrpc(session, '/unary', 'x')).headers['x-version'], 'fresh')
  assert.deepEqual(await router.drain([old.target], 20, never), { remaining: 1 })
  const drained = router.drain([old.target], 60_000, never)
  stream.end('b')
  assert.equal((await readStream(stream)).body, 'ab')
  assert.deepEqual(await drained, { remaining: 0 })
  await until(() => old.sessions.size === 0)
})

test('a router that stops lets streams end, and sends its clients elsewhere first', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const { router, port } = await startProcess(t)
  await router.setService('a', [route([program.target], grpc)])
  const session = openClient(t, port)
  const stream = openStream(session, '/bidi')
  stream.write('a')
  await once(stream, 'response')
  const goaway = once(session, 'goaway')
  const stopped = router.stop()
  assert.equal((await goaway)[0], constants.NGHTTP2_NO_ERROR)
  stream.end('b')
  const { body, trailers } = await readStream(stream)
  assert.deepEqual([body, trailers['grpc-status']], ['ab', '0'])
  await stopped
})

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0])

test('clients that are slow, or send nothing, are closed and delay no others', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const limits = { headersTimeoutMs: 300, idleMs: 300 }
  const { port } = await openInside(t, [route([program.target], grpc)], { limits })
  // A header block of 100 bytes of which one comes now and then.
  const begun = Buffer.from([0, 0, 100, 1, 4, 0, 0, 0, 1])
  const starts = ['', 'P', 'PR', preface, Buffer.concat([preface, settings, begun])]
  const closed = starts.flatMap((start) =>
    Array.from({ length: 10 }, async () => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', () => {}).resume()
      socket.write(start)
      const dribble = setInterval(() => start.length > 40 && socket.write(Buffer.from([0x88])), 50)
      await once(socket, 'close')
      clearInterval(dribble)
    }),
  )
  assert.equal((await callGrpc(openClient(t, port), '/unary', 'x')).body, 'x')
  await Promise.all(closed)
})

test('one byte at a time is still recognised, as HTTP/2 and as a method that begins alike', async (t) => {
  const { target } = await serve(t, (_req, res) => res.end('ok'))
  const { port } = await openInside(t, [route([target])])
  const trickle = async (bytes: Buffer): Promise<string> => {
    const socket = connect(port, '127.0.0.1').setNoDelay(true)
    for (const byte of bytes) {
      await new Promise((resolve) => socket.write(Buffer.from([byte]), resolve))
      await new Promise((resolve) => setImmediate(resolve))
    }
    const [answer] = (await once(socket, 'data')) as [Buffer]
    socket.destroy()
    return answer.toString('latin1')
  }
  assert.match(await trickle(Buffer.from('PUT / HTTP/1.1\r\nHost: a.localhost\r\n\r\n')), /^HTTP\/1.1 200 /)
  // The first frame of the server is its SETTINGS.
  assert.equal((await trickle(Buffer.concat([preface, settings]))).charCodeAt(3), 4)
})

test('streams opened and reset without end, headers too large and too many streams are stopped', async (t) => {
  const program = await serveGrpc(t, echo('v1'))
  const limits = { resetBurst: 50, resetsPerSecond: 1, streams: 10, headerBytes: 8_192 }
  const { port } = await openInside(t, [route([program.target], grpc)], { limits })
  const wordy = openClient(t, port)
  // The limit applies once the client has received it.
  await callGrpc(wordy, '/unary', 'x')
  const large = await callGrpc(wordy, '/unary', 'x', { 'x-large': 'x'.repeat(20_000) })
  assert.equal(large.headers[':status'], undefined)
  assert.equal(program.streams.length, 1)
  const greedy = openClient(t, port)
  await once(greedy, 'remoteSettings')
  assert.equal(greedy.remoteSettings.maxConcurrentStreams, 10)
  const attacker = openClient(t, port)
  await once(attacker, 'remoteSettings')
  let opened = 0
  while (!attacker.closed && !attacker.destroyed && opened < 5_000) {
    const stream = openStream(attacker, '/hang')
    opened++
    await new Promise((resolve) => setImmediate(resolve))
    stream.close(constants.NGHTTP2_CANCEL)
    await ended(stream)
  }
  assert.ok(opened < 200, `${opened} streams were opened`)
  assert.equal((await callGrpc(openClient(t, port), '/unary', 'x')).body, 'x')
})
