import assert from 'node:assert/strict'
import { request } from 'node:http'
import { test } from 'node:test'
import { brotliDecompressSync, gunzipSync } from 'node:zlib'
import fastify from 'fastify'
import { startApi } from '../../test/support/api.ts'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { standIn } from '../../test/support/stand-in.ts'
import { Secret } from '../lib/secret.ts'
import type { Metrics } from './metrics.ts'
import { addMetricsPage } from './pages.ts'
import type { Parts } from './parts.ts'

const api = await startApi({ idle: true, settings: { rateLimit: 10_000, failedLoginLimit: 10_000 } })

interface Answered {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: Buffer
}

/** The bytes as they are sent. */
const get = (path: string, headers: Record<string, string> = {}): Promise<Answered> =>
  new Promise((resolve, reject) => {
    const asked = request(api.url + path, { headers, agent: false }, async (answer) => {
      const body = Buffer.concat(await answer.toArray())
      resolve({ status: answer.statusCode!, headers: answer.headers, body })
    })
    asked.on('error', reject).end()
  })

const unpack = { br: brotliDecompressSync, gzip: gunzipSync }

for (const path of ['/openapi.json', '/docs/', '/docs/js/scalar.js', '/docs/js/start.js', '/guides/prelude.sh'])
  test(`${path} is sent compressed to those who take that, and not at all to those who have it`, async () => {
    const plain = await get(path)
    assert.deepEqual([plain.status, plain.headers['content-encoding']], [200, undefined])
    if (path.endsWith('/scalar.js')) assert.ok(plain.body.length > 1_000_000)
    for (const encoding of ['br', 'gzip'] as const) {
      const packed = await get(path, { 'accept-encoding': `deflate, ${encoding}` })
      assert.equal(packed.headers['content-encoding'], encoding)
      assert.match(String(packed.headers.vary), /\bAccept-Encoding\b/)
      assert.equal(packed.headers.etag, plain.headers.etag)
      assert.ok(unpack[encoding](packed.body).equals(plain.body))
    }
    assert.equal((await get(path, { 'accept-encoding': 'br;q=0, gzip' })).headers['content-encoding'], 'gzip')
    for (const etag of [String(plain.headers.etag), `"other", ${plain.headers.etag}`]) {
      const again = await get(path, { 'if-none-match': etag })
      assert.deepEqual([again.status, again.body.length], [304, 0])
    }
    assert.equal((await get(path, { 'if-none-match': '"other"' })).status, 200)
  })

test('the description may be read by every page, and nothing else by pages without an origin', async () => {
  const allowed = async (path: string) => (await get(path, { origin: 'null' })).headers['access-control-allow-origin']
  assert.equal(await allowed('/openapi.json'), '*')
  for (const path of ['/organization', '/docs/', '/console/ways', '/readyz', '/metrics'])
    assert.equal(await allowed(path), undefined, path)
})

test('any number of monitors cause one check of the database in a second', async () => {
  const { database } = api.parts
  const { ping } = database
  let checks = 0
  database.ping = (timeoutMs) => {
    checks += 1
    return ping(timeoutMs)
  }
  const answers = await Promise.all(Array.from({ length: 20 }, () => get('/readyz')))
  database.ping = ping
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]))
  assert.ok(checks <= 1, `${checks} checks`)
})

test('figures are for the operator, and for programs on this machine that are not proxies', async () => {
  const readers: [number, Record<string, string>][] = [
    [200, {}],
    [200, { authorization: `Bearer ${api.token}` }],
    [403, { authorization: `Bearer ${await api.newToken(['Read'])}` }],
    [403, { authorization: `Bearer ${(await api.newOrganization()).token}` }],
    [401, { authorization: 'Bearer wrong' }],
    // The headers that a proxy on this machine adds, and the host that it was asked for.
    [401, { 'x-forwarded-for': '203.0.113.1' }],
    [401, { forwarded: 'for=203.0.113.1' }],
    [401, { 'x-real-ip': '203.0.113.1' }],
    [401, { via: '1.1 proxy' }],
    [401, { host: 'slipway.example.org' }],
  ]
  for (const [status, headers] of readers)
    assert.equal((await get('/metrics', headers)).status, status, JSON.stringify(headers))
})

test('with a token of their own, figures are not for every program on this machine', async () => {
  const token = 'a-token-for-figures-alone'
  const strict = await startApi({ idle: true, settings: { metricsToken: new Secret(token) } })
  assert.equal((await strict.as(null)('GET', '/metrics')).status, 401)
  assert.equal((await strict.as(token)('GET', '/metrics')).status, 200)
  assert.equal((await strict.call('GET', '/metrics')).status, 200)
  assert.equal((await strict.as(token)('GET', '/organization')).status, 401)
})

test('figures are rendered once a second, however many read them', async () => {
  const clock = createFakeClock()
  const app = fastify()
  let rendered = 0
  const metrics = standIn<Metrics>({
    contentType: 'text/plain',
    async text() {
      rendered += 1
      return `rendered ${rendered}`
    },
  })
  const parts = standIn<Parts>({ settings: standIn<Parts['settings']>({}), clock })
  addMetricsPage(app, parts, metrics, () => assert.fail())
  const read = async (): Promise<string> => (await app.inject({ url: '/metrics', headers: { host: 'localhost' } })).body
  assert.deepEqual(new Set(await Promise.all(Array.from({ length: 20 }, read))), new Set(['rendered 1']))
  await clock.advance(999)
  assert.equal(await read(), 'rendered 1')
  await clock.advance(1)
  assert.equal(await read(), 'rendered 2')
})
