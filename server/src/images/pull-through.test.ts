import assert from 'node:assert/strict'
import { request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { after, before, test } from 'node:test'
import { makeImage, manifestType, sha256 } from '../../test/support/docker/fake-registry.ts'
import { until } from '../../test/support/until.ts'
import { createOutbound, OutboundFailed, OutboundRefused } from '../lib/net/outbound.ts'
import type { OutboundStream } from '../lib/net/outbound-stream.ts'
import { type Offer, type PullThrough, startPullThrough, type Ticket } from './pull-through.ts'

let registry: PullThrough

before(async () => {
  registry = await startPullThrough('slipway-test')
})
after(() => registry.close())

const image = await makeImage()
const layer = image.blobs[1]!

const answer = (bytes: Buffer, status = 200, headers: Record<string, string> = {}): OutboundStream => ({
  status,
  headers,
  body: Readable.from([bytes]),
})

const offer = (open: Offer['open'] = async (_, from) => part(layer.bytes, from)): Ticket =>
  registry.offer({
    manifest: { digest: image.digest, mediaType: manifestType, bytes: image.manifest },
    blobs: new Map(image.blobs.map(({ digest, size }) => [digest, size])),
    open,
  })

const part = (bytes: Buffer, from: number): OutboundStream =>
  from === 0
    ? answer(bytes)
    : answer(bytes.subarray(from), 206, { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` })

const nameOf = ({ repository }: Ticket): string => repository.slice(registry.address.length + 1)

/** Sends the path as it is: nothing normalizes it on the way. */
const get = (
  path: string,
  { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
) =>
  new Promise<{ status: number; headers: Record<string, unknown>; body: Buffer; broken: boolean }>(
    (resolve, reject) => {
      const [host, port] = registry.address.split(':')
      const asking = httpRequest({ host, port, path, method, headers, agent: false }, (response) => {
        const chunks: Buffer[] = []
        const end = (broken: boolean) =>
          resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(chunks), broken })
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.once('end', () => end(!response.complete))
        response.once('error', () => end(true))
      })
      asking.once('error', reject)
      asking.end()
    },
  )

const blobPath = (ticket: Ticket, digest = layer.digest): string => `/v2/${nameOf(ticket)}/blobs/${digest}`

test('a ticket gives its manifest and its blobs, whole, in part, and by HEAD', async () => {
  const ticket = offer()
  assert.match(nameOf(ticket), /^slipway-test\/[0-9a-f]{32}$/)
  assert.equal((await get('/v2/')).status, 200)
  assert.equal(ticket.wasAsked(), false)
  const manifest = await get(`/v2/${nameOf(ticket)}/manifests/${image.digest}`)
  assert.deepEqual([manifest.status, manifest.body], [200, image.manifest])
  assert.equal(manifest.headers['content-type'], manifestType)
  assert.deepEqual((await get(blobPath(ticket))).body, layer.bytes)
  const rest = await get(blobPath(ticket), { headers: { range: 'bytes=10-' } })
  assert.deepEqual([rest.status, rest.body], [206, layer.bytes.subarray(10)])
  assert.equal((await get(blobPath(ticket), { headers: { range: 'bytes=-5' } })).status, 416)
  const head = await get(blobPath(ticket), { method: 'HEAD' })
  assert.deepEqual([head.status, head.headers['content-length'], head.body.length], [200, String(layer.size), 0])
  assert.equal(ticket.wasAsked(), true)
  ticket.end()
})

test('a range that the registry does not know is answered with all of it', async () => {
  const ticket = offer(async () => answer(layer.bytes))
  const whole = await get(blobPath(ticket), { headers: { range: 'bytes=10-' } })
  assert.deepEqual([whole.status, whole.body], [200, layer.bytes])
  ticket.end()
})

test('nothing else is there: other blobs, other manifests, ended tickets, tricks with the path', async () => {
  const opened: string[] = []
  const one = offer(async (digest) => {
    opened.push(digest)
    return answer(layer.bytes)
  })
  const other = await makeImage()
  const two = registry.offer({
    manifest: { digest: other.digest, mediaType: manifestType, bytes: other.manifest },
    blobs: new Map(other.blobs.map(({ digest, size }) => [digest, size])),
    open: async () => assert.fail('it was opened'),
  })
  const [name, foreign] = [nameOf(one), other.blobs[1]!.digest]
  const paths = [
    blobPath(one, foreign),
    blobPath(two),
    `/v2/${nameOf(two)}/manifests/${image.digest}`,
    `/v2/${name}/manifests/latest`,
    `/v2/${name}/manifests/${foreign}`,
    `/v2/${name}/blobs/../manifests/${image.digest}`,
    `/v2/${name}/../${nameOf(two)}/blobs/${layer.digest}`,
    `/v2/${name}%2f..%2f/blobs/${layer.digest}`,
    `/v2//${name}/blobs/${layer.digest}`,
    `//v2/${name}/blobs/${layer.digest}`,
    `/v2/${name}/blobs/${layer.digest}/`,
    `/v2/${name}/blobs/${layer.digest}?x=1`,
    `/v2/${name}/blobs/${layer.digest.toUpperCase()}`,
    `http://127.0.0.1:1/v2/${name}/blobs/${layer.digest}`,
    `/v2/${name.toUpperCase()}/blobs/${layer.digest}`,
    `/v2/${name.slice(0, -1)}/blobs/${layer.digest}`,
    `/v2/${name}/tags/list`,
    `/v2/_catalog`,
    '/',
  ]
  for (const path of paths) assert.equal((await get(path)).status, 404, path)
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'])
    assert.equal((await get(blobPath(one), { method })).status, 405, method)
  assert.deepEqual(opened, [])
  one.end()
  assert.equal((await get(blobPath(one))).status, 404)
  assert.equal((await get(`/v2/${name}/manifests/${image.digest}`)).status, 404)
  two.end()
})

