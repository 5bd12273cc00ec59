import assert from 'node:assert/strict'
import { text } from 'node:stream/consumers'
import { test } from 'node:test'
import { readFrames } from './frames.ts'

const frame = (source: number, text: string): Buffer => {
  const header = Buffer.alloc(8)
  header[0] = source
  header.writeUInt32BE(Buffer.byteLength(text), 4)
  return Buffer.concat([header, Buffer.from(text)])
}

async function* cut(bytes: Buffer, size: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

const read = async (bytes: Buffer, size: number) => {
  const lines: string[] = []
  return { text: await text(readFrames(cut(bytes, size), (line) => lines.push(line))), lines }
}

test('output and lines come whole, wherever the frames are cut', async () => {
  const bytes = Buffer.concat([frame(1, 'one '), frame(2, 'first\r\nsecönd '), frame(1, 'two'), frame(2, 'line\nlast')])
  for (let size = 1; size <= bytes.length; size++)
    assert.deepEqual(await read(bytes, size), { text: 'one two', lines: ['first', 'secönd line', 'last'] }, `${size}`)
})

test('a connection that breaks within a frame is not taken for the end', async () => {
  const bytes = frame(1, 'one')
  for (const length of [1, 8, 10]) await assert.rejects(read(bytes.subarray(0, length), 100), /broke/)
})

test('a line without an end is cut, and does not fill the memory', async () => {
  const bytes = Buffer.concat(Array.from({ length: 100 }, () => frame(2, 'x'.repeat(10_000))))
  const { lines } = await read(bytes, 65_536)
  assert.deepEqual(
    lines.map(({ length }) => length),
    [65_536],
  )
})
