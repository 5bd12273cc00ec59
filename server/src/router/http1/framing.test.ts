/** Heads and bodies, in one piece and byte by byte: the result is the same. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BodyReader } from './body.ts'
import { malformed, more, tooLarge } from './head.ts'
import { RequestHead } from './request-head.ts'
import { inChunks, ResponseHead, untilClose } from './response-head.ts'

const most = 4096

/** Where the head ends, read at once; reading it byte by byte must give the same. */
const readHead = (head: RequestHead | ResponseHead, text: string): number => {
  const bytes = Buffer.from(text, 'latin1')
  head.reset()
  let slow = more
  for (let end = 1; end <= bytes.length && slow === more; end++) slow = head.read(bytes, 0, end, most)
  const said = slow > 0 ? head.headers : null
  head.reset()
  const fast = head.read(bytes, 0, bytes.length, most)
  assert.equal(slow, fast, JSON.stringify(text))
  if (fast > 0) assert.deepEqual(head.headers, said)
  return fast
}

const host = 'Host: a\r\n'

test('the head of a request is read in one way, or not at all', () => {
  const head = new RequestHead()
  const good = `POST /a?b HTTP/1.1\r\n${host}X-A:  b \t\r\nX_Forwarded_For: 6.6.6.6\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nContent-Length: 12\r\n\r\n`
  assert.equal(readHead(head, `${good}rest`), good.length)
  assert.deepEqual(
    [head.method, head.target, head.host, head.bodyLength, head.wantsToStay],
    ['POST', '/a?b', 'a', 12, false],
  )
  assert.equal(head.linesForTarget(), `${host}X-A: b\r\nContent-Length: 12\r\n`)
  const plain = `GET / HTTP/1.1\r\n${host}Connection: keep-alive\r\nAccept: x\r\nForwarded: for=x\r\nCookie: a=b\r\n\r\n`
  assert.equal(readHead(head, plain), plain.length)
  assert.equal(head.linesForTarget(), `${host}Accept: x\r\nCookie: a=b\r\n`)
  const bad = [
    `GET / HTTP/1.1\n${host}\r\n`,
    `GET / HTTP/1.1\r\nHost: a\n\r\n`,
    `GET / HTTP/1.1\r\n${host}\n`,
    `GET  / HTTP/1.1\r\n${host}\r\n`,
    `GET / HTTP/1.2\r\n${host}\r\n`,
    `GET / HTTP/2.0\r\n${host}\r\n`,
    `GET /\r\n${host}\r\n`,
    `get / HTTP/1.1\r\n${host}\r\n`,
    `FETCH / HTTP/1.1\r\n${host}\r\n`,
    `GET /a#b HTTP/1.1\r\n${host}\r\n`,
    `GET /a\0 HTTP/1.1\r\n${host}\r\n`,
    `GET / HTTP/1.1\r\n${host}X-A : b\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host} X-A: b\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}X-A: b\r\n c\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}X-A: b\rc\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}X-A: b\0\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}X-A\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}: b\r\n\r\n`,
    `GET / HTTP/1.1\r\n${host}X(A): b\r\n\r\n`,
    ...['+1', '-1', '1, 1', '0x1', '01', '', '1.0', '1e3', '99999999999999999999', 'a'].map(
      (length) => `GET / HTTP/1.1\r\n${host}Content-Length: ${length}\r\n\r\n`,
    ),
    `GET / HTTP/1.1\r\n${host}Content-Length: 1\r\nContent-Length: 1\r\n\r\n`,
  ]
  for (const text of bad) assert.equal(readHead(head, text), malformed, JSON.stringify(text))
  assert.equal(readHead(head, `GET /${'x'.repeat(most)} HTTP/1.1\r\n${host}\r\n`), tooLarge)
  assert.equal(readHead(head, `GET / HTTP/1.1\r\n${host}X-A: ${'x'.repeat(most)}\r\n\r\n`), tooLarge)
  const many = Buffer.from(`GET / HTTP/1.1\r\n${'a:b\r\n'.repeat(1001)}\r\n`)
  head.reset()
  assert.equal(head.read(many, 0, many.length, many.length), tooLarge)
})

