import assert from 'node:assert/strict'
import { test } from 'node:test'
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
]

for (const [rules, ignored, kept] of cases)
  test(`.dockerignore ${JSON.stringify(rules)}`, () => {
    const isIgnored = parseIgnoreFile(rules)
    for (const path of ignored) assert.equal(isIgnored(path), true, `${path} is ignored`)
    for (const path of kept) assert.equal(isIgnored(path), false, `${path} is kept`)
  })

test('a pattern made to explode is as quick as any', () => {
  const isIgnored = parseIgnoreFile(`${'a*'.repeat(40)}b\n${'**/'.repeat(40)}x`)
  const start = performance.now()
  assert.equal(isIgnored('a'.repeat(4000)), false)
  assert.ok(performance.now() - start < 2000)
})
