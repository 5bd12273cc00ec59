import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFrames, createPace } from './container-output.ts'

const frame = (stream: number, text: string | Buffer): Buffer => {
  const body = Buffer.from(text as string)
  const header = Buffer.alloc(8)
  header[0] = stream
  header.writeUInt32BE(body.length, 4)
  return Buffer.concat([header, body])
}

test('frames are taken apart whatever pieces they come in, and letters of two bytes stay whole', () => {
  const euro = Buffer.from('€')
  const all = Buffer.concat([
    frame(1, 'one\n'),
    frame(1, euro.subarray(0, 1)),
    frame(2, 'two\n'),
    frame(1, ''),
    frame(1, euro.subarray(1)),
  ])
  for (const size of [1, 2, 3, 7, 8, 9, all.length]) {
    const read = createFrames()
    let text = ''
    for (let at = 0; at < all.length; at += size) text += read(all.subarray(at, at + size))
    assert.equal(text, 'one\ntwo\n€')
  }
})

test('the first 4 MB of an output are read without a pause, the rest at 10 MB/s', () => {
  const mb = 2 ** 20
  const pauseAfter = createPace()
  for (let n = 0; n < 64; n += 1) assert.equal(pauseAfter(mb / 16), 0)
  let ms = 0
  for (let n = 0; n < 1600; n += 1) ms += pauseAfter(mb / 16)
  assert.ok(Math.abs(ms - (100 * mb) / 10_000) < 10, `${ms} ms`)
  const pauses = Array.from({ length: 100 }, () => pauseAfter(4096))
  assert.ok(pauses.every((each) => each === 0 || each >= 5))
})
