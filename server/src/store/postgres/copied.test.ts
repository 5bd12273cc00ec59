/** Data directories that were copied elsewhere, with and without their owners, start as they are. */
import assert from 'node:assert/strict'
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readlinkSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { exec } from '../../lib/exec.ts'
import { createLog } from '../../lib/log.ts'
import { connect } from '../database.ts'
import { removePostgres, startPostgres, stopPostgres } from './postgres.ts'

const log = createLog('silent')
const skip = process.getuid?.() === 0 ? false : 'only root can give files away'
const PATH = process.env.PATH ?? ''

const run = async (file: string, ...args: string[]): Promise<void> => {
  const { code, stderr } = await exec(file, args, { env: { PATH } })
  assert.equal(code, 0, stderr)
}

const newFolder = (t: TestContext, mode: number): string => {
  const top = mkdtempSync(join(tmpdir(), 'slipway-copied-'))
  chmodSync(top, mode)
  t.after(async () => {
    await removePostgres({ dataDir: join(top, 'data'), log })
    rmSync(top, { recursive: true, force: true })
  })
  mkdirSync(join(top, 'data'), { mode: 0o700 })
  return join(top, 'data')
}

const ask = async (dataDir: string, text: string): Promise<object[]> => {
  const { connectionString } = await startPostgres({ dataDir, log, durable: false })
  const database = connect(connectionString, log, { max: 1 })
  try {
    return await database.query(text)
  } finally {
    await database.close()
    await stopPostgres({ dataDir, log })
  }
}

for (const from of [0o755, 0o700])
  for (const to of [0o755, 0o700])
    for (const owner of ['as copied', "root's"])
      test(`a copy from a folder of mode ${from.toString(8)} to one of ${to.toString(8)}, ${owner}, starts with its data`, {
        skip,
      }, async (t) => {
        const first = newFolder(t, from)
        await ask(first, 'create table kept as select 42 as answer')
        const copy = newFolder(t, to)
        rmSync(copy, { recursive: true })
        await run('cp', '-aL', first, copy)
        if (owner !== 'as copied') await run('chown', '-R', 'root:root', copy)
        assert.deepEqual(await ask(copy, 'select answer from kept'), [{ answer: 42 }])
        // The first one is another database still.
        assert.notEqual(realpathSync(join(first, 'postgres')), realpathSync(join(copy, 'postgres')))
        assert.deepEqual(await ask(first, 'select answer from kept'), [{ answer: 42 }])
        assert.equal(lstatSync(join(copy, 'postgres')).isSymbolicLink(), to === 0o700)
      })

test('a move that was killed before or after the folder itself was moved is resumed', { skip }, async (t) => {
  for (const isMoved of [false, true]) {
    const dataDir = newFolder(t, 0o700)
    await ask(dataDir, 'create table kept as select 42 as answer')
    const [home, link] = [join(dataDir, 'postgres'), join(dataDir, 'postgres.moving')]
    const target = readlinkSync(home)
    rmSync(home)
    symlinkSync(target, link)
    if (!isMoved) renameSync(target, home)
    assert.deepEqual(await ask(dataDir, 'select answer from kept'), [{ answer: 42 }])
    assert.equal(readlinkSync(home), target)
    assert.equal(lstatSync(link, { throwIfNoEntry: false }), undefined)
  }
})
