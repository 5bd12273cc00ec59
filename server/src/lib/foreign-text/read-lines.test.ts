import assert from 'node:assert/strict'
import { Readable } from 'node:stream'
import { test } from 'node:test'
import { type LineOptions, readLines } from './read-lines.ts'

const read = async (pieces: readonly Buffer[], options: LineOptions): Promise<string[]> => {
  const found: string[][] = []
  for await (const lines of readLines(Readable.from(pieces, { objectMode: false }), options)) found.push(lines)
  return found.flat()
}

test('lines are the same wherever the bytes are cut', async () => {
  const bytes = Buffer.from('ä{"b":1}\n\nüç\nlast')
  for (let at = 0; at <= bytes.length; at += 1) {
    const pieces = [bytes.subarray(0, at), bytes.subarray(at)].filter(({ length }) => length > 0)
    assert.deepEqual(await read(pieces, { longest: 100, hasOpenEnd: true }), ['ä{"b":1}', 'üç', 'last'])
    assert.deepEqual(await read(pieces, { longest: 100 }), ['ä{"b":1}', 'üç'])
  }
})

test('a line that is too long fails, or comes in pieces, and is never kept whole', async () => {
  const pieces = Array<Buffer>(100).fill(Buffer.alloc(1000, 'x'))
  await assert.rejects(read(pieces, { longest: 5000, tooLong: () => new Error('too long') }), /too long/)
  const lines = await read(pieces, { longest: 5000, hasOpenEnd: true })
  assert.equal(lines.join('').length, 100_000)
  assert.ok(Math.max(...lines.map(({ length }) => length)) <= 6000)
})

test('a stream that is paced leaves turns to others, and its sender waits', async () => {
  const tiny = Buffer.from('{}\n'.repeat(1000))
  let sent = 0
  const source = Readable.from(
    (function* () {
      for (; sent < 100; sent += 1) yield tiny
    })(),
    { objectMode: false },
  )
  const begun = performance.now()
  let [read, turns] = [0, 0]
  const counting = setInterval(() => {
    turns += 1
  }, 1)
  let longest = 0
  for await (const lines of readLines(source, { longest: 100, mostPerSecond: 5000 })) {
    read += lines.length
    longest = Math.max(longest, lines.length)
    if (read >= 6000) break
  }
  clearInterval(counting)
  // The lines of the first second come at once, a fifth of a second's more in its time.
  assert.ok(performance.now() - begun > 150, `${performance.now() - begun} ms`)
  assert.ok(longest <= 200 && turns > 5, `${longest} at once, ${turns} turns`)
  assert.ok(sent < 50, `${sent} pieces were taken`)
})
