/** Behavior of the client towards an API server that is slow, large, unwilling or not one at all. */
import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { createAuthority, opensslIsMissing } from '../../../test/support/peers/certificates.ts'
import { failure, json, type Respond, startCluster } from '../../../test/support/peers/kubernetes.ts'
import { OutboundRefused } from '../net/outbound-errors.ts'
import type { Pin } from '../net/pinned-connector.ts'
import { Secret } from '../secret.ts'
import type { KubernetesAccess } from './kubeconfig.ts'
import { type AskOptions, createKubernetesApi } from './kubernetes-api.ts'
import { isRefusedAccess, KubernetesError } from './kubernetes-errors.ts'
import { parseQuantity } from './quantity.ts'

const loopback: Pin = async () => ({ address: '127.0.0.1' })

const start = async (t: TestContext, more: Partial<KubernetesAccess> = {}, pin = loopback) => {
  const cluster = await startCluster()
  const api = createKubernetesApi(cluster.access(more), pin)
  t.after(async () => {
    await api.close()
    await cluster.close()
  })
  const respond = (answer: Respond) => cluster.instead.set('/api/v1/nodes', answer)
  const ask = (options: AskOptions = {}): Promise<KubernetesError | undefined> =>
    api.get('/api/v1/nodes', options).then(
      () => undefined,
      (error: unknown) => {
        assert.ok(error instanceof KubernetesError, String(error))
        assert.ok(!error.message.includes(cluster.token))
        return error
      },
    )
  return { cluster, api, respond, ask }
}

test('what the API server says no with becomes a status and a sentence', async (t) => {
  const { respond, ask } = await start(t)
  const cases: [Respond, number, RegExp, boolean][] = [
    [(_, response) => failure(response, 401, 'Unauthorized'), 401, /does not accept the credentials/, true],
    [(_, response) => failure(response, 403, 'nodes is\n forbidden'), 403, /not allow this: nodes is forbidden$/, true],
    [(_, response) => failure(response, 410, 'too old'), 410, /status 410: too old/, false],
    [(_, response) => failure(response, 500, 'x'.repeat(5000)), 500, /^.{0,300}$/, false],
    [(_, response) => void response.writeHead(503).end('<html>'), 503, /status 503\.$/, false],
    [(_, response) => void response.end('hello'), 0, /is not the API server/, false],
    [(_, response) => void response.writeHead(302, { location: '/version' }).end(), 302, /status 302/, false],
    [(_, response) => void response.destroy(), 0, /closed the connection/, false],
  ]
  for (const [answer, status, sentence, isRefused] of cases) {
    respond(answer)
    const error = await ask()
    assert.equal(error?.status, status)
    assert.match(error.message, sentence)
    assert.equal(isRefusedAccess(error), isRefused, error.message)
  }
})

test('a redirect is not followed, and takes the token nowhere', async (t) => {
  const { respond, ask, cluster } = await start(t)
  respond(
    (_, response) => void response.writeHead(307, { location: `https://127.0.0.1:${cluster.port}/version` }).end(),
  )
  assert.equal((await ask())?.status, 307)
  assert.deepEqual(cluster.asked, ['GET /api/v1/nodes'])
})

test('silence, a trickle and an answer without an end all end by the deadline or the limit', async (t) => {
  const { respond, ask } = await start(t)
  const chunk = Buffer.alloc(1 << 20, ' ')
  const cases: [Respond, number, RegExp][] = [
    [() => {}, 1000, /Nothing answered in time/],
    [(_, response) => void response.writeHead(200).write('{'), 1000, /Nothing answered in time/],
    [
      (_, response) => {
        const more = () => void (response.destroyed || response.write(chunk, more))
        more()
      },
      60_000,
      /answers that are too long/,
    ],
  ]
  for (const [answer, deadlineMs, sentence] of cases) {
    respond(answer)
    assert.match((await ask({ deadlineMs }))?.message ?? 'answered', sentence)
  }
})

test('what an API server sends is counted before it is parsed', async (t) => {
  const { respond, ask } = await start(t)
  respond((_, response) => void response.end(`{"items":[${'{},'.repeat(1_000_000)}{}]}`))
  const longest = longestParsed(t)
  assert.match((await ask())?.message ?? 'it was believed', /is not the API server/)
  assert.equal(longest(), 0)
})

test('a caller that gives up gets its own reason', async (t) => {
  const { api, respond } = await start(t)
  const control = new AbortController()
  respond(() => control.abort(new Error('enough')))
  await assert.rejects(api.get('/api/v1/nodes', { signal: control.signal }), /^Error: enough$/)
})

test('a 429 is waited for as it asks, and reported when it stays', async (t) => {
  const { api, cluster, respond, ask } = await start(t)
  let left = 1
  respond((_, response) => {
    left -= 1
    if (left < 0) json(response, { items: [] })
    else json(response, {}, 429, { 'retry-after': '0' })
  })
  await api.get('/api/v1/nodes')
  assert.equal(cluster.asked.length, 2)
  respond((_, response) => json(response, {}, 429, { 'retry-after': '3600' }))
  assert.equal((await ask({ deadlineMs: 1000 }))?.status, 0)
  respond((_, response) => json(response, {}, 429))
  cluster.asked.length = 0
  assert.equal((await ask())?.status, 429)
  assert.equal(cluster.asked.length, 3)
})

