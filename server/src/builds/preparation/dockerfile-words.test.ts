import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BadWord } from './bad-word.ts'
import { expandWord } from './dockerfile-words.ts'

const values: Record<string, string> = {
  P: 'linux/arm64/v8',
  F: 'archive.tar.gz',
  E: '',
  V: '1.2.3',
  S: 'a*b?c\\d',
  T: 'ab}cd',
}
const lookUp = (name: string): string | undefined => values[name]

const words: [word: string, value: string][] = [
  // Examples of the reference of Dockerfiles.
  ['${P#linux/}', 'arm64/v8'],
  ['${P#*/}', 'arm64/v8'],
  ['${P##*/}', 'v8'],
  ['${P%/*}', 'linux/arm64'],
  ['${P%%/*}', 'linux'],
  ['${P/\\//-}', 'linux-arm64/v8'],
  ['${P//\\//-}', 'linux-arm64-v8'],
  ['${F%.gz}', 'archive.tar'],
  ['${F%%.*}', 'archive'],
  ['${F#nothing}', 'archive.tar.gz'],
  ['${F/a*./x.}', 'x.gz'],
  ['${F//r/}', 'achive.ta.gz'],
  ['${F//./${V%%.*}}', 'archive1tar1gz'],
  ['${F/?r/}', 'chive.tar.gz'],
  ['${V%.?}', '1.2'],
  ['${V#$V}', ''],
  ['${S#a\\*}', 'b?c\\d'],
  ['${S%\\\\d}', 'a*b?c'],
  ['${S//\\?/!}', 'a*b!c\\d'],
  ['${T%\\}*}', 'ab'],
  ['${NONE#x}', ''],
  ['"v${V#1.}"', 'v2.3'],
  ["'${V#1.}'", '${V#1.}'],
  ['${E:-x}${E-x}${NONE-y}${NONE:-$V}', 'xy1.2.3'],
  ['${E:+x}${E+x}${V:+<$V>}', 'x<1.2.3>'],
  ['${V:?no version}${E?unset}', '1.2.3'],
  // Parameters of a shell have no value.
  ['a$$b$1c$@d$', 'abcd$'],
]

for (const [word, value] of words)
  test(`the value of ${word}`, () => {
    assert.equal(expandWord(word, '\\', lookUp), value)
  })

const bad: [word: string, why: RegExp][] = [
  ['${NONE:?give a version}', /^NONE: give a version$/],
  ['${E:?}', /^E: it has no value, or an empty one$/],
  ['${NONE?}', /^NONE: it has no value$/],
  ['${P^^}', /\$\{P…\} has an operator that is not known/],
  ['${P:1:2}', /operator that is not known/],
  ['${P/a}', /\$\{P…\} has no \//],
  ['${P#a', /\$\{P…\} has no \}/],
  ['${P', /not closed/],
  ['${}', /name is missing/],
  ['${P#\\a}', /invalid escape \\a/],
]

for (const [word, why] of bad)
  test(`${word} has no meaning`, () => {
    assert.throws(
      () => expandWord(word, '\\', lookUp),
      (error: Error) => error instanceof BadWord && why.test(error.message),
    )
  })

test('a pattern that would take long is refused', () => {
  const long = 'a'.repeat(60_000)
  for (const word of [`\${L##${'*a'.repeat(5000)}b}`, `\${L//${'*a'.repeat(100)}b/}`, `\${L/${'?'.repeat(9000)}b/}`])
    assert.throws(() => expandWord(word, '\\', () => long), /too long/)
})
