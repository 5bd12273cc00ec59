import assert from 'node:assert/strict'
import { test } from 'node:test'
import { patience } from '../../../test/support/until.ts'
import { fitsWildcard } from './wildcard.ts'

const cases: [pattern: string, name: string, fits: boolean][] = [
  ['*', 'anything', true],
  ['', 'anything', false],
  ['', '', false],
  ['PR-*', 'pr-12', true],
  ['pr-*', 'my pr-12', false],
  ['*-review', 'a-review', true],
  ['*-review', 'a-review-b', false],
  ['a?c', 'abc', true],
  ['a?c', 'ac', false],
  ['a*b*c', 'a--b-b--c', true],
  ['a*b*c', 'a--c', false],
  ['**', 'x', true],
  ['.+', 'xx', false],
  ['é*', 'École', true],
]

for (const [pattern, name, fits] of cases)
  test(`${pattern} ${fits ? 'fits' : 'does not fit'} ${name}`, () => assert.equal(fitsWildcard(pattern, name), fits))

test('a hostile pattern is judged at once', () => {
  const began = performance.now()
  assert.equal(fitsWildcard('*a'.repeat(127), 'a'.repeat(126) + 'b'.repeat(128)), false)
  assert.ok(performance.now() - began < 100 * patience)
})
