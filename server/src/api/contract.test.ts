/** Rules for every answer, whatever the operation: forms, negotiation, and how malformed requests are refused. */
import assert from 'node:assert/strict'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { type Answer, newApplication, newPlace, startApi } from '../../test/support/api.ts'
import { operations } from '../resources/index.ts'
import { describe } from './operations/openapi.ts'

const api = await startApi({ idle: true, settings: { rateLimit: 100_000, failedLoginLimit: 100_000 } })
const { call, organizationId } = api
const { port } = new URL(api.url)
const projects = `/organization/${organizationId}/project`
const token = `Token ${api.token}`

const isError = (answer: Answer, status: number, code: string): void => {
  assert.equal(answer.status, status, JSON.stringify(answer.body))
  assert.deepEqual([answer.body.status, answer.body.code], [status, code])
}

/** The whole answer to bytes that no HTTP client would send. */
const ask = (text: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1', () => socket.write(text))
    let answer = ''
    socket.on('data', (chunk) => {
      answer += chunk
    })
    socket.on('close', () => resolve(answer))
    socket.on('error', reject)
  })

const asked = (path: string, headers: string[] = []): Promise<string> =>
  ask([`GET ${path} HTTP/1.1`, 'host: x', 'connection: close', ...headers, '', ''].join('\r\n'))

test('a problem document has the members of RFC 9457 beside our own', async () => {
  const accept = 'application/problem+json'
  const answer = await call('POST', projects, { name: 5 }, { accept })
  isError(answer, 400, 'invalid_request')
  assert.equal(answer.headers.get('content-type'), `${accept}; charset=utf-8`)
  const { type, title, status, detail, instance, error, message, request_id, details } = answer.body
  assert.deepEqual([type, title, status], ['urn:slipway:invalid_request', 'Bad Request', 400])
  assert.deepEqual([detail, error, instance], [message, title, `urn:slipway:request:${request_id}`])
  assert.deepEqual(
    details.map(({ field }: { field: string }) => field),
    ['/name'],
  )
  assert.match(await asked('/%', [`authorization: ${token}`, `accept: ${accept}`]), /"type":"urn:slipway:not_found"/)
})

test('a body with too many values, or a list that is too long, is one 400 that names what is too much', async () => {
  const { environmentId } = await newPlace(api)
  const create = (storage: string) =>
    call('POST', `/environment/${environmentId}/application`, `{"name":"x","storage":[${storage}{}]}`)
  const many = await create('{},'.repeat(340_000))
  isError(many, 400, 'invalid_request')
  assert.deepEqual(many.body.details, [{ field: '', message: 'must have at most 10000 values' }])
  assert.match(many.body.message, /The body must have at most 10000 values/)
  const long = await create('{},'.repeat(2000))
  isError(long, 400, 'invalid_request')
  assert.deepEqual(long.body.details, [{ field: '/storage', message: 'must have at most 20 items' }])
})

test('problem documents go to those who want them at least as much as plain JSON', async () => {
  const typeFor = async (accept: string) =>
    (await call('GET', '/nowhere', undefined, { accept })).headers.get('content-type')
  for (const accept of [
    'application/problem+json, application/json',
    'application/json;q=0.5, application/problem+json;q=0.9',
    'Application/Problem+JSON',
    'text/html, application/problem+json;q=0.1, */*;q=0.1',
  ])
    assert.equal(await typeFor(accept), 'application/problem+json; charset=utf-8', accept)
  for (const accept of [
    '*/*',
    'application/*',
    'application/json, application/problem+json;q=0.5',
    'application/problem+json;q=0',
    'text/html',
  ])
    assert.equal(await typeFor(accept), 'application/json; charset=utf-8', accept)
})

const taken = ['*/*', 'application/*', 'application/json', 'application/json; charset=utf-8', 'text/html, */*;q=0.1']
const alsoTaken = [
  'application/problem+json',
  'APPLICATION/JSON;q=0.01',
  'no media type at all',
  'text/html,;, application/*',
]
const refused = [
  'text/html',
  'application/xml',
  'application/json;q=0',
  'text/*',
  '*/*;q=0',
  'application/json;q=0, */*',
]

test('an Accept that JSON satisfies is answered, any other is 406', async () => {
  for (const accept of [...taken, ...alsoTaken]) {
    const answer = await call('GET', '/organization', undefined, { accept })
    assert.equal(answer.status, 200, accept)
    assert.equal(answer.headers.get('content-type'), 'application/json; charset=utf-8')
  }
  for (const accept of refused) isError(await call('GET', projects, undefined, { accept }), 406, 'not_acceptable')
  assert.match(await asked('/organization', [`authorization: ${token}`]), /^HTTP\/1\.1 200 /)
})

