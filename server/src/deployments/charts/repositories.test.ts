import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { after, test } from 'node:test'
import { sha256, startFakeRegistry, startTrap } from '../../../test/support/docker/fake-registry.ts'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { findChart } from './chart-index.ts'
import { createChartRepositoryClient } from './repositories.ts'

const outbound = createOutbound({ allow: ['127.0.0.1/32'] })
const login = new Secret({ username: 'u', password: 'canary' })
const never = new AbortController().signal
const archive = Buffer.from('an archive')
const digest = createHash('sha256').update(archive).digest('hex')
const asked: string[] = []
const answers = new Map<string, (request: IncomingMessage, response: ServerResponse) => unknown>()
const server = createServer((request, response) => {
  asked.push(`${request.url} ${request.headers.authorization === undefined ? 'open' : 'login'}`)
  const answer = answers.get(request.url ?? '')
  if (answer === undefined) response.writeHead(404).end()
  else answer(request, response)
})
await once(server.listen(0, '127.0.0.1'), 'listening')
const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
after(() => server.close())

const indexWith = (urls: string, more = ''): string =>
  `apiVersion: v1\nentries:\n  other:\n  - version: 1.0.0\n    urls: [x]\n  shop:\n  - version: 0.9.0\n    urls:\n    - old.tgz\n  - name: shop\n    version: "1.0.0" # new\n    maintainers:\n    - name: urls\n    urls:\n    - ${urls}\n${more}generated: x\n`
const client = (path = '/charts') =>
  createChartRepositoryClient(outbound, { owner: 'x', isRegistry: false, url: new URL(origin + path), login }, never)
const serve = (path: string, text: string | Buffer) => answers.set(path, (_, response) => response.end(text))

test('an index says where one version of a chart is, in YAML and in JSON', () => {
  const place = { urls: ['shop-1.0.0.tgz'], digest }
  assert.deepEqual(findChart(indexWith('shop-1.0.0.tgz', `    digest: ${digest}\n`), 'shop', '1.0.0'), place)
  const item = { version: '1.0.0', urls: ['shop-1.0.0.tgz', 7], digest: `sha256:${digest}` }
  assert.deepEqual(findChart(JSON.stringify({ entries: { shop: [item] } }), 'shop', '1.0.0'), place)
  for (const [name, version] of [
    ['shop', '1.0.1'],
    ['none', '1.0.0'],
    ['__proto__', '1.0.0'],
  ] as const)
    assert.equal(findChart(indexWith('x'), name, version), null)
})

test('an archive is fetched from where the index says, and the login goes to the repository alone', async () => {
  serve('/charts/index.yaml', indexWith('sub/shop.tgz', `    digest: ${digest}\n`))
  serve('/charts/sub/shop.tgz', archive)
  assert.deepEqual(await client().fetch('shop', '1.0.0'), archive)
  assert.deepEqual(asked.splice(0), ['/charts/index.yaml login', '/charts/sub/shop.tgz login'])

  const other = createServer((request, response) => {
    asked.push(`elsewhere ${request.headers.authorization === undefined ? 'open' : 'login'}`)
    response.end(archive)
  })
  await once(other.listen(0, '127.0.0.1'), 'listening')
  const elsewhere = `http://127.0.0.1:${(other.address() as AddressInfo).port}/a.tgz`
  answers.set('/charts/sub/shop.tgz', (_, response) => response.writeHead(302, { location: elsewhere }).end())
  assert.deepEqual(await client().fetch('shop', '1.0.0'), archive)
  assert.deepEqual(asked.splice(0).at(-1), 'elsewhere open')
  other.close()
})

