import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { findProgram, isProgram } from './exec.ts'

const makeFolder = async (t: TestContext) => {
  const folder = await mkdtemp(join(tmpdir(), 'slipway-exec-'))
  t.after(() => rm(folder, { recursive: true }))
  return folder
}

test('a program is a file that we may execute', async (t) => {
  const folder = await makeFolder(t)
  const isRoot = process.getuid!() === 0
  // The system lets root execute what anyone may, and its owner only what the owner may.
  for (const [mode, expected] of [
    [0o755, true],
    [0o700, true],
    [0o644, false],
    [0o611, isRoot],
  ] as const) {
    const path = join(folder, mode.toString(8))
    await writeFile(path, '')
    await chmod(path, mode)
    assert.equal(await isProgram(path), expected, path)
  }
  await symlink('755', join(folder, 'link'))
  assert.equal(await isProgram(join(folder, 'link')), true)
  for (const path of [folder, join(folder, 'none'), join(folder, '755', 'inside')])
    assert.equal(await isProgram(path), false, path)
})

test('a program is found in the first absolute folder of PATH that has one to execute', async (t) => {
  const folder = await makeFolder(t)
  const before = process.env.PATH
  t.after(() => {
    process.env.PATH = before
  })
  const [none, noProgram, first, second] = ['none', 'no-program', 'first', 'second'].map((name) => join(folder, name))
  for (const [parent, mode] of [
    [noProgram!, 0o644],
    [first!, 0o755],
    [second!, 0o755],
  ] as const) {
    await mkdir(parent)
    await writeFile(join(parent, 'tool'), '')
    await chmod(join(parent, 'tool'), mode)
  }
  process.env.PATH = ['.', '', none, noProgram, first, second].join(delimiter)
  assert.equal(await findProgram('tool'), join(first!, 'tool'))
  assert.equal(await findProgram('other'), null)
})
