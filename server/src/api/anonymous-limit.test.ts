/** Every request without a caller is counted for its address, and one with a caller never is. */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, test } from 'node:test'
import { startApi } from '../../test/support/api.ts'
import { newId } from '../lib/ids.ts'
import { systemClock } from '../lib/time/clock.ts'
import { operations } from '../resources/index.ts'
import { createLookups } from './auth/lookups.ts'
import { createApi } from './server.ts'

const limit = 4
const api = await startApi({
  idle: true,
  git: true,
  settings: {
    ...{ rateLimit: 10_000, failedLoginLimit: 10_000, anonymousLimit: limit, anonymousTotal: 0 },
    ...{ trustedProxies: ['127.0.0.1'], corsOrigins: ['https://page.example'] },
  },
})
/** The clock stands still, so that no allowance is renewed. */
const clock = { ...systemClock, monotonicMs: () => 0 }
const still = await createApi({ ...api.parts, clock }, operations)
const url = await still.listen({ host: '127.0.0.1', port: 0 })
after(() => still.close())

interface Asked {
  method?: string
  headers?: Record<string, string>
  body?: string
}

const statusFrom = (address: string, path: string, { method, headers, body }: Asked = {}): Promise<number> =>
  new Promise((resolve, reject) => {
    const sent = { 'x-forwarded-for': address, ...headers }
    const asked = request(url + path, { method, headers: sent, agent: false }, (answer) => {
      resolve(answer.statusCode!)
      answer.resume()
    })
    asked.on('error', reject).end(body)
  })

const askOften = async (address: string, path: string, asked?: Asked, times = limit + 2): Promise<number[]> => {
  const found: number[] = []
  for (let n = 0; n < times; n += 1) found.push(await statusFrom(address, path, asked))
  return found
}

const json = { 'content-type': 'application/json' }
const wrong = { authorization: 'Token wrong' }

const doors: [name: string, path: string, status: number, asked?: Asked][] = [
  ['the start page', '/', 302],
  ['the description', '/openapi.json', 200],
  ['the description with a token that nobody looks at', '/openapi.json', 200, { headers: wrong }],
  ['a script', '/docs/js/start.js', 200],
  ['a guide', '/guides/prelude.sh', 200],
  ['the ways to sign in', '/console/ways', 200],
  ['a sign-in', '/console/session', 401, { method: 'POST', headers: json, body: '{"token":"wrong"}' }],
  ['a sign-out', '/console/session', 401, { method: 'DELETE' }],
  ['a git client without a password', `/git/${newId()}.git/info/refs?service=git-upload-pack`, 401],
  ['an inbound webhook', `/git-webhooks/${newId()}`, 404, { method: 'POST', headers: json, body: '{}' }],
  ['a question of a browser', '/organization', 204, { method: 'OPTIONS', headers: wrong }],
  ['an operation without a token', '/organization', 401],
  [
    'a websocket without a token',
    '/organization/x/changes',
    401,
    { headers: { connection: 'upgrade', upgrade: 'websocket' } },
  ],
  ['an unknown path', '/nowhere', 401],
  ['figures', '/metrics', 401],
]

for (const [index, [name, path, status, asked]] of doors.entries())
  test(`${name}: one address has its share, then gets a 429`, async () => {
    const address = `203.0.113.${index}`
    const found = await askOften(address, path, asked)
    assert.deepEqual(found, [...Array(limit).fill(status), 429, 429])
    // Other addresses are not limited, nor is a caller behind the same address.
    assert.equal(await statusFrom(`198.51.100.${index}`, path, asked), status)
    const own = { headers: { authorization: `Token ${api.token}` } }
    assert.equal(await statusFrom(address, '/organization', own), 200)
  })

test('a 429 says how long to wait, by the contract of errors', async () => {
  await askOften('203.0.113.200', '/openapi.json')
  const answer = await fetch(`${url}/openapi.json`, { headers: { 'x-forwarded-for': '203.0.113.200' } })
  const body = (await answer.json()) as Record<string, unknown>
  assert.deepEqual([body.status, body.code, body.error], [429, 'rate_limited', 'Too Many Requests'])
  assert.ok(Number(answer.headers.get('retry-after')) >= 1)
  assert.equal(answer.headers.get('retry-after'), answer.headers.get('x-ratelimit-reset'))
})

