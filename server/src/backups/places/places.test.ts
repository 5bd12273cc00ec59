/** What every place promises, on a folder, on a storage of the tests and, where its program is, on a real one. */
import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { realS3, startRealS3 } from '../../../test/support/peers/real-s3.ts'
import { s3Keys, startS3Server } from '../../../test/support/peers/s3-server.ts'
import { createOutbound } from '../../lib/net/outbound.ts'
import { Secret } from '../../lib/secret.ts'
import { createFolderPlace } from './folder-place.ts'
import type { Place } from './place.ts'
import { createS3Place } from './s3-place.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

const { signal } = new AbortController()
const mb = 2 ** 20

interface Kind {
  name: string
  skip?: string | false
  start(t: TestContext): Promise<Place>
}

const parts = {
  outbound: createOutbound({ allow: ['loopback'] }),
  clock: { now: () => new Date(), sleep: async () => {} },
}

const kinds: Kind[] = [
  {
    name: 'a folder',
    async start(t) {
      const folder = mkdtempSync(join(tmpdir(), 'slipway-places-'))
      t.after(() => rmSync(folder, { recursive: true }))
      return createFolderPlace(join(folder, 'backups'))
    },
  },
  {
    name: 'an S3 storage of the tests',
    async start(t) {
      const s3 = await startS3Server()
      s3.pageSize = 2
      t.after(() => s3.close())
      const place = { endpoint: s3.url, region: 'us-east-1', bucket: 'bucket', prefix: 'below/', isPathStyle: true }
      const keys = { accessKeyId: s3Keys.accessKeyId, secretAccessKey: new Secret(s3Keys.secretAccessKey) }
      return createS3Place(parts, { ...place, ...keys })
    },
  },
  {
    name: 'a real S3 storage',
    skip: realS3 === null && 'versitygw is not installed (docs/decisions/0086-places-for-backups.md)',
    async start(t) {
      const { settings, stop } = await startRealS3()
      t.after(stop)
      return createS3Place(parts, settings)
    },
  },
]

const all = async <T>(values: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = []
  for await (const value of values) found.push(value)
  return found
}

const read = async (place: Place, name: string): Promise<Buffer> =>
  Buffer.concat(await all(await place.get(name, signal)))

async function* pieces(...contents: (Buffer | string)[]): AsyncGenerator<Uint8Array> {
  for (const each of contents) yield Buffer.from(each)
}

const names = async (place: Place, prefix = ''): Promise<string[]> =>
  (await all(place.list(prefix, signal))).map(({ name }) => name).sort()

/** As a database's tool sends it: some megabytes, then it fails, or the caller gives up. */
async function* breaking(bytes: number, end: () => void): AsyncGenerator<Uint8Array> {
  for (let sent = 0; sent < bytes; sent += mb) yield randomBytes(mb)
  end()
}