test('a 406 is said before anything is changed, after who may ask is known, and never where there is no body', async () => {
  const accept = 'text/html'
  isError(await call('POST', projects, { name: 'never made' }, { accept }), 406, 'not_acceptable')
  const { results } = (await call('GET', projects)).body
  assert.deepEqual(
    results.filter(({ name }: { name: string }) => name === 'never made'),
    [],
  )
  assert.equal((await api.as(null)('GET', projects, undefined, { accept })).status, 401)
  assert.equal((await call('GET', `${projects}x`, undefined, { accept })).status, 404)
  const { projectId } = await newPlace(api)
  assert.equal((await call('DELETE', `/project/${projectId}`, undefined, { accept })).status, 204)
})

test('a stream of events goes to those who take event streams, and what needs no token minds no Accept', async () => {
  const { environmentId } = await newPlace(api)
  const path = `/application/${(await newApplication(api, environmentId)).id}/log/stream`
  isError(await call('GET', path, undefined, { accept: 'application/json' }), 406, 'not_acceptable')
  for (const accept of ['text/event-stream', 'text/*', '*/*']) {
    const leaving = new AbortController()
    const headers = { authorization: token, accept }
    const answer = await fetch(api.url + path, { headers, signal: leaving.signal })
    assert.deepEqual([answer.status, answer.headers.get('content-type')], [200, 'text/event-stream'])
    leaving.abort()
  }
  for (const page of ['/openapi.json', '/healthz', '/readyz', '/metrics', '/docs/'])
    assert.equal((await fetch(api.url + page, { headers: { accept: 'image/png' } })).status, 200, page)
})

test('every answer has the rate limit, also where the address cannot be read or does not exist', async () => {
  const unreadable = ['/%', '/%zz', '/project/%ff', `/project/${'y'.repeat(300)}`, `/${'y'.repeat(9000)}`]
  for (const path of [...unreadable, '/nowhere', '/organization', '/environment/x'])
    for (const authorization of [token, '', 'Token nonsense']) {
      const answer = await asked(path, authorization === '' ? [] : [`authorization: ${authorization}`])
      assert.match(answer, /\r\nx-ratelimit-limit: 100000\r\n/i, path.slice(0, 20))
      assert.match(answer, /\r\nx-ratelimit-remaining: \d+\r\n/i)
      assert.match(answer, /\r\nx-ratelimit-reset: 0\r\n/i)
      assert.match(answer, /\r\nx-request-id: [\w-]{8,}\r\n/i)
      if (authorization !== token) assert.match(answer, /^HTTP\/1\.1 401 /)
    }
})

test('a method that no operation has is refused with those there are, whatever it carries', async () => {
  for (const method of ['QUERY', 'PROPFIND', 'REPORT', 'TRACE', 'M-SEARCH'])
    for (const [more, body] of [
      [[], ''],
      [['content-type: text/xml', 'content-length: 2'], '{}'],
    ] as const) {
      const asWhom = async (headers: string[]): Promise<string> =>
        ask([`${method} /organization HTTP/1.1`, 'host: x', 'connection: close', ...headers, '', body].join('\r\n'))
      const answer = await asWhom([`authorization: ${token}`, ...more])
      assert.match(answer, /^HTTP\/1\.1 405 .*\r\nallow: [A-Z, ]*POST/is, method)
      assert.match(await asWhom([...more]), /^HTTP\/1\.1 401 /, method)
    }
})

test('unreadable addresses are counted like any other request', async () => {
  const limited = await startApi({ idle: true, settings: { rateLimit: 3, failedLoginLimit: 2 } })
  const ask = (headers: Record<string, string>): Promise<number> =>
    new Promise((resolve, reject) => {
      const { port } = new URL(limited.url)
      const request = httpRequest({ port, host: '127.0.0.1', path: '/%', headers }, (answer: IncomingMessage) => {
        answer.resume()
        resolve(answer.statusCode!)
      })
      request.on('error', reject).end()
    })
  const statuses: number[] = []
  for (let n = 0; n < 4; n += 1) statuses.push(await ask({ authorization: `Token ${limited.token}` }))
  for (let n = 0; n < 3; n += 1) statuses.push(await ask({}))
  assert.deepEqual(statuses, [404, 404, 404, 429, 401, 401, 429])
})

const upgrade = ['connection: upgrade', 'upgrade: websocket', 'sec-websocket-version: 13']
const withKey = [...upgrade, 'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==']

