import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFrames } from './container-output.ts'

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
