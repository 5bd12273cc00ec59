import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { changeMode, readFileMode, showFileMode } from './file-modes.ts'

const octal = (mode: number): string => (mode & 0o7777).toString(8)

test('modes in symbols change files and folders as chmod does without a umask', () => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-modes-'))
  const [file, inner] = [join(folder, 'file'), join(folder, 'inner')]
  writeFileSync(file, '')
  mkdirSync(inner)
  try {
    const texts = ['u=rwx,go=rx', '+x', 'a+x', 'go-w', 'u=rwX,go=rX', 'g=u', 'o=', '-rwx', 'u+s,g+s', '+t', 'u+x-w,o=u']
    const changes = [...texts, 'ug+rw', 'a=r', '=x', 'a=X']
    for (const text of changes)
      for (const [path, mode] of [file, inner].flatMap((each) =>
        [0o644, 0o755, 0o600].map((bits) => [each, bits] as const),
      )) {
        chmodSync(path, mode)
        // A shell with a umask of 0: otherwise `+w` would set fewer bits.
        execFileSync('/bin/sh', ['-c', 'umask 0; exec chmod -- "$1" "$2"', 'sh', text, path])
        const change = readFileMode(text)
        const made = octal(changeMode(change, mode, path === inner))
        assert.equal(made, octal(statSync(path).mode), `${text} of ${octal(mode)} ${path}`)
        chmodSync(path, mode)
        execFileSync('chmod', ['--', showFileMode(change), path])
        assert.equal(made, octal(statSync(path).mode), `${showFileMode(change)} for a shell`)
      }
  } finally {
    rmSync(folder, { recursive: true })
  }
})

test('an octal mode is the mode', () => {
  for (const [text, mode] of [
    ['755', 0o755],
    ['0400', 0o400],
    ['4711', 0o4711],
  ] as const)
    assert.equal(changeMode(readFileMode(text), 0o644, false), mode)
  assert.equal(showFileMode(readFileMode('64')), '0064')
})

test('an invalid mode is refused', () => {
  for (const text of [
    '',
    'x',
    '888',
    '75555',
    'u=rwx,',
    '+q',
    'u+ug',
    'z+x',
    '755,u+x',
    'u',
    `${'u+x,'.repeat(100)}u+x`,
  ])
    assert.throws(() => readFileMode(text), /--chmod must be an octal number/, text)
})