test('a list of large objects is read in smaller pages, to its end', async (t) => {
  const { api, cluster, respond } = await start(t)
  const all = Array.from({ length: 130 }, (_, index) => ({ index, text: 'x'.repeat(60_000) }))
  respond((request, response) => {
    const query = new URL(request.url!, 'https://x').searchParams
    const [from, limit] = [Number(query.get('continue') ?? 0), Number(query.get('limit'))]
    const next = from + limit < all.length ? String(from + limit) : ''
    json(response, { items: all.slice(from, from + limit), metadata: { continue: next } })
  })
  const read = await api.list<{ index: number }>('/api/v1/nodes', 130)
  assert.deepEqual(
    read.map(({ index }) => index),
    all.map(({ index }) => index),
  )
  // Seven of twenty, once a hundred have turned out to be too many.
  assert.equal(cluster.asked.length, 8)
})

test('a list is read in pages, up to a number; one that is forgotten on its way is read anew once', async (t) => {
  const { api, cluster, respond } = await start(t)
  const all = Array.from({ length: 250 }, (_, index) => index)
  const pages: Respond = (request, response) => {
    const query = new URL(request.url!, 'https://x').searchParams
    const [from, limit] = [Number(query.get('continue') ?? 0), Number(query.get('limit'))]
    const next = from + limit < all.length ? String(from + limit) : ''
    json(response, { items: all.slice(from, from + limit), metadata: { continue: next } })
  }
  respond(pages)
  assert.deepEqual(await api.list('/api/v1/nodes', 1000), all)
  assert.deepEqual(await api.list('/api/v1/nodes', 120), all.slice(0, 120))
  let forgets = 1
  respond((request, response) => {
    if (request.url!.includes('continue=') && forgets-- > 0) failure(response, 410, 'expired')
    else pages(request, response)
  })
  assert.deepEqual(await api.list('/api/v1/nodes', 1000), all)
  forgets = 10
  await assert.rejects(api.list('/api/v1/nodes', 1000), { status: 410 })
  // One that says there is always more, and one that gives more than was asked for.
  respond((_, response) => json(response, { items: all, metadata: { continue: 'more' } }))
  assert.equal((await api.list('/api/v1/nodes', 150)).length, 150)
  respond((_, response) => json(response, { items: [], metadata: { continue: 'more' } }))
  cluster.asked.length = 0
  assert.deepEqual([await api.list('/api/v1/nodes', 150), cluster.asked.length], [[], 1])
  // One that gives them one by one.
  respond((_, response) => json(response, { items: ['one'], metadata: { continue: 'more' } }))
  cluster.asked.length = 0
  assert.deepEqual([await api.list('/api/v1/nodes', 150), cluster.asked.length], [['one', 'one', 'one', 'one'], 4])
})

test('only the expected server is talked to, and only at the address that was allowed', async (t) => {
  const named = await start(t, { serverName: 'kubernetes.test' })
  assert.equal(await named.ask(), undefined)
  const wrong = await (await start(t, { serverName: 'other.test' })).ask()
  assert.match(wrong?.message ?? '', /not for this host name/)
  assert.ok(isRefusedAccess(wrong!))
  const unknown = await start(t, { ca: undefined })
  assert.match((await unknown.ask())?.message ?? '', /not signed by the given/)
  assert.deepEqual(unknown.cluster.asked, [])
  const refused = await start(t, {}, async () => {
    throw new OutboundRefused('it leads to a private address')
  })
  assert.match((await refused.ask())?.message ?? '', /^This address cannot be used: it leads to a private address\.$/)
  const { pinned, asked } = {
    pinned: [] as [string, number][],
    asked: await start(t, { host: 'kubernetes.test' }, async (host, port) => {
      pinned.push([host, port])
      return { address: '127.0.0.1' }
    }),
  }
  assert.equal(await asked.ask(), undefined)
  assert.deepEqual(pinned, [['kubernetes.test', asked.cluster.port]])
})

test('a client certificate is shown, below the path of the address', { skip: opensslIsMissing }, async (t) => {
  const authority = await createAuthority()
  t.after(() => authority.close())
  const { cert, key } = await authority.sign()
  const { api, cluster } = await start(t, { cert, key: new Secret(key), path: '/k8s/clusters/c-1' })
  cluster.instead.set('/k8s/clusters/c-1/version', (request, response) =>
    json(response, { token: request.headers.authorization }),
  )
  assert.deepEqual(await api.get('/version'), { token: `Bearer ${cluster.token}` })
})

test('amounts are read as Kubernetes writes them', () => {
  const cases: [unknown, number | null][] = [
    ['250m', 0.25],
    ['4', 4],
    [4, 4],
    ['16Gi', 16 * 2 ** 30],
    ['1.5k', 1500],
    ['1e3', 1000],
    ['1E', 1e18],
    ['100n', 1e-7],
    ['-1', null],
    ['1Zi', null],
    ['', null],
    ['9'.repeat(400), null],
    [{}, null],
  ]
  for (const [text, amount] of cases)
    assert.equal(parseQuantity(text)?.toPrecision(9), amount?.toPrecision(9), String(text))
})