test('what a repository should not say or send is refused in a sentence', async () => {
  serve('/charts/index.yaml', indexWith('sub/shop.tgz', `    digest: ${digest}\n`))
  serve('/charts/sub/shop.tgz', 'another archive')
  await assert.rejects(client().fetch('shop', '1.0.0'), /not the one of its digest/)
  await assert.rejects(client().fetch('shop', '7'), /no chart shop in version 7/)
  serve('/charts/sub/shop.tgz', Buffer.alloc((4 << 20) + 1))
  await assert.rejects(client().fetch('shop', '1.0.0'), /more was sent than announced/)
  answers.set('/charts/sub/shop.tgz', (_, response) =>
    response.writeHead(302, { location: '/charts/sub/shop.tgz' }).end(),
  )
  await assert.rejects(client().fetch('shop', '1.0.0'), /redirects to an address that is not allowed/)
  answers.set('/charts/sub/shop.tgz', (_, response) => response.writeHead(403).end())
  await assert.rejects(client().fetch('shop', '1.0.0'), /refused the login: check its user name and password\.$/)
  const open = createChartRepositoryClient(
    outbound,
    { owner: 'x', isRegistry: false, url: new URL(`${origin}/charts`), login: null },
    never,
  )
  await assert.rejects(open.fetch('shop', '1.0.0'), /The repository requires a login/)
  answers.set('/charts/sub/shop.tgz', (_, response) => response.writeHead(429, { 'retry-after': '600' }).end())
  await assert.rejects(
    client().fetch('shop', '1.0.0'),
    /too many requests and refuses more until .* UTC \(status 429\)/,
  )
  const inside = await startTrap('127.0.0.2')
  answers.set('/charts/sub/shop.tgz', (_, response) =>
    response.writeHead(302, { location: `http://${inside.host}/` }).end(),
  )
  await assert.rejects(client().fetch('shop', '1.0.0'), /cannot be reached/)
  serve('/charts/index.yaml', indexWith(`http://${inside.host}/x.tgz`))
  await assert.rejects(client().fetch('shop', '1.0.0'), /cannot be reached/)
  assert.equal(inside.connections(), 0)
  inside.close()
  serve('/charts/index.yaml', indexWith('file:///etc/passwd'))
  await assert.rejects(client().fetch('shop', '1.0.0'), /names no address of this chart that can be used/)
  const silent = createChartRepositoryClient(
    outbound,
    { owner: 'x', isRegistry: false, url: new URL(origin), login: null },
    AbortSignal.abort(),
  )
  await assert.rejects(silent.fetch('shop', '1.0.0'), /cannot be reached/)
})

test('a chart of a registry is the layer of its manifest, with the token of the registry', async () => {
  const registry = await startFakeRegistry({ token: 'u:canary' })
  const layerOf = (bytes: Buffer, named: Buffer, mediaType: string) => ({
    manifest: Buffer.from(
      JSON.stringify({ schemaVersion: 2, layers: [{ mediaType, digest: sha256(named), size: bytes.length }] }),
    ),
    digest: sha256(bytes),
    blobs: [{ digest: sha256(named), size: bytes.length, bytes }],
  })
  const type = 'application/vnd.cncf.helm.chart.content.v1.tar+gzip'
  registry.publish('team/shop:1.0.0_a', layerOf(archive, archive, type))
  registry.publish('team/image:1.0.0', layerOf(archive, archive, 'application/vnd.oci.image.layer.v1.tar'))
  registry.publish('team/lying:1.0.0', layerOf(Buffer.from('other'), Buffer.from('what it says'), type))
  const url = new URL('/team', registry.url)
  const oci = createChartRepositoryClient(outbound, { owner: 'x', isRegistry: true, url, login }, never)
  assert.deepEqual(await oci.fetch('shop', '1.0.0+a'), archive)
  await assert.rejects(oci.fetch('shop', '2'), /no chart shop in version 2/)
  await assert.rejects(oci.fetch('image', '1.0.0'), /not a Helm chart/)
  await assert.rejects(oci.fetch('lying', '1.0.0'), /not the one of its digest/)
  await assert.rejects(oci.list(undefined), /send `chartName`/)
  const stranger = new Secret({ username: 'u', password: 'wrong' })
  const denied = createChartRepositoryClient(outbound, { owner: 'x', isRegistry: true, url, login: stranger }, never)
  await assert.rejects(denied.fetch('shop', '1.0.0+a'), /rejected this login/)
  await registry.close()
})

test('an index is read in a thread, and one with too many values or lines is refused there', async (t) => {
  const longest = longestParsed(t)
  const values = `{"entries":{},"x":[${'[],'.repeat(400_000)}[]]}`
  const lines = `entries:\n${'\n'.repeat(3_000_000)}`
  for (const [text, how] of [
    [values, /has more than 300000 values: use a smaller repository/],
    [lines, /has more than 2000000 lines: use a smaller repository/],
  ] as const) {
    serve('/charts/index.yaml', text)
    for (const asked of [client().list(undefined), client().list('shop'), client().fetch('shop', '1.0.0')])
      await assert.rejects(asked, (error: Error & { code?: string }) => {
        assert.equal(error.code, 'repository_too_large')
        assert.match(error.message, how)
        return true
      })
  }
  const shop = JSON.stringify({ entries: { shop: [{ version: '1.0.0' }] }, more: 'x'.repeat(1 << 20) })
  serve('/charts/index.yaml', shop)
  assert.deepEqual(await client().list('shop'), [{ chart_name: 'shop', versions: ['1.0.0'] }])
  assert.ok(longest() < 1000)
})
