import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { buffer } from 'node:stream/consumers'
import { test } from 'node:test'
import { readBackup, writeBackup } from './format.ts'
import { rechunk } from './rechunk.ts'
import { chunkBytes, DamagedBackup, openStream, sealStream } from './sealed-stream.ts'

const key = randomBytes(32)

async function* pieces(bytes: Buffer, size = 70_000): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

const gather = (source: AsyncIterable<Uint8Array>): Promise<Buffer> => buffer(source)

const seal = (bytes: Buffer): Promise<Buffer> => gather(sealStream(key, 'it', pieces(bytes)))
const open = (bytes: Buffer, its = key, about = 'it'): Promise<Buffer> => gather(openStream(its, about, pieces(bytes)))

test('streams of any length come back as they were', async () => {
  for (const size of [0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, 3 * chunkBytes + 17]) {
    const bytes = randomBytes(size)
    assert.ok((await open(await seal(bytes))).equals(bytes), `${size} bytes`)
  }
})

test('pieces have one size whatever the sizes that came', async () => {
  for (const [sizes, size] of [
    [[1, 2, 3], 4],
    [[10], 3],
    [[0, 4, 0], 2],
  ] as const) {
    const source = async function* () {
      for (const each of sizes) yield Buffer.alloc(each)
    }
    const got: number[] = []
    for await (const { length } of rechunk(source(), size)) got.push(length)
    assert.ok(got.slice(0, -1).every((each) => each === size))
    assert.equal(
      got.reduce((sum, each) => sum + each, 0),
      sizes.reduce((sum: number, each) => sum + each, 0),
    )
  }
})

test('one changed bit anywhere, a lost end, added bytes, moved chunks, another key or another owner are noticed', async () => {
  const plain = randomBytes(2 * chunkBytes + 1000)
  const sealed = await seal(plain)
  const whole = chunkBytes + 16
  const places = [0, 15, 16, 17, 16 + chunkBytes, 16 + whole - 1, 16 + whole, 16 + 2 * whole, sealed.length - 1]
  for (const at of places) {
    const changed = Buffer.from(sealed)
    changed[at]! ^= 1
    await assert.rejects(open(changed), DamagedBackup, `byte ${at}`)
  }
  for (const length of [0, 3, 16, 20, 16 + whole, 16 + 2 * whole, sealed.length - 1])
    await assert.rejects(open(sealed.subarray(0, length)), DamagedBackup, `cut to ${length} bytes`)
  await assert.rejects(open(Buffer.concat([sealed, Buffer.alloc(1)])), DamagedBackup)
  const [head, first, second, rest] = [
    sealed.subarray(0, 16),
    sealed.subarray(16, 16 + whole),
    sealed.subarray(16 + whole, 16 + 2 * whole),
    sealed.subarray(16 + 2 * whole),
  ]
  await assert.rejects(open(Buffer.concat([head!, second!, first!, rest!])), DamagedBackup)
  await assert.rejects(open(Buffer.concat([head!, first!, rest!])), DamagedBackup)
  await assert.rejects(open(sealed, randomBytes(32)), DamagedBackup)
  await assert.rejects(open(sealed, key, 'another'), DamagedBackup)
})

test('a backup is compressed, measured, and refused when it is not what its record says', async () => {
  const text = Buffer.from('a line of a dump\n'.repeat(100_000))
  const writing = writeBackup(key, 'it', pieces(text))
  const stored = await gather(writing.bytes)
  const written = writing.end()
  assert.equal(written.rawBytes, text.length)
  assert.ok(stored.length < text.length / 20)
  assert.ok((await gather(readBackup(key, 'it', pieces(stored), written))).equals(text))
  await assert.rejects(gather(readBackup(key, 'it', pieces(stored), { sha256: 'other' })), DamagedBackup)
})

test('an error of the program that is read ends the backup with this error', async () => {
  async function* failing(): AsyncGenerator<Buffer> {
    yield Buffer.alloc(10)
    throw new Error('the program died')
  }
  await assert.rejects(gather(writeBackup(key, 'it', failing()).bytes), /the program died/)
})