test('one network of IPv6 is one address', async () => {
  const found: number[] = []
  for (let n = 0; n < limit + 1; n += 1) found.push(await statusFrom(`2001:db8:1:2::${n}`, '/openapi.json'))
  assert.deepEqual(found, [...Array(limit).fill(200), 429])
  assert.equal(await statusFrom('2001:db8:1:3::1', '/openapi.json'), 200)
})

test('all addresses together have their share, and each one a little beyond it', async (t) => {
  const settings = { ...api.parts.settings, anonymousLimit: 20, anonymousTotal: 30 }
  const crowded = await createApi({ ...api.parts, settings, clock }, operations)
  const at = await crowded.listen({ host: '127.0.0.1', port: 0 })
  t.after(() => crowded.close())
  const admitted = async (address: string): Promise<number> => {
    const found: number[] = []
    for (let n = 0; n < 25; n += 1)
      found.push((await fetch(`${at}/console/ways`, { headers: { 'x-forwarded-for': address } })).status)
    return found.filter((status) => status !== 429).length
  }
  const found: number[] = []
  for (const address of ['203.0.113.1', '203.0.113.2', '203.0.113.3']) found.push(await admitted(address))
  assert.deepEqual(found, [20, 12, 2])
})

test('callers and monitors are never counted for their address, however many requests they send', async () => {
  const address = '203.0.113.201'
  const own = { headers: { authorization: `Token ${api.token}` } }
  const signIn = {
    method: 'POST',
    headers: { ...json, 'x-forwarded-proto': 'https' },
    body: `{"token":"${api.token}"}`,
  }
  const ways: [string, number, Asked?][] = [
    ['/healthz', 200],
    ['/readyz', 200],
    ['/organization', 200, own],
    ['/nowhere', 404, own],
    ['/metrics', 200, own],
    ['/console/session', 201, signIn],
  ]
  for (const [path, status, asked] of ways)
    assert.deepEqual(await askOften(address, path, asked, limit + 3), Array(limit + 3).fill(status), path)
  assert.deepEqual(await askOften(address, '/openapi.json', {}, limit), Array(limit).fill(200))
})

test('genuine deliveries of a git host or registry are not counted for its address', async () => {
  const address = '203.0.113.202'
  const hook = (await api.call('POST', `/organization/${api.organizationId}/gitWebhook`, {})).body
  const path = `/git-webhooks/${hook.id}`
  const body = (n: number): string =>
    JSON.stringify({ push_data: { pushed_at: n, tag: 'v1' }, repository: { repo_name: 'a/b' } })
  const deliver = (n: number, secret: string): Promise<number> =>
    statusFrom(address, path, { method: 'POST', headers: { ...json, authorization: secret }, body: body(n) })
  const found: number[] = []
  for (let n = 0; n < limit + 3; n += 1) found.push(await deliver(n, hook.signing_secret))
  assert.deepEqual(found, Array(limit + 3).fill(202))
  const wrongOnes: number[] = []
  for (let n = 0; n < limit + 1; n += 1) wrongOnes.push(await deliver(n, 'wrong'))
  assert.deepEqual(wrongOnes, [...Array(limit).fill(401), 429])
})

test('what one address has looked up keeps no other address waiting', async () => {
  const inTurn = createLookups()
  const gate = Promise.withResolvers<void>()
  let begun = 0
  const flood = Array.from({ length: 50 }, () =>
    inTurn('203.0.113.1', () => {
      begun += 1
      return gate.promise
    }),
  )
  assert.equal(await inTurn('203.0.113.2', async () => 'found'), 'found')
  assert.ok(begun < 5, `${begun} at once`)
  gate.resolve()
  await Promise.all(flood)
  assert.equal(begun, 50)
})
