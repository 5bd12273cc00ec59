/** Web pages of other origins: those that the operator lists read every answer, all others none. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WebSocket } from 'ws'
import { newApplication, newPlace, startApi } from '../../test/support/api.ts'

const origin = 'https://console.example.org'
const other = 'https://evil.example'
const settings = { corsOrigins: [origin, 'http://127.0.0.1:4200'], rateLimit: 1000, failedLoginLimit: 3 }
const api = await startApi({ idle: true, settings })
const { environmentId } = await newPlace(api)
const service = await newApplication(api, environmentId)

const corsOf = ({ headers }: { headers: Headers }): Record<string, string> =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control-')))

const preflight = (from: string, path = '/organization', more: Record<string, string> = {}) =>
  fetch(api.url + path, {
    method: 'OPTIONS',
    headers: { origin: from, 'access-control-request-method': 'POST', ...more },
  })

test('a listed page gets the methods and headers that it may send, on every path, without a token', async () => {
  for (const path of ['/organization', `/environment/${environmentId}/container`, '/nowhere', '/openapi.json']) {
    const asked = 'authorization,content-type,idempotency-key,if-none-match,sentry-trace'
    const answer = await preflight(origin, path, { 'access-control-request-headers': asked })
    assert.equal(answer.status, 204, path)
    assert.equal(answer.headers.get('access-control-allow-origin'), origin)
    assert.equal(answer.headers.get('access-control-allow-headers'), asked)
    assert.match(answer.headers.get('access-control-allow-methods')!, /GET, HEAD, POST, PUT, PATCH, DELETE/)
    assert.match(answer.headers.get('vary')!, /Origin/)
    assert.equal(answer.headers.get('access-control-allow-credentials'), null)
  }
  const odd = await preflight(origin, '/organization', { 'access-control-request-headers': 'x y: z' })
  assert.match(odd.headers.get('access-control-allow-headers')!, /^authorization, content-type/)
})

test('a listed page can read every answer, whatever its status, and knows what it varies with', async () => {
  const limited = await startApi({ idle: true, settings: { ...settings, rateLimit: 2 } })
  const path = `/organization/${limited.organizationId}/project`
  const statuses: number[] = []
  const read = async (answer: Promise<{ status: number; headers: Headers }>) => {
    const { status, headers } = await answer
    statuses.push(status)
    assert.equal(headers.get('access-control-allow-origin'), origin, String(status))
    assert.match(headers.get('vary')!, /\bOrigin\b/)
    const exposed = headers.get('access-control-expose-headers')!.split(', ')
    for (const name of ['etag', 'x-request-id', 'x-ratelimit-remaining', 'retry-after', 'slipway-not-applied'])
      assert.ok(exposed.includes(name), name)
  }
  const from = { origin }
  await read(limited.as(null)('GET', path, undefined, from))
  await read(limited.call('GET', path, undefined, from))
  await read(limited.call('POST', path, '{', from))
  await read(limited.call('GET', path, undefined, from))
  await read(api.call('GET', '/nowhere', undefined, from))
  await read(api.call('GET', '/%', undefined, from))
  await read(api.call('GET', `/application/${service.id}/status`, undefined, from))
  assert.deepEqual(statuses, [401, 200, 400, 429, 404, 404, 200])
  const status = await api.call('GET', `/application/${service.id}/status`, undefined, from)
  assert.equal(status.headers.get('vary'), 'Origin, User-Agent, X-State-Vocabulary')
})

test('a failure of our own can be read too', async () => {
  const broken = await startApi({ idle: true, settings })
  await broken.database.query('alter table node rename to nodes')
  const answer = await broken.call('GET', `/environment/${environmentId}`, undefined, { origin })
  assert.deepEqual([answer.status, answer.headers.get('access-control-allow-origin')], [500, origin])
})

test('a stream of events can be read by a listed page', async () => {
  const leaving = new AbortController()
  const headers = { origin, authorization: `Token ${api.token}` }
  const path = `/application/${service.id}/status/stream`
  const answer = await fetch(api.url + path, { headers, signal: leaving.signal })
  assert.deepEqual([answer.status, answer.headers.get('access-control-allow-origin')], [200, origin])
  leaving.abort()
})

test('a page of another origin gets no headers, and every answer says that it varies', async () => {
  for (const strange of [other, 'null', `${origin}.evil.example`, 'http://console.example.org', origin.toUpperCase()]) {
    const answer = await api.call('GET', '/organization', undefined, { origin: strange })
    assert.deepEqual([answer.status, corsOf(answer)], [200, {}], strange)
    assert.equal(answer.headers.get('vary'), 'Origin')
    assert.deepEqual(corsOf(await preflight(strange)), {}, strange)
  }
  assert.equal((await api.call('GET', '/organization')).headers.get('vary'), 'Origin')
})

test('without the setting no page gets headers', async () => {
  const closed = await startApi({ idle: true })
  const answer = await closed.call('GET', '/organization', undefined, { origin })
  assert.deepEqual([corsOf(answer), answer.headers.get('vary')], [{}, null])
  const asked = await fetch(`${closed.url}/organization`, {
    method: 'OPTIONS',
    headers: { origin, 'access-control-request-method': 'GET' },
  })
  assert.deepEqual([asked.status, corsOf(asked)], [204, {}])
})

const handshake = (from: string | undefined, asBrowser: boolean): Promise<number> =>
  new Promise((resolve, reject) => {
    const path = `/environment/${environmentId}`.replace('/environment/', '/deployment/status?environment=')
    const options = { ...(from === undefined ? {} : { origin: from }) }
    const socket = asBrowser
      ? new WebSocket(api.url + path, ['v1', `auth.bearer.${api.token}`], options)
      : new WebSocket(api.url + path, { ...options, headers: { authorization: `Token ${api.token}` } })
    socket.on('unexpected-response', (_request, answer) => resolve(answer.statusCode!))
    socket.on('open', () => {
      socket.terminate()
      resolve(101)
    })
    socket.on('error', reject)
  })

test('a websocket is open to listed pages, to our own and to programs, and to no other page', async () => {
  assert.equal(await handshake(origin, true), 101)
  assert.equal(await handshake(api.url, true), 101)
  assert.equal(await handshake(undefined, true), 101)
  assert.equal(await handshake(other, false), 101)
  assert.equal(await handshake(other, true), 403)
  assert.equal(await handshake('null', true), 403)
})
