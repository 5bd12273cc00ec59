import assert from 'node:assert/strict'
import { test } from 'node:test'
import { patience } from '../../test/support/until.ts'
import { parseDotenv } from './dotenv.ts'

const cases: [text: string, entries: [string, string][]][] = [
  ['', []],
  ['A=1', [['A', '1']]],
  [
    '\uFEFFA=1\r\nB=2\r\n',
    [
      ['A', '1'],
      ['B', '2'],
    ],
  ],
  ['# a comment\n\n  \nA = spaced out \n', [['A', 'spaced out']]],
  ['export A=1', [['A', '1']]],
  ['A=', [['A', '']]],
  ['A=# nothing but a comment', [['A', '']]],
  ['A=b # comment', [['A', 'b']]],
  ['A=b#c', [['A', 'b#c']]],
  ['A="b # c" # comment', [['A', 'b # c']]],
  [
    'A="two\nlines"\nB=1',
    [
      ['A', 'two\nlines'],
      ['B', '1'],
    ],
  ],
  ['A="tab\\tnew\\nquote\\"back\\\\"', [['A', 'tab\tnew\nquote"back\\']]],
  ["A='raw \\n $X'", [['A', 'raw \\n $X']]],
  ['A=`a "b" \'c\'`', [['A', 'a "b" \'c\'']]],
  ['A=1\nA=2', [['A', '2']]],
  ['A=postgres://u:p@h:1/d?x=y', [['A', 'postgres://u:p@h:1/d?x=y']]],
  ['A="unclosed', [['A', '"unclosed']]],
]

for (const [text, entries] of cases)
  test(`reads ${JSON.stringify(text)}`, () => {
    assert.deepEqual(
      parseDotenv(text).map(({ key, value }) => [key, value]),
      entries,
    )
  })

test('names the line that it cannot read, and shows nothing of it', () => {
  assert.throws(() => parseDotenv('A=1\nhunter2\nB=2'), /dotenv: line 2 is not/)
})

test('a hostile text takes no longer than its length deserves', () => {
  const began = performance.now()
  for (const text of [
    `A=${'" #'.repeat(20_000)}`,
    `A="${'\\'.repeat(60_001)}`,
    `${' '.repeat(60_000)}x`,
    `A=${' '.repeat(60_000)}x`,
  ])
    try {
      parseDotenv(text)
    } catch {}
  assert.ok(performance.now() - began < 1000 * patience)
})