for (const { name: kind, skip = false, start } of kinds)
  test(kind, { skip }, async (t) => {
    const place = await start(t)

    await t.test('what was put is listed with its size, read again, and gone when it is removed', async () => {
      const before = Date.now() - 2000
      assert.deepEqual(await place.put('db/1/a=b+c@d_e-f.dump', pieces('one', 'two'), signal), { bytes: 6 })
      assert.deepEqual(await place.put('db/1/empty', pieces(), signal), { bytes: 0 })
      await place.put('db/2/other', pieces('x'), signal)
      const listed = await all(place.list('db/1/', signal))
      assert.deepEqual(
        listed.map(({ name, bytes }) => ({ name, bytes })).sort((a, b) => b.bytes - a.bytes),
        [
          { name: 'db/1/a=b+c@d_e-f.dump', bytes: 6 },
          { name: 'db/1/empty', bytes: 0 },
        ],
      )
      for (const { at } of listed) assert.ok(Date.parse(at) > before && /^\d{4}-.*Z$/.test(at), at)
      assert.deepEqual(await names(place, 'db/1/e'), ['db/1/empty'])
      assert.deepEqual(await names(place), ['db/1/a=b+c@d_e-f.dump', 'db/1/empty', 'db/2/other'])
      assert.equal(String(await read(place, 'db/1/a=b+c@d_e-f.dump')), 'onetwo')
      assert.equal(String(await read(place, 'db/1/empty')), '')
      await place.put('db/2/other', pieces('replaced'), signal)
      assert.equal(String(await read(place, 'db/2/other')), 'replaced')
      for (const name of await names(place)) await place.remove(name, signal)
      await place.remove('db/2/other', signal)
      assert.deepEqual(await names(place), [])
      await assert.rejects(place.get('db/2/other', signal), { code: 'missing' })
    })

    await t.test('names that leave the place are refused by each method', async () => {
      for (const name of ['../x', '/etc/passwd', 'a/../../x', '.hidden', 'a//b', '']) {
        await assert.rejects(place.put(name, pieces('x'), signal), /relative path/)
        await assert.rejects(place.get(name, signal), /relative path/)
        await assert.rejects(place.remove(name, signal), /relative path/)
        if (name !== '') await assert.rejects(all(place.list(name, signal)), /relative path/)
      }
    })

    for (const size of [mb, 16 * mb, 40 * mb + 1])
      await t.test(`${size} bytes come back as they were, in chunks of any size`, async () => {
        const content = randomBytes(size)
        const chunks = [content.subarray(0, 1), content.subarray(1, size - 100_000), content.subarray(size - 100_000)]
        assert.deepEqual(await place.put('large', pieces(...chunks), signal), { bytes: size })
        assert.ok((await read(place, 'large')).equals(content))
        await place.remove('large', signal)
      })

    for (const size of [mb, 40 * mb])
      await t.test(`content that ends in an error after ${size} bytes leaves nothing`, async () => {
        const broken = breaking(size, () => {
          throw new Error('the tool failed')
        })
        await assert.rejects(place.put('broken', broken, signal), { message: 'the tool failed' })
        const stop = new AbortController()
        const given = breaking(size, () => stop.abort(new Error('given up')))
        const more = (async function* () {
          yield* given
          yield randomBytes(1)
        })()
        await assert.rejects(place.put('broken', more, stop.signal), { message: 'given up' })
        assert.deepEqual(await names(place), [])
        await assert.rejects(place.get('broken', signal), { code: 'missing' })
      })

    await t.test('a reader may stop in the middle', async () => {
      await place.put('long', pieces(randomBytes(20 * mb)), signal)
      for await (const chunk of await place.get('long', signal)) {
        assert.ok(chunk.length > 0)
        break
      }
      const stop = new AbortController()
      const reading = async (): Promise<void> => {
        for await (const _ of await place.get('long', stop.signal)) stop.abort(new Error('enough'))
      }
      await assert.rejects(reading, { message: 'enough' })
      await place.remove('long', signal)
    })

    await t.test('200 MB are streamed there and back in little memory', async () => {
      const chunk = randomBytes(mb)
      const hash = createHash('sha256')
      collect()
      const memory = (): number => process.memoryUsage().arrayBuffers / mb
      let most = 0
      const before = memory()
      async function* content(): AsyncGenerator<Uint8Array> {
        for (let sent = 0; sent < 200; sent++) {
          most = Math.max(most, memory() - before)
          hash.update(chunk)
          yield chunk
        }
      }
      await place.put('huge', content(), signal)
      const back = createHash('sha256')
      for await (const each of await place.get('huge', signal)) {
        most = Math.max(most, memory() - before)
        back.update(each)
      }
      assert.equal(back.digest('hex'), hash.digest('hex'))
      t.diagnostic(`${kind}: at most ${Math.round(most)} MB of buffers for 200 MB`)
      assert.ok(most < 90, `${most} MB`)
      await place.remove('huge', signal)
    })
  })
