import assert from 'node:assert/strict'
import { chownSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { exec } from '../lib/exec.ts'
import { checkOwner, isFake, openDataDirectory } from './data-directory.ts'

const isRoot = process.getuid?.() === 0
const reset = new URL('../programs/reset.ts', import.meta.url).pathname
const stop = new URL('../programs/stop.ts', import.meta.url).pathname

const newFolder = (t: TestContext): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-data-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

const run = (program: string, dataDir: string, args: string[] = []) =>
  exec(process.execPath, [program, ...args], {
    env: { PATH: process.env.PATH ?? '', SLIPWAY_DATA_DIR: dataDir },
    timeoutMs: 20_000,
  })

test('a new data directory is ours alone', async (t) => {
  const dataDir = join(newFolder(t), 'a', 'b')
  assert.equal(await checkOwner(dataDir), false)
  await openDataDirectory(dataDir, 'fake')
  assert.equal(statSync(dataDir).mode & 0o777, 0o700)
  assert.equal(await checkOwner(dataDir), true)
})

test('a directory with simulated services refuses a real start, and the other way round', async (t) => {
  const folder = newFolder(t)
  for (const [kind, other, why] of [
    ['fake', 'docker', /was started with --fake/],
    ['docker', 'fake', /has services that run on an engine/],
  ] as const) {
    const dataDir = join(folder, kind)
    await openDataDirectory(dataDir, kind)
    await assert.rejects(openDataDirectory(dataDir, other), { message: why })
    await openDataDirectory(dataDir, kind)
    assert.equal(await isFake(dataDir), kind === 'fake')
  }
})

test('what earlier versions left is recognized without a mark', async (t) => {
  const folder = newFolder(t)
  mkdirSync(join(folder, 'fake', 'fake'), { recursive: true })
  mkdirSync(join(folder, 'docker', 'keys'), { recursive: true })
  await assert.rejects(openDataDirectory(join(folder, 'fake'), 'docker'), /--fake/)
  await assert.rejects(openDataDirectory(join(folder, 'docker'), 'fake'), /on an engine/)
})

test('a place where nothing can be created is refused at once', { timeout: 5000 }, async () => {
  await assert.rejects(
    openDataDirectory('/proc/x/y', 'fake'),
    /^Error: \/proc\/x\/y cannot be created .*SLIPWAY_DATA_DIR/,
  )
  await assert.rejects(openDataDirectory('/dev/null', 'fake'), /is a file/)
})

test('a reset asks a terminal, and where there is none it deletes nothing', async (t) => {
  const dataDir = newFolder(t)
  writeFileSync(join(dataDir, 'kept'), '')
  const { code, stderr } = await run(reset, dataDir)
  assert.equal(code, 1)
  assert.match(stderr, /^Not deleted: .*npm run reset -- --yes does not ask\.\n$/)
  assert.deepEqual(readdirSync(dataDir), ['kept'])
})

test('as the wrong user every command says so in one sentence and changes nothing', {
  skip: isRoot ? false : 'only root can give files away',
}, async (t) => {
  const dataDir = newFolder(t)
  writeFileSync(join(dataDir, 'kept'), '')
  chownSync(dataDir, 1, 1)
  for (const [program, args] of [
    [reset, ['--yes']],
    [stop, []],
  ] as const) {
    const { code, stderr } = await run(program, dataDir, [...args])
    assert.equal(code, 1)
    assert.match(stderr, /^[^\n]* belongs to daemon and this is root: run this command as daemon\.\n$/)
  }
  await assert.rejects(openDataDirectory(dataDir, 'fake'), /belongs to daemon/)
  assert.deepEqual(readdirSync(dataDir), ['kept'])
})
