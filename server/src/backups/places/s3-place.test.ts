/** What happens when an S3 storage breaks, lies or is full. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import test, { type TestContext } from 'node:test'
import { type S3Call, type S3Server, s3Keys, startS3Server } from '../../../test/support/peers/s3-server.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import type { Place } from './place.ts'
import { urlOf } from './s3-client.ts'
import { explainAnswer } from './s3-errors.ts'
import { createS3Place } from './s3-place.ts'

const { signal } = new AbortController()
const mb = 2 ** 20
const small = randomBytes(3000)
const large = randomBytes(40 * mb)

const settingsFor = (endpoint: string) => ({
  ...{ endpoint, region: 'us-east-1', bucket: 'bucket', prefix: 'below/', isPathStyle: true },
  accessKeyId: s3Keys.accessKeyId,
  secretAccessKey: new Secret(s3Keys.secretAccessKey),
})

interface Scene {
  s3: S3Server
  place: Place
  /** How long each pause was. */
  pauses: number[]
  now: Date
}

const start = async (t: TestContext): Promise<Scene> => {
  const s3 = await startS3Server()
  t.after(() => s3.close())
  const scene: Scene = { s3, place: undefined as unknown as Place, pauses: [], now: new Date() }
  const clock = { now: () => scene.now, sleep: async (ms: number) => void scene.pauses.push(ms) }
  scene.place = createS3Place({ outbound: createOutbound({ allow: ['loopback'] }), clock }, settingsFor(s3.url))
  return scene
}

async function* once(content: Buffer): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.length; at += 65_536) yield content.subarray(at, at + 65_536)
}

const read = async (place: Place, name: string): Promise<Buffer> => {
  const chunks: Uint8Array[] = []
  for await (const chunk of await place.get(name, signal)) chunks.push(chunk)
  return Buffer.concat(chunks)
}

const isPart = ({ method, query }: S3Call): boolean => method === 'PUT' && query.has('partNumber')
const isComplete = ({ method, query }: S3Call): boolean => method === 'POST' && query.has('uploadId')

/** True for the first call that it is asked about. */
const firstOf = (which: (call: S3Call) => boolean) => {
  let isOver = false
  return (call: S3Call): boolean => {
    if (isOver || !which(call)) return false
    isOver = true
    return true
  }
}

const nothingIsThere = ({ s3 }: Scene): void => {
  assert.deepEqual([...s3.objects.keys()], [])
  assert.deepEqual([...s3.uploads.keys()], [])
}

test('one flipped bit in what is kept, or on its way back, is noticed', async (t) => {
  const { s3, place } = await start(t)
  for (const content of [small, large]) {
    await place.put('whole', once(content), signal)
    s3.fault = ({ method }) => (method === 'GET' ? 'flip' : undefined)
    await assert.rejects(read(place, 'whole'), { code: 'damaged' })
    s3.fault = () => undefined
    assert.ok((await read(place, 'whole')).equals(content))

    s3.fault = ({ method }) => (method === 'PUT' ? 'flip' : undefined)
    await place.put('rotten', once(content), signal)
    s3.fault = () => undefined
    await assert.rejects(read(place, 'rotten'), { code: 'damaged' })
  }
})

test('a part that arrived damaged is sent again, and one that always does ends the upload without a trace', async (t) => {
  const scene = await start(t)
  const { s3, place } = scene
  const isFirst = firstOf(isPart)
  s3.fault = (call) => (isFirst(call) ? 'etag' : undefined)
  await place.put('again', once(large), signal)
  assert.ok((await read(place, 'again')).equals(large))
  assert.deepEqual(scene.pauses, [1000])
  await place.remove('again', signal)

  for (const content of [small, large]) {
    s3.fault = ({ method }) => (method === 'PUT' ? 'etag' : undefined)
    await assert.rejects(place.put('never', once(content), signal), { code: 'damaged' })
    s3.fault = ({ method }) => (method === 'PUT' ? { status: 400, code: 'BadDigest' } : undefined)
    await assert.rejects(place.put('never', once(content), signal), { code: 'damaged' })
  }
  nothingIsThere(scene)
})

test('a connection that breaks in the middle of a part is made again; a storage that stays away fails the upload', async (t) => {
  const scene = await start(t)
  const { s3, place } = scene
  const isFirst = firstOf(isPart)
  s3.fault = (call) => (isFirst(call) ? 'die' : undefined)
  await place.put('again', once(large), signal)
  assert.ok((await read(place, 'again')).equals(large))
  await place.remove('again', signal)

  for (const content of [small, large]) {
    scene.pauses = []
    s3.fault = ({ method }) => (method === 'PUT' ? 'die' : undefined)
    await assert.rejects(place.put('never', once(content), signal), { code: 'unreachable' })
    assert.deepEqual([...new Set(scene.pauses)], [1000, 2000, 4000, 8000])
    nothingIsThere(scene)
  }
  s3.fault = () => ({ status: 503, code: 'SlowDown' })
  await assert.rejects(place.get('x', signal), { code: 'unreachable' })
})

