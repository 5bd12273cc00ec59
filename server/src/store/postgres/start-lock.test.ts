import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import { createLog } from '../../lib/log.ts'
import { removePostgres, startPostgres } from './postgres.ts'
import { takeStartLock } from './start-lock.ts'

const skip = process.platform !== 'linux'

const folderFor = (t: TestContext): string => {
  const folder = mkdtempSync(join(tmpdir(), 'slipway-lock-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

test('one has the lock at a time, and leaves nothing behind', async (t) => {
  const folder = folderFor(t)
  const release = await takeStartLock(folder)
  assert.equal(await takeStartLock(folder), undefined)
  await release!()
  assert.deepEqual(readdirSync(folder), [])
  await (await takeStartLock(folder))!()
})

test('neither a dead process nor one that got its number is waited for; a living one is', { skip }, async (t) => {
  const folder = folderFor(t)
  // No process has so high a number, and ours has begun at another time.
  for (const name of ['4999999-5', `${process.pid}-1`]) writeFileSync(join(folder, `postgres-start.${name}`), '')
  const release = await takeStartLock(folder)
  assert.equal(readdirSync(folder).length, 1)
  const own = readdirSync(folder)[0]!
  await release!()
  // The name that this very process would use.
  writeFileSync(join(folder, own), '')
  assert.equal(await takeStartLock(folder), undefined)
})

test('a local user who holds a socket under a name of ours keeps no database from starting', { skip }, async (t) => {
  const dataDir = folderFor(t)
  const data = join(realpathSync(dataDir), 'postgres', 'data')
  const squatter = createServer()
  squatter.listen(`\0slipway-${createHash('sha256').update(data).digest('hex')}`)
  await once(squatter, 'listening')
  t.after(() => squatter.close())
  const log = createLog('silent')
  t.after(() => removePostgres({ dataDir, log }))
  assert.equal((await startPostgres({ dataDir, log })).adopted, false)
})
