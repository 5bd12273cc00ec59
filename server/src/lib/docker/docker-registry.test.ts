import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Readable } from 'node:stream'
import { after, test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { createOutbound } from '../net/outbound.ts'
import { Secret } from '../secret.ts'
import { createRegistryClient, RegistryError } from './docker-registry.ts'

type Handle = (request: IncomingMessage, response: ServerResponse, origin: string) => void

const open: (() => void)[] = []
after(() => {
  for (const close of open) close()
})

/** A registry that is scripted; answers its origin and what was asked of it. */
const serve = async (handle: Handle) => {
  const asked: string[] = []
  let origin = ''
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.authorization ?? '-'}`)
    handle(request, response, origin)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push(() => server.close())
  origin = `http://127.0.0.1:${(server.address() as { port: number }).port}`
  return { origin, asked }
}

const json = (response: ServerResponse, body: unknown, headers: Record<string, string> = {}): void =>
  void response.writeHead(200, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

const outbound = createOutbound({ allow: ['loopback'] })
const login = { username: 'bot', password: new Secret('pass') }
const basic = `Basic ${Buffer.from('bot:pass').toString('base64')}`
const nobody = { username: null, password: null }

const isRefused = (code: string) => (error: unknown) => error instanceof RegistryError && error.code === code

test('a challenge for a token is answered at its service with the login, and the token is used from then on', async () => {
  const { origin, asked } = await serve((request, response, own) => {
    if (request.url!.startsWith('/token')) return json(response, { token: 't1' })
    if (request.headers.authorization !== 'Bearer t1') {
      const challenge = `Bearer realm="${own}/token",service="images",scope="repository:shop/api:pull"`
      return void response.writeHead(401, { 'www-authenticate': challenge }).end()
    }
    json(response, { name: 'shop/api', tags: ['1', '2'] })
  })
  const client = createRegistryClient(outbound, { url: origin, ...login })
  assert.deepEqual(await client.tags('shop/api'), ['1', '2'])
  assert.deepEqual(await client.tags('shop/api'), ['1', '2'])
  assert.deepEqual(asked, [
    'GET /v2/shop/api/tags/list?n=100 -',
    `GET /token?service=images&scope=repository%3Ashop%2Fapi%3Apull ${basic}`,
    'GET /v2/shop/api/tags/list?n=100 Bearer t1',
    'GET /v2/shop/api/tags/list?n=100 Bearer t1',
  ])
})

test('pages are followed on the registry itself, never to another host', async () => {
  const { origin } = await serve((request, response) => {
    const isFirst = request.url!.endsWith('?n=100')
    json(
      response,
      { repositories: [isFirst ? 'a' : 'b'] },
      isFirst ? { link: '</v2/_catalog?last=a>; rel="next"' } : {},
    )
  })
  assert.deepEqual(await createRegistryClient(outbound, { url: origin, ...nobody }).images(), ['a', 'b'])
  const leading = await serve((_, response) =>
    json(response, { tags: [] }, { link: '<http://127.0.0.2/x>; rel="next"' }),
  )
  const client = createRegistryClient(outbound, { url: leading.origin, ...login })
  await assert.rejects(client.tags('a'), isRefused('failed'))
  assert.equal(leading.asked.length, 1)
})

test('a missing tag differs from a login that is rejected', async () => {
  const { origin } = await serve((request, response) => {
    if (request.headers.authorization !== basic)
      return void response.writeHead(401, { 'www-authenticate': 'Basic realm="images"' }).end()
    response.writeHead(request.url === '/v2/shop/manifests/1' ? 200 : 404).end()
  })
  const client = createRegistryClient(outbound, { url: origin, ...login })
  assert.deepEqual([await client.hasTag('shop', '1'), await client.hasTag('shop', '2')], [true, false])
  const wrong = { username: 'bot', password: new Secret('wrong') }
  await assert.rejects(
    createRegistryClient(outbound, { url: origin, ...wrong }).hasTag('shop', '1'),
    isRefused('denied'),
  )
  await assert.rejects(
    createRegistryClient(outbound, { url: origin, ...nobody }).hasTag('shop', '1'),
    isRefused('denied'),
  )
})

test('anything but a registry is an error, not an empty list', async () => {
  const { origin } = await serve((_, response) => void response.writeHead(200).end('<html>'))
  await assert.rejects(createRegistryClient(outbound, { url: origin, ...nobody }).images(), isRefused('failed'))
})

test('what a registry lists is counted before it is parsed', async (t) => {
  const { origin } = await serve((_, response) => response.end(`{"tags":[${'{},'.repeat(1_000_000)}"1"]}`))
  const longest = longestParsed(t)
  const client = createRegistryClient(outbound, { url: origin, ...nobody })
  await assert.rejects(client.tags('shop/api'), isRefused('failed'))
  assert.equal(longest(), 0)
})

test('a password does not go over plain http to another network than ours', async () => {
  const asked: string[] = []
  const spying = {
    ...outbound,
    check: async () => ({ address: '93.184.216.34', family: 4 as const }),
    open: async ({ headers = {} }: { headers?: Record<string, string> }) => {
      asked.push(headers.authorization ?? '-')
      return { status: 401, headers: { 'www-authenticate': 'Basic realm="x"' }, body: Readable.from([]) }
    },
  }
  const client = createRegistryClient(spying, { url: 'http://images.example', ...login })
  await assert.rejects(client.tags('a'), isRefused('denied'))
  assert.deepEqual(asked, ['-'])
})