test('more or less than in the manifest ends the pull, and the engine never gets a whole answer', async () => {
  const cases: [OutboundStream, RegExp][] = [
    [answer(Buffer.concat([layer.bytes, Buffer.from('more')])), /more than its manifest/],
    [answer(layer.bytes.subarray(1)), /less than its manifest/],
  ]
  for (const [sent, why] of cases) {
    const ticket = offer(async () => sent)
    const got = await get(blobPath(ticket)).catch(() => null)
    assert.ok(got === null || got.broken || sha256(got.body) !== layer.digest)
    assert.match(String(ticket.failed.reason), why)
    ticket.end()
  }
})

test('a refusal of the policy ends the pull at once; a transient error is retried by the engine, three times', async () => {
  const refused = offer(async () => {
    throw new OutboundRefused('it is reserved')
  })
  assert.equal((await get(blobPath(refused))).status, 503)
  assert.ok(refused.failed.reason instanceof OutboundRefused)
  assert.equal((await get(blobPath(refused))).status, 404)
  const flaky = offer(async () => {
    throw new OutboundFailed('connection', 'the connection failed')
  })
  for (const ended of [false, false, true]) {
    assert.equal((await get(blobPath(flaky))).status, 503)
    assert.equal(flaky.failed.aborted, ended)
  }
  for (const status of [401, 403, 404]) {
    const ticket = offer(async () => answer(Buffer.alloc(0), status))
    assert.equal((await get(blobPath(ticket))).status, 503)
    assert.ok(ticket.failed.aborted)
  }
})

test('an engine that reads slowly is not read ahead of, and one that leaves ends what was fetched for it', async () => {
  const size = 64 << 20
  let sent = 0
  let ended = false
  const source = Readable.from(
    (function* () {
      for (; sent < size; sent += 65_536) yield Buffer.alloc(65_536)
    })(),
    { objectMode: false, highWaterMark: 65_536 },
  )
  source.once('close', () => {
    ended = true
  })
  const big = `sha256:${'b'.repeat(64)}`
  const ticket = registry.offer({
    manifest: { digest: image.digest, mediaType: manifestType, bytes: image.manifest },
    blobs: new Map([[big, size]]),
    open: async () => ({ status: 200, headers: {}, body: source }),
  })
  const [host, port] = registry.address.split(':')
  const socket = connect(Number(port), host!)
  socket.write(`GET ${blobPath(ticket, big)} HTTP/1.1\r\nhost: x\r\n\r\n`)
  await until(() => sent > 0, { what: 'the first bytes' })
  let seen = -1
  let polls = 0
  const stands = () => {
    polls = seen === sent ? polls + 1 : 0
    seen = sent
    return polls > 20
  }
  await until(stands, { what: 'a standstill' })
  assert.ok(sent < 32 << 20, `${sent} bytes were read ahead`)
  socket.destroy()
  await until(() => ended, { what: 'the end of the source' })
  assert.equal(ticket.failed.aborted, false, 'the registry did nothing wrong')
  ticket.end()
})

test('the place of this registry is refused to whatever a user names', async () => {
  const outbound = createOutbound({ allow: ['loopback', 'private'], own: [registry.address] })
  const port = registry.address.split(':')[1]
  for (const host of ['127.0.0.1', 'localhost', '2130706433', '0x7f.1', '[::ffff:127.0.0.1]'])
    await assert.rejects(outbound.check(new URL(`http://${host}:${port}/v2/`)), OutboundRefused, host)
})
