import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Escape } from '../preparation/dockerfile-lines.ts'
import { expandWord } from '../preparation/dockerfile-words.ts'
import { createEngineText } from './engine-text.ts'

const values = [
  '',
  'plain',
  'two words',
  '$HOME ${X:-y} $$',
  '\\ \\n \\\\',
  '"quoted" \'single\'',
  '`tick` `',
  '#',
  'ünï ✓',
  'a\nb',
  'x'.repeat(3000),
]

for (const sign of ['\\', '`'] as Escape[])
  test(`a parser whose escape sign is ${sign} reads each value as it is, on one line`, () => {
    const text = createEngineText(sign, () => 'GIVEN')
    for (const value of values) {
      const [word, list] = [text.quoted(value), text.list([value])]
      const given = text.values.at(-1)?.[1]
      assert.equal(
        expandWord(word, sign, (name) => (name === 'GIVEN' ? given : 'wrong')),
        value,
      )
      assert.equal(
        expandWord((JSON.parse(list) as string[])[0]!, sign, () => 'wrong'),
        value,
      )
      assert.doesNotMatch(word + list, /\n/)
      assert.ok(word.length < 2200)
    }
    assert.deepEqual(
      text.values.map(([, value]) => value),
      values.slice(-2),
    )
  })

test('many values do not make a line too long', () => {
  let count = 0
  const text = createEngineText('\\', () => `V${count++}`)
  const line = Array.from({ length: 200 }, () => text.quoted('x'.repeat(1900))).join(' ')
  assert.ok(line.length < 60_000)
  assert.ok(text.values.length > 100)
})
