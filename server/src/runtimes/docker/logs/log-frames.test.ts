import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import fc from 'fast-check'
import { normalizeTime } from '../../log-time.ts'
import { maxLineBytes, readLines } from './log-frames.ts'

const at = '2026-01-02T03:04:05.000000006Z'

const frame = (payload: string | Buffer, stream = 1): Buffer => {
  const bytes = Buffer.concat([Buffer.from(`${at} `), Buffer.from(payload)])
  const header = Buffer.alloc(8)
  header[0] = stream
  header.writeUInt32BE(bytes.length, 4)
  return Buffer.concat([header, bytes])
}

const read = async (chunks: Buffer[]) => {
  const lines = []
  for await (const batch of readLines(Readable.from(chunks), 'one', 'r1')) lines.push(...batch)
  return lines
}
const texts = async (...frames: Buffer[]) => (await read(frames)).map(({ text }) => text)

test('a frame is a line with its time, stream and instance', async () => {
  assert.deepEqual(await read([frame('hello\n'), frame('bad\n', 2)]), [
    { at, text: 'hello', stream: 'stdout', instance: 'one', revision: 'r1' },
    { at, text: 'bad', stream: 'stderr', instance: 'one', revision: 'r1' },
  ])
})

test('a line in several frames is one line, also with the other stream in between', async () => {
  const lines = await texts(frame('a'.repeat(16384)), frame('other\n', 2), frame('b'.repeat(10)), frame('c\n'))
  assert.deepEqual(lines, ['other', `${'a'.repeat(16384)}${'b'.repeat(10)}c`])
})

test('a character cut by a frame is whole again; bytes that are not UTF-8 are replaced', async () => {
  const euro = Buffer.from('€')
  assert.deepEqual(
    await texts(frame(euro.subarray(0, 1)), frame(Buffer.concat([euro.subarray(1), Buffer.from('\n')]))),
    ['€'],
  )
  assert.deepEqual(await texts(frame(Buffer.from([0x61, 0xff, 0x0a]))), ['a\uFFFD'])
})

test('empty lines, carriage returns and a last line without its end are kept', async () => {
  assert.deepEqual(await texts(frame('\n'), frame('x\r\n'), frame('end')), ['', 'x', 'end'])
})

test('a longer line than the cap is cut, and the next line is whole', async () => {
  const piece = frame('x'.repeat(16384))
  const lines = await texts(...Array.from({ length: 10 }, () => piece), frame('y\n'), frame('next\n'))
  assert.deepEqual([lines[0]!.length, lines[1]], [maxLineBytes, 'next'])
})

test('however the bytes are cut into chunks, the lines are the same', async () => {
  const bytes = Buffer.concat([frame('one\n'), frame('two €'), frame('err\n', 2), frame(' more\n'), frame('three\n')])
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(bytes.length), { maxLength: 8 }), async (cuts) => {
      const edges = [0, ...cuts.sort((a, b) => a - b), bytes.length]
      const chunks = edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge))
      assert.deepEqual(await texts(...chunks.filter(({ length }) => length > 0)), ['one', 'err', 'two € more', 'three'])
    }),
  )
})

test('times of any RFC 3339 spelling compare as texts', () => {
  assert.equal(normalizeTime('2026-01-02T03:04:05Z'), '2026-01-02T03:04:05.000000000Z')
  assert.equal(normalizeTime('2026-01-02T05:04:05.1234567+02:00'), '2026-01-02T03:04:05.123456700Z')
})

test('a frame that claims to be longer than any engine sends ends the log instead of being gathered', async () => {
  const header = Buffer.alloc(8)
  header.writeUInt32BE(2 ** 32 - 1, 4)
  await assert.rejects(read([frame('hello\n'), header, Buffer.alloc(100)]), /too long/)
})
