import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import { parseIgnoreFile } from '../preparation/ignore-file.ts'
import { excludeExpression } from './stage-from.ts'

const paths = ['a', 'a/b', 'a/b/c.md', 'x.md', 'a.b', '.lock', 'a/.lock', 'dir/x.md', 'a[1]', 'a1', 'a$b', 'a^', 'abc']
const parents = (path: string): string[] =>
  path.split('/').map((_, index, parts) => parts.slice(0, index + 1).join('/'))

test('what --exclude leaves out of another image is what it leaves out of the build', () => {
  const patterns = [
    'a',
    'a/b',
    '*.md',
    '**/*.md',
    '.lock',
    '**/.lock',
    'a/**',
    '?',
    'a?b',
    '[ab]',
    '[!ab]',
    'a\\[1]',
    '/x.md',
  ]
  for (const pattern of [...patterns, 'a$b', 'a^', 'a*', '**', 'a/*', 'dir/', '*/*.md', 'a[0-9]', 'a.b']) {
    const all = paths.flatMap(parents).map((path) => `./${path}`)
    let printed = ''
    try {
      printed = execFileSync('grep', ['-x', '-e', excludeExpression(pattern)], {
        input: all.join('\n'),
        encoding: 'utf8',
      })
    } catch (error) {
      // Code 1: nothing matches.
      assert.equal((error as { status: number }).status, 1, pattern)
    }
    const removed = new Set(printed.split('\n'))
    const isIgnored = parseIgnoreFile(pattern)
    for (const path of paths)
      assert.equal(
        parents(path).some((each) => removed.has(`./${each}`)),
        isIgnored(path),
        `${path} by ${pattern}`,
      )
  }
})
