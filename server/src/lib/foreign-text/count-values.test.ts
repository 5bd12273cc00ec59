import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { findExcess } from './count-values.ts'

const unbounded = { mostValues: Number.POSITIVE_INFINITY, mostDepth: Number.POSITIVE_INFINITY }

const valuesIn = (value: unknown): number =>
  typeof value !== 'object' || value === null
    ? 1
    : 1 + Object.values(value).reduce((sum: number, inner) => sum + valuesIn(inner), 0)

test('the values of a text are counted exactly, whatever its strings contain', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const count = valuesIn(value)
      const text = JSON.stringify(value)
      if (count > 1) assert.equal(findExcess(text, { ...unbounded, mostValues: count - 1, mostDepth: 1000 }), 'values')
      assert.equal(findExcess(text, { mostValues: count, mostDepth: 1000 }), null)
    }),
  )
})

test('strings are skipped, also those with quotes, backslashes and brackets, and those without an end', () => {
  for (const inside of [',[{,', '\\",\\"[', '\\\\', '\\\\\\",', '\\\\\\\\'])
    assert.equal(findExcess(`["${inside}","${inside}"]`, { mostValues: 3, mostDepth: 1 }), null, inside)
  assert.equal(findExcess(`"${','.repeat(1000)}`, { mostValues: 1, mostDepth: 0 }), null)
})

test('the first bound that a text exceeds is returned', () => {
  assert.equal(findExcess('[1,2,3]', { mostValues: 3, mostDepth: 1 }), 'values')
  assert.equal(findExcess('[[[1]]]', { mostValues: 9, mostDepth: 2 }), 'depth')
  assert.equal(findExcess('[[1],[2],[3]]', { mostValues: 9, mostDepth: 2 }), null)
})
