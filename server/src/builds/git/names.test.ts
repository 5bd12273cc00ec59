import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test } from 'node:test'
import { isCommitId, isValidBranch, isValidGitUrl } from './names.ts'

const goodBranches = ['main', 'feature/one', 'v1.2', 'a-b', 'a@b', 'ümläut', 'release-2026', 'x/y/z', '@x', 'a+b', '#1']
const badBranches = [
  ['', 'empty'],
  ['-o', 'an option'],
  ['--upload-pack=touch /tmp/x', 'an option'],
  ['--upload-pack=x', 'an option'],
  ['a..b', 'a range'],
  ['..', 'a range'],
  ['a@{1}', 'a reflog'],
  ['@', 'HEAD'],
  ['a b', 'a space'],
  ['a\nb', 'a line'],
  ['a\0b', 'NUL'],
  ['a\x7fb', 'DEL'],
  ['a~1', 'tilde'],
  ['a^', 'caret'],
  ['a:b', 'colon'],
  ['+a:b', 'a refspec'],
  ['a?', 'glob'],
  ['a*', 'glob'],
  ['a[', 'glob'],
  ['a\\b', 'backslash'],
  ['/a', 'empty component'],
  ['a/', 'empty component'],
  ['a//b', 'empty component'],
  ['.a', 'dot'],
  ['a/.b', 'dot'],
  ['a.', 'dot at the end'],
  ['a.lock', 'lock'],
  ['a.lock/b', 'lock'],
  ['x'.repeat(256), 'length'],
] as const

test('branches that git takes are taken', () => {
  for (const name of goodBranches) assert.equal(isValidBranch(name), true, name)
})

test('hostile and impossible branches are refused', () => {
  for (const [name, why] of badBranches) assert.equal(isValidBranch(name), false, `${why}: ${JSON.stringify(name)}`)
})

test('no branch passes that git itself refuses', () => {
  for (const name of [...goodBranches, ...badBranches.map(([bad]) => bad)]) {
    if (name.includes('\0')) continue
    const { status } = spawnSync('git', ['check-ref-format', `refs/heads/${name}`])
    if (isValidBranch(name)) assert.equal(status, 0, name)
  }
})

test('only plain web addresses are git addresses', () => {
  const good = [
    'https://example.com/a/b.git',
    'http://127.0.0.1:8080/samples/hello.git',
    'https://git.example.com:8443/~me/x',
    'https://[::1]:3000/a',
  ]
  const bad = [
    '',
    '--upload-pack=touch /tmp/x',
    '-o',
    'ext::sh -c id',
    'ext::sh%20-c%20id',
    'file:///etc',
    '/etc',
    '../x',
    'fd::7',
    'git://example.com/a',
    'ssh://git@example.com/a',
    'ssh://-oProxyCommand=x/a',
    'git@example.com:a/b.git',
    'https://user:secret@example.com/a',
    'https://user@example.com/a',
    'https://-x.example.com/a',
    'https://example.com',
    'https://example.com/',
    'https://example.com:0/a',
    'https://example.com./a',
    'https://ex%61mple.com/a',
    'https://exam\u00adple.com/a',
    'https://stra\u00dfe.example/a',
    'http://\uff11\uff12\uff17.0.0.1/a',
    'https://example.com/a b',
    'https://example.com/a\nb',
    'https://example.com/a?service=x',
    'https://example.com/a#b',
    'https:\\\\example.com\\a',
    'https:example.com/a',
    'http::https://example.com/a',
    `https://example.com/${'a'.repeat(2048)}`,
  ]
  for (const url of good) assert.equal(isValidGitUrl(url), true, url)
  for (const url of bad) assert.equal(isValidGitUrl(url), false, url)
})

test('a commit id is 40 or 64 lower-case hex digits', () => {
  assert.equal(isCommitId('a'.repeat(40)), true)
  assert.equal(isCommitId('0'.repeat(64)), true)
  for (const bad of ['a'.repeat(39), 'g'.repeat(40), 'HEAD', `--${'a'.repeat(38)}`, `${'a'.repeat(40)}\n`])
    assert.equal(isCommitId(bad), false, bad)
})
