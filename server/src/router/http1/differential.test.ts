/**
 * Requests that try to be two, or another one, for the program behind a proxy: ten thousand of them, the same for our
 * router and for nginx and HAProxy in front of the same program. Our router passes on only requests that one of them
 * passes on, in that order, and never more; a refused request ends the connection.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { howMany } from '../../../test/support/nightly.ts'
import { ask, freePort, openInside, route } from '../../../test/support/router/parts.ts'
import { isInstalled, type PeerName, startPeer } from '../../../test/support/router/peers.ts'

const cases = howMany(3000, 10_000)
const seed = 20_261_123
const atOnce = 500
/** Longer than any machine needs: nothing else closes a connection that waits for bytes. */
const silenceMs = 30_000
const mostMs = 45_000

type Draw = <One>(from: readonly One[]) => One

/** mulberry32. */
const createDraw = (start: number): Draw => {
  let state = start
  return (from) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return from[((mixed ^ (mixed >>> 14)) >>> 0) % from.length]!
  }
}

/** The first nearly always, so that there are few oddities in each request. */
const mostly = <One>(usual: One, others: readonly One[]): One[] => [
  ...Array.from({ length: others.length * 20 }, () => usual),
  ...others,
]

const methods = mostly('POST', [
  'GET',
  'PUT',
  'HEAD',
  'OPTIONS',
  'post',
  'POST\t',
  'PO ST',
  'P\0ST',
  ' POST',
  'GETX',
  'CONNECT',
  'TRACE',
])
const ends = mostly('\r\n', ['\n', '\r', '\r\r\n', '\n\r', '\r\n\r\n', ' \r\n', '\t\r\n', '\0\r\n'])
const versions = mostly('HTTP/1.1', [
  'HTTP/1.0',
  'HTTP/1.2',
  'HTTP/0.9',
  'HTTP/2.0',
  'http/1.1',
  'HTTP/1.1 ',
  'HTTP/1.',
  '',
  'HTTP/1.1x',
  'HTTP/01.1',
])
const targets = mostly('', [
  '?a=b',
  '#x',
  '/../x',
  '%00',
  ' x',
  '\tx',
  '\\x',
  '\x7f',
  '\xe9',
  '"x"',
  '?x=http://b/',
  '//x',
])
const hosts = mostly('a.localhost', [
  'A.localhost',
  'a.localhost:80',
  'a.localhost.',
  'b.localhost',
  '',
  'a.localhost:x@b',
  'a.localhost b',
  'a.localhost,b',
  'a.localhost:80:81',
])
const lengths = mostly('', ['+', '-', '0', '0x', ' ', '\t', '\x0b', '"'])
const lengthEnds = mostly('', [' ', ', $', ',$', ', 0', '\x0b', '\0', 'a', '.0', ';', '\x85', ' 1'])
const codings = mostly('chunked', [
  'Chunked',
  'chunked ',
  '\tchunked',
  'xchunked',
  'chunked, identity',
  'identity',
  'gzip, chunked',
  'chunked, chunked',
  'chunked\x0b',
  '"chunked"',
  'chunked;q=1',
  ', chunked',
  'chunked,',
  'chu\0nked',
  '',
  'chun ked',
  '\x0bchunked',
  'c\xe8unked',
])
const nameEnds = mostly(':', [' :', '\t:', '\0:', '::', ';:', '', ' ', '\x0b:', '\r:'])
const namesBefore = mostly('', [' ', '\t', '\r', '\0', '\x0b', '\n'])
const extras = [
  'Connection: close',
  'Connection: keep-alive, content-length',
  'Connection: transfer-encoding',
  'Connection: host',
  'Expect: 100-continue',
  'X-A: b\r\n c',
  'X-A: b\n c',
  'X-A: \r\n b',
  'X-A\r\n: b',
  'Upgrade: websocket',
  'Upgrade: h2c',
  'X-A: a\0b',
  'X-A: a\rb',
  'X-A: \x7f',
  ': empty',
  'X A: b',
  'X-A',
  'X-A: \x01',
  '(X): a',
  'Transfer_Encoding: chunked',
  'Content_Length: 0',
  'X-Forwarded-For: 6.6.6.6',
  'Trailer: X-A',
  'TE: trailers',
  'Proxy-Connection: keep-alive',
  'Content-Length\xa0: 0',
  'X-A: content-length: 3',
  'Keep-Alive: timeout=1',
]
const sizes = mostly('$', [
  '0$',
  '0x$',
  '$;a=b',
  '$;a="b\r\n"',
  '$;\n',
  '$ ',
  ' $',
  '+$',
  '-$',
  '$\n',
  '$\r',
  '$;a\0',
  '00000000000000000$',
  'fffffffffffffffff',
  '$g',
  '$,',
  '',
  '$;a=b\rc',
])
const lasts = mostly('0\r\n\r\n', [
  '0\n\n',
  '0\r\n',
  '00\r\n\r\n',
  '0;a\r\nX-A: b\r\n\r\n',
  '0\r\nX A: b\r\n\r\n',
  '0\r\nX-A : b\r\n\r\n',
  '0\r\n\n',
  '0\r\r\n\r\n',
  '0\r\n\r\r\n',
  '0\r\nTransfer-Encoding: chunked\r\n\r\n',
  '0\r\n X: y\r\n\r\n',
  '-0\r\n\r\n',
  '0 \r\n\r\n',
  '0\r\nX\r\n\r\n',
])
const dataEnds = mostly('\r\n', ['\n', '', '\r', '\r\r\n', 'x\r\n', '\n\r\n'])

