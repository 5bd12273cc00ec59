import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { longestParsed } from '../../../test/support/longest-parsed.ts'
import { loopBytes, readJson, readLargeJson, usualBounds } from './read-json.ts'
import { createThreads } from './threads.ts'

const owner = 'x'
const program = new URL('./json-thread.ts', import.meta.url)
const wide = { ...usualBounds, mostBytes: 64 << 20, mostValues: Number.POSITIVE_INFINITY }
const objects = (count: number): string => `[${Array(count).fill('{}').join()}]`

const refused = (t: TestContext, code: string, read: () => unknown): Promise<void> => {
  const longest = longestParsed(t)
  return assert
    .rejects(async () => read(), { code })
    .then(() => assert.equal(longest(), 0, 'it was parsed before it was refused'))
}

test('what exceeds a bound is refused without being parsed, in memory and in a thread', async (t) => {
  await refused(t, 'too_many_values', () => readJson(objects(1001), { mostValues: 1000 }))
  await refused(t, 'too_deep', () => readJson('['.repeat(200) + ']'.repeat(200)))
  await refused(t, 'too_large', () => readJson('"12345678"', { mostBytes: 9 }))
  await refused(t, 'too_many_values', () => readLargeJson(Buffer.from(objects(500_000)), { owner }))
  await refused(t, 'too_large', () => readLargeJson('x'.repeat(11), { owner, mostBytes: 10 }))
})

test('a large text is parsed in a thread where parts of it are wanted, and only these come back', async (t) => {
  const longest = longestParsed(t)
  const text = JSON.stringify({
    id: 7,
    items: Array.from({ length: 10_000 }, (_, id) => ({ id, labels: { own: 'o', other: 'x' } })),
    more: 'x'.repeat(loopBytes),
  })
  const keep = { id: true, items: [{ id: true, labels: { own: true } }], absent: true } as const
  const found = (await readLargeJson(Buffer.from(text), { owner, keep })) as { items: object[] }
  assert.deepEqual(
    { ...found, items: found.items.slice(0, 2) },
    {
      id: 7,
      items: [
        { id: 0, labels: { own: 'o' } },
        { id: 1, labels: { own: 'o' } },
      ],
    },
  )
  assert.ok(longest() < text.length / 2)
})

test('text, bytes and forms are read alike, and what is not JSON is malformed', async () => {
  const large = JSON.stringify({ é: 'ü'.repeat(loopBytes) })
  for (const sent of [large, Buffer.from(large)])
    assert.deepEqual(await readLargeJson(sent, { owner }), JSON.parse(large))
  for (const form of [`payload=${encodeURIComponent(large)}`, `a=1&payload=${encodeURIComponent(large)}&b=2`])
    assert.deepEqual(await readLargeJson(form, { owner, formField: 'payload' }), JSON.parse(large))
  for (const sent of ['', '{', '{'.padEnd(loopBytes + 1)])
    await assert.rejects(readLargeJson(sent, { owner }), { code: 'malformed' })
})

test('a thread that needs too much memory or time is ended, and the next text is read', async () => {
  const small = createThreads<object, string>(program, { heapMb: 16, timeMs: 60_000 })
  const request = { bounds: wide, keep: true, mostKept: 10, formField: undefined }
  await assert.rejects(small.read(objects(1_500_000), request, { owner }), { code: 'too_large' })
  assert.equal(await small.read('1', request, { owner }), '1')
  const hasty = createThreads<object, string>(program, { heapMb: 64, timeMs: 1 })
  await assert.rejects(hasty.read(objects(1_000_000), request, { owner }), { code: 'too_slow' })
})

test('a caller that gives up gets its own reason', async () => {
  const reason = new Error('gone')
  const signal = AbortSignal.abort(reason)
  await assert.rejects(readLargeJson(objects(1_000_000), { ...wide, owner, signal }), reason)
})