test('a request to upgrade is answered as an ordinary one wherever no socket is', async () => {
  const ask = (path: string, upgrades: string[]): Promise<{ status: number; type: string | undefined }> =>
    new Promise((resolve, reject) => {
      const lines = Object.fromEntries(upgrades.map((line) => line.split(': ') as [string, string]))
      const request = httpRequest({ port, host: '127.0.0.1', path, headers: { authorization: token, ...lines } })
      request.on('upgrade', () => resolve({ status: 101, type: undefined }))
      request.on('response', (answer) => {
        answer.resume()
        resolve({ status: answer.statusCode!, type: answer.headers['content-type'] })
      })
      request.on('error', reject).end()
    })
  for (const path of ['/organization', projects, '/healthz'])
    for (const upgrades of [
      withKey,
      upgrade,
      ['connection: Upgrade, HTTP2-Settings', 'upgrade: h2c', 'http2-settings: AAMAAABk'],
    ])
      assert.deepEqual(await ask(path, upgrades), { status: 200, type: 'application/json; charset=utf-8' })
  assert.equal((await ask('/nowhere', withKey)).status, 404)
  assert.equal((await ask('/service/logs', [])).status, 404)
})

test('a socket opens only at its own path, and only for callers with the right', async () => {
  const { environmentId } = await newPlace(api)
  const { id } = await newApplication(api, environmentId)
  const open = (authorization: string): Promise<string> =>
    new Promise((resolve) => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}/service/logs?service=${id}`, { headers: { authorization } })
      socket.on('open', () => {
        resolve('open')
        socket.close()
      })
      socket.on('error', (error) => resolve(error.message))
    })
  assert.equal(await open(token), 'open')
  assert.equal(await open('Token nonsense'), 'Unexpected server response: 401')
})

test('what is too long is refused in the one form: 413, 414, 431', async () => {
  const large = await call('POST', projects, { name: 'x'.repeat(1_048_577) })
  isError(large, 413, 'body_too_large')
  assert.equal(large.headers.get('connection'), 'close')
  const announced = `POST ${projects} HTTP/1.1\r\nhost: x\r\nauthorization: ${token}\r\ncontent-type: application/json`
  assert.match(await ask(`${announced}\r\ncontent-length: 9999999999\r\n\r\n{`), /^HTTP\/1\.1 413 /)
  isError(await call('GET', `/organization?x=${'y'.repeat(8192)}`), 414, 'uri_too_long')
  assert.match(await asked('/organization', [`x: ${'y'.repeat(20_000)}`]), /^HTTP\/1\.1 431 [\s\S]*"status":431/)
})

test('a body of another type is 415 where a body is read; a GET minds no content-type', async () => {
  const unreadable: Record<string, string>[] = [
    { 'content-type': 'text/plain' },
    { 'content-type': 'application/json; charset=latin1' },
    { 'content-encoding': 'br' },
  ]
  for (const headers of unreadable)
    isError(await call('POST', projects, '{"name":"x"}', headers), 415, 'unsupported_media_type')
  const untyped = `POST ${projects} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: ${token}\r\ncontent-length: 2\r\n\r\n{}`
  assert.match(await ask(untyped), /^HTTP\/1\.1 415 /)
  assert.equal((await call('GET', projects, undefined, { 'content-type': 'text/plain' })).status, 200)
})

test('every path of every operation lists its methods, and refuses the others with Allow', async () => {
  const paths = new Map<string, Set<string>>()
  for (const { method, path } of operations) paths.set(path, (paths.get(path) ?? new Set()).add(method))
  for (const [path, methods] of paths) {
    const address = path.replaceAll(/\{\w+\}/g, 'some-id')
    const allow = (await api.as(null)('OPTIONS', address)).headers.get('allow')?.split(', ') ?? []
    for (const method of methods) assert.ok(allow.includes(method), `${path}: ${allow}`)
    const other = ['PATCH', 'DELETE', 'PUT', 'POST', 'GET'].find((each) => !allow.includes(each))!
    const answer = await call(other, address)
    isError(answer, 405, 'method_not_allowed')
    assert.deepEqual(answer.headers.get('allow')?.split(', '), allow)
    assert.equal((await api.as(null)(other, address)).status, 401)
  }
})

test('the description names the errors of every operation, all of them described', () => {
  // biome-ignore lint/suspicious/noExplicitAny: a document is read here
  const document = describe(operations) as any
  for (const { id, path, method, produces } of operations) {
    const { responses } = document.paths[path][method.toLowerCase()]
    for (const status of ['400', '401', '403', '404', '429', '503']) assert.ok(responses[status], `${id}: ${status}`)
    if (method !== 'GET') for (const status of ['409', '413', '415']) assert.ok(responses[status], `${id}: ${status}`)
    for (const [status, { $ref }] of Object.entries<{ $ref?: string }>(responses))
      if ($ref !== undefined) assert.ok(document.components.responses[$ref.split('/').at(-1)!], `${id}: ${status}`)
    if (produces === 'websocket') assert.ok(responses[101])
  }
})
