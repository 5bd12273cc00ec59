import assert from 'node:assert/strict'
import { test } from 'node:test'
import { plain } from './comment.ts'

/** A text as hosts show it, once its escapes are removed. */
const finished = (text: string): string => text.replaceAll(/\\([!-/:-@[-`{-~])/g, '$1')

test('a name in a comment is text: no markup, no row of its own, no mention, no link', () => {
  assert.equal(plain('api'), 'api')
  for (const name of [
    '[click](https://evil.example)',
    '<img src=//evil.example>',
    'a | b | c',
    '**bold** _it_ `code` ~~gone~~',
    '![x](//evil.example/x.png)',
    '<!-- slipway preview 1 -->',
    'a&lt;b&#64;c',
    'a\\|b',
  ])
    assert.doesNotMatch(plain(name).replaceAll(/\\[!-/:-@[-`{-~]/g, ''), /[\\`*_{}[\]()<>#|@!~&]/, name)
  assert.doesNotMatch(plain('one\r\n# two\u2028| three\u0000\u202e'), /[\p{Cc}\u2028\u202e]/u)
  const linked = [
    '@octocat',
    'a @acme/team',
    '#12',
    'acme/shop#12',
    '!34',
    '~bug',
    '&5',
    'https://evil.example',
    'WWW.evil.example',
    'you@evil.example',
  ]
  for (const name of linked) assert.doesNotMatch(finished(plain(name)), /[@#!~&]\w|:\/\/|www\./i, name)
})
