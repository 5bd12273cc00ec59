import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { createMasker } from './log-mask.ts'

const maskAll = (secrets: string[], pieces: string[]): string => {
  const masker = createMasker(secrets)
  return pieces.map((piece) => masker.write(piece)).join('') + masker.end()
}

const secret = 'hunter2 & söhne/+?'
const forms = {
  plain: secret,
  base64: Buffer.from(secret).toString('base64'),
  'base64 url': Buffer.from(secret).toString('base64url'),
  'base64 with a line end': Buffer.from(`${secret}\n`).toString('base64').slice(0, 24),
  'URL encoding': encodeURIComponent(secret),
  'URL encoding in lower case': encodeURIComponent(secret).replace(/%../g, (code) => code.toLowerCase()),
}

for (const [name, form] of Object.entries(forms))
  test(`a secret is masked as ${name}, wherever the text is cut`, () => {
    const text = `before ${form} after`
    for (let at = 0; at <= text.length; at += 1)
      assert.equal(maskAll([secret], [text.slice(0, at), text.slice(at)]), 'before *** after')
    assert.equal(maskAll([secret], [...text]), 'before *** after')
  })

test('the longer of two secrets wins, short values stay, and other text is untouched', () => {
  assert.equal(maskAll(['secret', 'secret-longer'], ['a secret-longer b secret c']), 'a *** b *** c')
  assert.equal(maskAll(['short'], ['a short one']), 'a short one')
  assert.equal(maskAll([], ['anything']), 'anything')
  assert.equal(maskAll(['(.*)+x'], ['aaaa (.*)+x']), 'aaaa ***')
})

test('the beginning of a secret that does not continue is shown in the end', () => {
  assert.equal(maskAll(['abcdefgh'], ['xabcdef']), 'xabcdef')
  assert.equal(maskAll(['aabaab!'], ['aabaabaab!']), 'aab***')
})

test('no way to cut a text shows a secret', () => {
  fc.assert(
    fc.property(fc.array(fc.string({ maxLength: 5 })), fc.array(fc.integer({ min: 0, max: 60 })), (noise, cuts) => {
      const text = noise.join('s3cr3t-value')
      const sorted = [0, ...cuts.map((cut) => Math.min(cut, text.length)).sort((a, b) => a - b), text.length]
      const pieces = sorted.slice(1).map((end, index) => text.slice(sorted[index], end))
      return maskAll(['s3cr3t-value'], pieces) === noise.join('***')
    }),
  )
})

test('of values that overlap the first and longest is masked, wherever the text is cut', () => {
  const word = (minLength: number, maxLength: number) =>
    fc.string({ unit: fc.constantFrom('a', 'b'), minLength, maxLength })
  fc.assert(
    fc.property(fc.array(word(6, 9), { minLength: 1, maxLength: 4 }), fc.array(word(0, 12)), (secrets, pieces) => {
      const longestFirst = [...secrets].sort((a, b) => b.length - a.length)
      return maskAll(secrets, pieces) === pieces.join('').replaceAll(new RegExp(longestFirst.join('|'), 'g'), '***')
    }),
  )
})

test('no value is too long: a long one is masked from its beginning on, for as long as the text is like it', () => {
  const long = Array.from({ length: 9000 }, (_, at) => `line ${at}`).join('\n')
  assert.equal(long.length > 64 * 1024, true)
  assert.equal(maskAll([long], [`a ${long} b`]), 'a *** b')
  const pieces = `a ${long} b`.match(/[\s\S]{1,1000}/g)!
  assert.equal(maskAll([long], pieces), 'a *** b')
  assert.equal(maskAll([long], [long.slice(0, 500), '!']), '***!')
  const other = `${long.slice(0, 300)}and another end`
  assert.equal(maskAll([long, other], [`${other}. ${long}. ${long.slice(0, 300)}`]), '***. ***. ***')
  assert.equal(maskAll([long, other], [...`${other}.`, ...long, '.']), '***.***.')
})

test('values of thousands of like characters and texts of them cost no more than others', () => {
  const secrets = Array.from({ length: 50 }, (_, at) => `${'a'.repeat(30_000 + at)}b${at}`)
  const masker = createMasker(secrets)
  let shown = ''
  for (let size = 0; size < 4e6; size += 16_384)
    shown += masker.write(`${'a'.repeat(16_383)}${size % 3 === 0 ? 'c' : 'a'}`)
  shown += masker.end()
  assert.match(shown, /^(\*\*\*|[ac])+$/)
  assert.ok(shown.length < 1e6)
})

test('100 MB pass in seconds', () => {
  const masker = createMasker(['s3cr3t-value', 'p'.repeat(4000)])
  const piece = 'a line of some build output, as they are\n'.repeat(1600)
  const start = performance.now()
  let size = 0
  while (size < 100e6) size += masker.write(piece).length
  assert.ok(performance.now() - start < 10_000)
})
