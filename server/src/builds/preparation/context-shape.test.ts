import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type ContextShape, createRename } from './context-shape.ts'

const plain: ContextShape = { sources: ['.'], excludes: [], parents: false, mode: null, files: [], hasNothing: false }

const namesOf = (shape: Partial<ContextShape>, paths: string[]): (string | null)[] => {
  const rename = createRename({ ...plain, ...shape })
  return paths.map((path) => rename(path, !path.includes('.')))
}

test('what is excluded is so below each source, as its own path there', () => {
  const paths = ['a.md', 'docs', 'docs/a.md', 'docs/b.txt', 'src/docs/a.md', 'src/a.md']
  assert.deepEqual(namesOf({ excludes: ['*.md'] }, paths), [null, ...paths.slice(1)])
  assert.deepEqual(namesOf({ excludes: ['**/*.md'] }, paths), [null, 'docs', null, 'docs/b.txt', null, null])
  const src = namesOf({ sources: ['./src', 'a.md'], excludes: ['docs', '*.md'] }, paths)
  assert.deepEqual(src, [null, 'docs', 'docs/a.md', 'docs/b.txt', null, null])
})

test('folders of what is copied stay, but for those in front of /./', () => {
  const paths = ['a/b/c.txt', 'a/b/d.md', 'x/y/z/1.txt', 'x/y/2.txt', 'other.txt']
  const own = '.slipway.copy'
  assert.deepEqual(namesOf({ parents: true, sources: ['a/b/*.txt', './x/./y/**'] }, paths), [
    `${own}/a/b/c.txt`,
    null,
    `${own}/y/z/1.txt`,
    `${own}/y/2.txt`,
    null,
  ])
})

test('no source reaches outside, and no pattern is a rule of another kind', () => {
  assert.deepEqual(namesOf({ parents: true, sources: ['../../a.txt'] }, ['a.txt']), ['.slipway.copy/a.txt'])
  for (const pattern of ['!a', '#a', 'a\nb', ''])
    assert.throws(() => createRename({ ...plain, excludes: [pattern] }), { code: 'build_refused' })
})