const chunksOf = (draw: Draw, body: string): string => {
  const size = draw(sizes).replace('$', body.length.toString(16))
  return `${size}\r\n${body}${draw(dataEnds)}${draw(lasts)}`
}

/** One connection's bytes: a request that is perhaps ambiguous, and another one after it. */
const attackOf = (draw: Draw, id: number): Buffer => {
  const inner = draw(['', 'x', `GET /s${id} HTTP/1.1\r\nHost: a.localhost\r\n\r\n`, 'hello'])
  const header = (name: string, value: string): string =>
    `${draw(namesBefore)}${draw([name, name, name.toLowerCase()])}${draw(nameEnds)}${draw([' ', ' ', '', '\t', '  '])}${value}${draw(ends)}`
  const lines: string[] = []
  for (let count = draw(mostly(1, [0, 2])); count > 0; count--) lines.push(header('Host', draw(hosts)))
  const isChunked = draw([true, false])
  const body = isChunked ? chunksOf(draw, inner) : inner
  const length = draw(mostly(body.length, [body.length + 1, Math.max(0, body.length - 1), 0, 1000]))
  const withLength = draw(isChunked ? mostly(0, [1]) : mostly(1, [2, 0]))
  const withCoding = draw(isChunked ? mostly(1, [2, 0]) : mostly(0, [1]))
  for (let count = 0; count < withLength; count++)
    lines.push(header('Content-Length', `${draw(lengths)}${length}${draw(lengthEnds).replace('$', String(length))}`))
  for (let count = 0; count < withCoding; count++) lines.push(header('Transfer-Encoding', draw(codings)))
  for (let count = draw([0, 0, 0, 0, 0, 1, 2]); count > 0; count--) lines.push(`${draw(extras)}${draw(ends)}`)
  lines.sort(() => draw([-1, 0, 1]))
  const before = draw(mostly('', ['http://a.localhost', 'http://b.localhost', 'https://a.localhost', '\\', '/']))
  const first = `${draw(mostly('', ['\r\n', '\n', '\r', ' ']))}${draw(methods)}${draw(mostly(' ', ['  ', '\t', '']))}${before}/c${id}${draw(targets)}`
  const head = `${first}${draw(mostly(' ', ['  ', '\t']))}${draw(versions)}${draw(ends)}${lines.join('')}${draw(ends)}`
  return Buffer.from(`${head}${body}GET /e${id} HTTP/1.1\r\nHost: a.localhost\r\nConnection: close\r\n\r\n`, 'latin1')
}

/** The requests that a program has received in each case, in order: complete ones only, by Node's own strict parser. */
const startProgram = async (t: TestContext) => {
  const seen = Array.from({ length: cases }, (): string[] => [])
  const errors: string[] = []
  const server = createServer({ keepAliveTimeout: 60_000 }, (req, res) => {
    let body = ''
    req.setEncoding('latin1').on('data', (chunk) => {
      body += chunk
    })
    req.on('end', () => {
      if (req.url === '/ready') return res.end()
      const id = Number(/\/[cse](\d+)/.exec(req.url ?? '')?.[1] ?? -1)
      // HAProxy passes a whole address on as it is.
      const path = req.url?.replace(/^https?:\/\/a\.localhost(?=\/)/, '')
      const said = `${req.method} ${path} ${req.headers.host} ${JSON.stringify(body)}`
      if (seen[id] === undefined) errors.push(said)
      else seen[id].push(said)
      res.writeHead(200, { 'x-seen': '1' }).end(req.method === 'HEAD' ? '' : 'ok')
    })
  })
  // A client that disconnects in the middle of its request is not an error.
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const packet = (error as { rawPacket?: Buffer }).rawPacket?.toString('latin1') ?? ''
    // Bytes outside ASCII in a path are passed on as they are; Node's own parser takes none.
    const isByChoice =
      error.code === 'HPE_INVALID_URL' && /^[A-Z]+ [\x21-\x7e\x80-\xff]+ HTTP\/1\.[01]\r\n/.test(packet)
    if (error.code?.startsWith('HPE') === true && error.code !== 'HPE_INVALID_EOF_STATE' && !isByChoice)
      errors.push(`${error.code} ${packet}`)
    socket.destroy()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return { seen, errors, port: (server.address() as AddressInfo).port }
}