test('the head of a response may have bare line feeds, and says in one way how its body ends', () => {
  const head = new ResponseHead()
  const bare = 'HTTP/1.0 200 OK\nX-A: b\nKeep-Alive: timeout=5\n\n'
  assert.equal(readHead(head, `${bare}body`), bare.length)
  assert.deepEqual([head.status, head.reason, head.lines, head.staysOpen], [200, 'OK', 'X-A: b\r\n', false])
  const lengthOf = (lines: string, method = 'GET', first = 'HTTP/1.1 200 OK'): number => {
    const text = `${first}\r\n${lines}\r\n`
    assert.equal(readHead(head, text), text.length, JSON.stringify(text))
    return head.bodyLength(method)
  }
  assert.equal(lengthOf(''), untilClose)
  assert.equal(lengthOf('', 'GET', 'HTTP/1.1 204'), 0)
  assert.equal(lengthOf('Content-Length: 5\r\n', 'HEAD'), 0)
  assert.equal(lengthOf('Content-Length: 5\r\n'), 5)
  assert.equal(lengthOf('Transfer-Encoding: chunked\r\n'), inChunks)
  assert.equal(lengthOf('Transfer-Encoding: gzip, chunked\r\n'), malformed)
  assert.equal(lengthOf('Transfer-Encoding: chunked\r\nContent-Length: 5\r\n'), malformed)
  assert.equal(lengthOf('Transfer-Encoding: chunked\r\n', 'GET', 'HTTP/1.0 200 OK'), malformed)
  for (const text of [
    'HTTP/1.1 20 OK\r\n\r\n',
    'HTTP/2 200 OK\r\n\r\n',
    'HTTP/1.1 200 OK\r\n X: y\r\n\r\n',
    'hello, world',
  ])
    assert.equal(readHead(head, text), malformed, JSON.stringify(text))
})

/** The bytes passed on from a body that arrives in pieces of this size. */
const readBody = (text: string, size: number, isFramed: boolean) => {
  const reader = new BodyReader()
  reader.begin(inChunks, isFramed)
  let passed = ''
  const sink = {
    onBody(bytes: Buffer, from: number, to: number): void {
      passed += bytes.toString('latin1', from, to)
    },
  }
  let used = 0
  for (let from = 0; from < text.length && !reader.isDone; from += size) {
    const bytes = Buffer.from(text.slice(from, from + size), 'latin1')
    const at = reader.read(bytes, 0, bytes.length, sink)
    if (at === malformed) return 'malformed'
    used = from + at
  }
  return { passed, used, trailers: reader.trailers, received: reader.received, isDone: reader.isDone }
}

test('chunks are passed on as they came, without extensions and trailers, in whatever pieces they come', () => {
  const text = '5;a=b;c="d"\r\nhello\r\n0a\r\n0123456789\r\n0;x\r\nX-A:  b \r\nX-B:\r\n\r\n'
  const rest = 'GET / HTTP/1.1\r\n'
  for (let size = 1; size <= text.length + rest.length; size++) {
    const common = { used: text.length, trailers: ['X-A', 'b', 'X-B', ''], received: 15, isDone: true }
    assert.deepEqual(readBody(text + rest, size, true), {
      passed: '5\r\nhello\r\n0a\r\n0123456789\r\n0\r\n',
      ...common,
    })
    assert.deepEqual(readBody(text + rest, size, false), { passed: 'hello0123456789', ...common })
  }
  const bad = [
    ...['5\nhello\r\n', ' 5\r\n', '5 \r\n', '0x5\r\n', '+5\r\n', '\r\n', ';a\r\n', '5;a\nb\r\n', '5;a\0\r\n'],
    ...['5\r\nhelloX\r\n', '5\r\nhello\n', '5\r\nhello\r5', '1000000000000\r\n', `5;${'x'.repeat(5000)}\r\n`],
    ...['0\r\n\n', '0\r\nX A: b\r\n\r\n', '0\r\n X: y\r\n\r\n', '0\r\nX\r\n\r\n', '0\r\nX: \0\r\n\r\n', '0\r\n\rx'],
    ...['0\r\nContent-Length: 3\r\n\r\n', '0\r\ntransfer-encoding: chunked\r\n\r\n'],
    `0\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`,
  ]
  for (const each of bad)
    for (const size of [1, 7, each.length]) assert.equal(readBody(each, size, true), 'malformed', each)
})
