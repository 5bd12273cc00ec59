import assert from 'node:assert/strict'
import { test } from 'node:test'
import { DeploymentError } from '../../lib/errors.ts'
import { parseIgnoreFile } from './ignore-file.ts'

const cases: [rules: string, ignored: string[], kept: string[]][] = [
  ['', [], ['a', 'a/b']],
  ['node_modules', ['node_modules', 'node_modules/x/y'], ['a/node_modules', 'node_modules2']],
  ['/node_modules/', ['node_modules/x'], ['a/node_modules']],
  ['**/node_modules', ['node_modules/x', 'a/b/node_modules/x'], ['xnode_modules', 'a/xnode_modules']],
  ['*.md', ['a.md'], ['docs/a.md', 'a.mdx']],
  ['**/*.md', ['a.md', 'docs/x/a.md'], ['a.txt']],
  ['**', ['a', 'a/b'], []],
  ['*', ['a', 'a/b'], []],
  ['*\n!keep', ['a', 'a/keep'], ['keep', 'keep/b']],
  ['docs\n!docs/keep.txt', ['docs/a'], ['docs/keep.txt']],
  ['!a\na', ['a'], []],
  ['a?c', ['abc'], ['ac', 'a/c']],
  ['[a-c]x', ['ax', 'cx/y'], ['dx', 'x']],
  ['[^a-c]x', ['dx'], ['ax', '/x']],
  ['a/*/c', ['a/b/c'], ['a/b/d/c', 'a/c']],
  ['a/**/c', ['a/c', 'a/b/d/c'], ['c', 'ac']],
  ['a/**', ['a/b', 'a/b/c'], ['b']],
  ['# note\n\n  .git  ', ['.git', '.git/config'], ['# note', '.gitignore']],
  ['a/../b', ['b'], ['a']],
  ['../x', ['x'], []],
  ['a\\*b', ['a*b'], ['axb']],
  ['a\r\nb\r', ['a', 'b'], []],
  ['[', ['['], ['a']],
  ['***', ['a', 'a/b'], []],
  ['a***b', ['ab', 'a/x/b', 'axb'], ['a', 'b']],
  ['*/**/x', ['a/x', 'a/b/x'], ['x']],
  ['**/**/x', ['x', 'a/x', 'a/b/x'], ['xx']],
  ['**/*x', ['x', 'ax', 'a/bx'], ['xa']],
  ['*.\u{1F600}', ['a.\u{1F600}'], ['a.b']],
]

for (const [rules, ignored, kept] of cases)
  test(`.dockerignore ${JSON.stringify(rules)}`, () => {
    const isIgnored = parseIgnoreFile(rules)
    for (const path of ignored) assert.equal(isIgnored(path), true, `${path} is ignored`)
    for (const path of kept) assert.equal(isIgnored(path), false, `${path} is kept`)
  })

const refuses = (text: string, comparisons: number, paths: string[], pattern: RegExp): void =>
  assert.throws(
    () => paths.map(parseIgnoreFile(text, comparisons)),
    (error) => error instanceof DeploymentError && error.code === 'build_refused' && pattern.test(error.message),
  )

/** Each within the length of its rules times the path's, which a thousand comparisons a character are not below. */
const bombs: [what: string, rules: string, path: string][] = [
  ['stars', `${'*'.repeat(1000)}Z`, 'a'.repeat(100)],
  ['double stars', `${'**'.repeat(500)}Z`, 'a'.repeat(100)],
  ['any folders', `${'**/'.repeat(340)}Z`, 'a/'.repeat(50)],
  ['stars and folders in turn', `${'***/'.repeat(250)}Z`, 'a/'.repeat(50)],
  ['stars and letters in turn', `${'*a'.repeat(500)}Z`, 'a'.repeat(100)],
  ['double stars and letters in turn', `${'**a'.repeat(340)}Z`, 'a'.repeat(100)],
]

for (const [what, rules, path] of bombs)
  test(`a rule of ${what} takes no more than its length times the path's`, () => {
    assert.equal(parseIgnoreFile(rules, rules.length * path.length)(path), false)
  })

test('rules that are too many, too long or too slow for the paths are refused in a sentence', () => {
  refuses('a'.repeat(1025), 1e6, [], /has 1025 characters: at most 1024/)
  refuses('a\n'.repeat(1001), 1e6, [], /has 1001 rules: at most 1000/)
  refuses(`${'*a'.repeat(100)}Z`, 10_000, Array(100).fill('a'.repeat(200)), /more than 10000 comparisons/)
  assert.equal(parseIgnoreFile(`${'a'.repeat(1024)}\n${'a\n'.repeat(999)}`, 1e6)('a'), true)
})