/** So many requests in a row must bring nothing new before all is taken as received. */
const turns = 5

const createClients = () => {
  const open = new Set<Socket>()
  let events = 0
  /** All bytes that are returned until the connection ends. */
  const send = async (port: number, bytes: Buffer): Promise<string> => {
    const socket = connect(port, '127.0.0.1')
    let text = ''
    open.add(socket)
    socket.setEncoding('latin1').on('data', (chunk) => {
      events++
      text += chunk
    })
    socket.on('error', () => {})
    socket.write(bytes)
    await once(socket, 'close')
    open.delete(socket)
    events++
    return text
  }
  /** A proxy handles a connection's requests in order: later ones have passed the earlier ones. */
  const isQuiet = async (ports: readonly number[]): Promise<boolean> => {
    const before = events
    for (let turn = 0; turn < turns; turn++) await Promise.all(ports.map((port) => ask(port, { path: '/ready' })))
    return events === before
  }
  /** The answers at each port. */
  const sendAll = async (ports: readonly number[], bytes: readonly Buffer[]): Promise<string[][]> => {
    const answers = ports.map((port) => bytes.map((each) => send(port, each)))
    while (open.size > 0 && !(await isQuiet(ports)));
    for (const socket of open) socket.destroy()
    return Promise.all(answers.map((each) => Promise.all(each)))
  }
  return { sendAll }
}

/**
 * Whether all of some are among the others, in their order: a request that our router answers itself is not passed on.
 */
const isAmong = (some: readonly string[], others: readonly string[]): boolean => {
  let at = 0
  for (const each of others) if (each === some[at]) at++
  return at === some.length
}

test('of ten thousand requests that could be read in two ways none becomes another one than nginx or HAProxy would pass on', {
  timeout: 180_000,
}, async (t) => {
  const names = (['nginx', 'haproxy'] as PeerName[]).filter(isInstalled)
  if (names.length < 2) t.diagnostic('left out: what of nginx and haproxy is not installed')
  const draw = createDraw(seed)
  const attacks = Array.from({ length: cases }, (_, id) => attackOf(draw, id))
  const own = await startProgram(t)
  const { port, traffic } = await openInside(t, [route([{ host: '127.0.0.1', port: own.port }])])
  const peers = await Promise.all(
    names.map(async (name) => {
      const program = await startProgram(t)
      const peer = await startPeer(name, { port: await freePort(), target: program.port, silenceMs })
      t.after(() => peer.stop())
      return { ...program, front: peer.port }
    }),
  )
  const { sendAll } = createClients()
  const ports = [port, ...peers.map(({ front }) => front)]
  const answers: string[] = []
  const until = performance.now() + mostMs
  for (let from = 0; from < cases && performance.now() < until; from += atOnce)
    answers.push(...(await sendAll(ports, attacks.slice(from, from + atOnce)))[0]!)
  assert.deepEqual(own.errors, [], 'what is passed on is well-formed')
  let passed = 0
  const wrong: object[] = []
  for (const [id, answer] of answers.entries()) {
    const ours = own.seen[id]!
    passed += ours.length
    const theirs = peers.map(({ seen }) => seen[id]!)
    // A response without a request would be unexpected.
    const isAsked = ours.length <= (answer.match(/^x-seen: 1\r$/gim)?.length ?? 0)
    // For a path outside ASCII, Node's parser behind our router refuses the first request; the next one is still good.
    const isFollowing =
      /^[^\r\n]*[\x80-\xff]/.test(attacks[id]!.toString('latin1')) &&
      ours.every((line) => line.startsWith(`GET /e${id} `))
    const isKnown = theirs.length === 0 || isFollowing || theirs.some((seen) => isAmong(ours, seen))
    if (!isAsked || !isKnown) wrong.push({ sent: attacks[id]!.toString('latin1'), answer, ours, theirs })
  }
  assert.deepEqual(wrong.slice(0, 5), [], `${wrong.length} connections`)
  assert.ok(passed <= traffic.counts.requests, 'no more than were counted')
  assert.equal(traffic.counts.internalErrors, 0)
  t.diagnostic(`${answers.length} connections, ${traffic.counts.requests} requests counted, ${passed} passed on`)
  assert.ok(passed > cases / 10, 'enough of them are good')
})