test('an object whose last answer was lost is there once, and the upload has succeeded', async (t) => {
  const { s3, place } = await start(t)
  s3.fault = (call) => (isComplete(call) ? 'die' : undefined)
  assert.deepEqual(await place.put('whole', once(large), signal), { bytes: large.length })
  s3.fault = () => undefined
  assert.ok((await read(place, 'whole')).equals(large))
  assert.equal(s3.calls.filter(isComplete).length, 1)
})

test('a download continues where its connection broke', async (t) => {
  const scene = await start(t)
  const { s3, place } = scene
  await place.put('whole', once(large), signal)
  let breaks = 0
  s3.fault = ({ method }) => (method === 'GET' && breaks++ < 2 ? 'die' : undefined)
  assert.ok((await read(place, 'whole')).equals(large))
  assert.deepEqual(scene.pauses, [1000, 1000])
  s3.fault = ({ method }) => (method === 'GET' ? { status: 500, code: 'InternalError' } : undefined)
  await assert.rejects(read(place, 'whole'), { code: 'unreachable' })
  s3.fault = ({ method }) => (method === 'GET' ? { status: 412, code: 'PreconditionFailed' } : undefined)
  await assert.rejects(read(place, 'whole'), { code: 'damaged' })
})

test('few parts are on their way at once', async (t) => {
  const { s3, place } = await start(t)
  await place.put('whole', once(Buffer.alloc(100 * mb)), signal)
  assert.ok(s3.mostAtOnce <= 3, `${s3.mostAtOnce}`)
  assert.equal(s3.calls.filter(isPart).length, 7)
})

test('uploads whose process was killed are aborted when no part has come for a day, those of others never', async (t) => {
  const scene = await start(t)
  const { s3, place } = scene
  const at = (hours: number): string => new Date(scene.now.getTime() - hours * 3_600_000).toISOString()
  const part = (hours: number) => ({ file: '/none', md5: Buffer.alloc(16), size: 1, at: at(hours) })
  const upload = (key: string, begun: number, parts: number[]) =>
    s3.uploads.set(`${key} ${begun} ${parts}`, {
      key,
      begun: at(begun),
      pieces: new Map(parts.map((hours, index) => [index + 1, part(hours)])),
      marks: {},
    })
  upload('below/a', 23, [])
  upload('below/a', 25, [])
  upload('below/b', 90, [89, 25])
  upload('below/c', 90, [89, 1])
  upload('beside/d', 90, [])
  await place.tidy(signal)
  assert.deepEqual(
    [...s3.uploads.values()].map(({ key, begun }) => [key, begun]),
    [
      ['below/a', at(23)],
      ['below/c', at(90)],
      ['beside/d', at(90)],
    ],
  )
})

test('each error of a storage is one that its user understands', () => {
  const cases: [number, string, string, RegExp][] = [
    [403, 'InvalidAccessKeyId', 'refused', /access key id/],
    [403, 'SignatureDoesNotMatch', 'refused', /secret access key/],
    [403, 'AccessDenied', 'refused', /read, write, list and delete/],
    [404, 'NoSuchBucket', 'refused', /no bucket/],
    [404, 'NoSuchKey', 'missing', /not in the bucket/],
    [301, 'PermanentRedirect', 'refused', /another region/],
    [403, 'RequestTimeTooSkewed', 'refused', /clock/],
    [507, 'XMinioStorageFull', 'full', /full/],
    [400, 'BadDigest', 'damaged', /other bytes/],
    [503, 'SlowDown', 'unreachable', /status 503, SlowDown/],
    [400, 'Whatever', 'refused', /status 400, Whatever/],
    [400, '<script>', 'refused', /status 400\)/],
  ]
  for (const [status, code, problem, message] of cases) {
    const error = explainAnswer({ status, body: `<?xml version="1.0"?><Error><Code>${code}</Code></Error>` })
    assert.equal(error.code, problem, code)
    assert.match(error.message, message)
  }
  assert.equal(explainAnswer({ status: 404, body: '' }).code, 'missing')
})

test('an address that the policy refuses is not connected to', async (t) => {
  const { s3 } = await start(t)
  const clock = { now: () => new Date(), sleep: async () => {} }
  const place = createS3Place({ outbound: createOutbound({ allow: [] }), clock }, settingsFor(s3.url))
  await assert.rejects(place.put('x', once(small), signal), { code: 'refused', message: /SLIPWAY_OUTBOUND_ALLOW/ })
  assert.equal(s3.calls.length, 0)
})

test('the bucket is in the path or in the host', () => {
  const place = { endpoint: 'https://s3.example:9000', bucket: 'b.c' }
  const asked = { key: "a/b=c+d@e!'()*", query: { uploads: '' } }
  assert.equal(
    urlOf({ ...place, isPathStyle: true }, asked).href,
    'https://s3.example:9000/b.c/a/b%3Dc%2Bd%40e%21%27%28%29%2A?uploads=',
  )
  assert.equal(urlOf({ ...place, isPathStyle: false }, { key: 'a' }).href, 'https://b.c.s3.example:9000/a')
  assert.equal(urlOf({ ...place, isPathStyle: true }, {}).href, 'https://s3.example:9000/b.c')
})
