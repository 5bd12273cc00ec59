import assert from 'node:assert/strict'
import test from 'node:test'
import { sourcesOf } from './traces.ts'

test('a place in a bundle is found in its source, and one before all sources in none', () => {
  // Line 1: column 5 is a.ts 1:1, column 9 is b.ts 21:3. Line 3: column 1 is b.ts 20:1.
  const map = { sources: ['a.ts', 'b.ts'], mappings: 'IAAA,ICoBE;;AADF' }
  const places = [
    { line: 1, column: 4 },
    { line: 1, column: 8 },
    { line: 1, column: 90 },
    { line: 2, column: 1 },
    { line: 3, column: 7 },
  ]
  assert.deepEqual(sourcesOf(map, places), [undefined, 'a.ts:1:1', 'b.ts:21:3', undefined, 'b.ts:20:1'])
})
