import assert from 'node:assert/strict'
import { mkdtempSync } from 'node:fs'
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { inspect } from 'node:util'
import { testDatabase } from '../../../test/support/database.ts'
import { newId } from '../../lib/ids.ts'
import type { Database } from '../database.ts'
import { createSealer } from './seal.ts'

const folder = mkdtempSync(join(tmpdir(), 'slipway-seal-'))
after(() => rm(folder, { recursive: true, force: true }))
let files = 0
const keyFile = (): string => join(folder, `${files++}`, 'master')
const place = (row: string) => ({ table: 'variable', row, column: 'value' })

/** Every row of every table as text. */
const dump = async (database: Database): Promise<string> => {
  const tables = await database.query<{ name: string }>(
    `select table_name as name from information_schema.tables where table_schema = 'public'`,
  )
  const rows = await Promise.all(tables.map(({ name }) => database.query(`select t::text as row from "${name}" t`)))
  return JSON.stringify(rows)
}

test('what was sealed opens in its place and nowhere else', async () => {
  const database = await testDatabase()
  const sealer = await createSealer({ database, masterKeyFile: keyFile() })
  const [organization, other, row] = [newId(), newId(), newId()]
  for (const text of ['', 'a', 'ünïcödé\0', 'x'.repeat(65_536)]) {
    const sealed = await sealer.seal(organization, place(row), text)
    assert.match(sealed, /^v1(\.[\w-]*){5}$/)
    assert.equal((await sealer.open(organization, place(row), sealed)).reveal(), text)
  }
  const sealed = await sealer.seal(organization, place(row), 'canary-4711')
  const wrong = /cannot be opened/
  await assert.rejects(sealer.open(organization, place(newId()), sealed), wrong)
  await assert.rejects(sealer.open(organization, { ...place(row), column: 'other' }, sealed), wrong)
  await assert.rejects(sealer.open(organization, { ...place(row), table: 'node' }, sealed), wrong)
  await assert.rejects(sealer.open(other, place(row), sealed), /no longer exists/)
  const parts = sealed.split('.')
  for (const at of [3, 4, 5]) {
    const first = parts[at]!.startsWith('A') ? 'B' : 'A'
    const changed = parts.with(at, first + parts[at]!.slice(1)).join('.')
    await assert.rejects(sealer.open(organization, place(row), changed), wrong, `part ${at}`)
  }
  await assert.rejects(sealer.open(organization, place(row), parts.with(5, parts[5]!.slice(0, 6)).join('.')), wrong)
  await assert.rejects(sealer.open(organization, place(row), 'canary'), /unknown format/)
})

test('the same text seals differently each time, and no table holds it', async () => {
  const database = await testDatabase()
  const sealer = await createSealer({ database, masterKeyFile: keyFile() })
  const organization = newId()
  const one = await sealer.seal(organization, place(newId()), 'canary-4711')
  const two = await sealer.seal(organization, place(newId()), 'canary-4711')
  assert.notEqual(one.split('.')[4], two.split('.')[4])
  await database.query(
    `insert into node (id, organization_id, kind, name_scope, sealed) values ($1, $1, 'x', 'x', jsonb_build_object('a', $2::text))`,
    [organization, one],
  )
  const text = await dump(database)
  assert.ok(text.includes(one))
  for (const form of ['canary-4711', Buffer.from('canary-4711').toString('base64url')]) assert.ok(!text.includes(form))
})

test('an opened value shows nothing when printed', async () => {
  const sealer = await createSealer({ database: await testDatabase(), masterKeyFile: keyFile() })
  const [organization, row] = [newId(), newId()]
  const opened = await sealer.open(organization, place(row), await sealer.seal(organization, place(row), 'canary'))
  assert.ok(!`${opened}${inspect(opened)}${JSON.stringify({ opened })}`.includes('canary'))
})

test('the key file is made once, for its owner only, and starts again with the same key', async () => {
  const database = await testDatabase()
  const file = keyFile()
  const [organization, row] = [newId(), newId()]
  const sealers = await Promise.all([1, 2, 3, 4].map(() => createSealer({ database, masterKeyFile: file })))
  const sealed = await sealers[0]!.seal(organization, place(row), 'kept')
  for (const sealer of sealers) assert.equal((await sealer.open(organization, place(row), sealed)).reveal(), 'kept')
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  assert.deepEqual(await readdir(join(file, '..')), ['master'])
  const again = await createSealer({ database, masterKeyFile: file })
  assert.equal((await again.open(organization, place(row), sealed)).reveal(), 'kept')
})

test('a missing or wrong key over sealed data stops the start and makes no new key', async () => {
  const database = await testDatabase()
  const sealer = await createSealer({ database, masterKeyFile: keyFile() })
  await sealer.seal(newId(), place(newId()), 'kept')
  const missing = keyFile()
  await assert.rejects(
    createSealer({ database, masterKeyFile: missing }),
    /^Error: the master key file .* is missing.*$/,
  )
  await assert.rejects(stat(missing), { code: 'ENOENT' })
  const wrong = keyFile()
  await createSealer({ database: await testDatabase(), masterKeyFile: wrong })
  await assert.rejects(
    createSealer({ database, masterKeyFile: wrong }),
    /^Error: the master key file .* does not have .*$/,
  )
  const bad = join(folder, 'bad')
  for (const text of ['', '# only a comment\n', 'short\n']) {
    await writeFile(bad, text)
    await assert.rejects(createSealer({ database, masterKeyFile: bad }), /master key file/)
  }
})

test('first writers that race share one data key, in one process and in several', async () => {
  const database = await testDatabase()
  const file = keyFile()
  const sealers = [
    await createSealer({ database, masterKeyFile: file }),
    await createSealer({ database, masterKeyFile: file }),
  ]
  const organization = newId()
  const work = Array.from({ length: 20 }, (_, index) => ({ row: newId(), sealer: sealers[index % 2]! }))
  const sealed = await Promise.all(work.map(({ row, sealer }) => sealer.seal(organization, place(row), row)))
  assert.equal((await database.query('select id from data_key')).length, 1)
  for (const [index, { row }] of work.entries())
    assert.equal((await sealers[(index + 1) % 2]!.open(organization, place(row), sealed[index]!)).reveal(), row)
})

test('after a key rotation old values open, new ones use the first key, and rewrap frees the old key', async () => {
  const database = await testDatabase()
  const file = keyFile()
  const [organization, row] = [newId(), newId()]
  const old = await createSealer({ database, masterKeyFile: file })
  const before = await old.seal(organization, place(row), 'before')
  const fresh = keyFile()
  await createSealer({ database: await testDatabase(), masterKeyFile: fresh })
  const [oldLine, newLine] = [await readFile(file, 'utf8'), await readFile(fresh, 'utf8')]

  await writeFile(file, `# rotated\n${newLine}${oldLine}`)
  const rotated = await createSealer({ database, masterKeyFile: file })
  assert.equal((await rotated.open(organization, place(row), before)).reveal(), 'before')
  assert.notEqual((await rotated.seal(newId(), place(row), 'x')).split('.')[1], before.split('.')[1])
  assert.equal(await rotated.rewrap(), 1)
  assert.equal(await rotated.rewrap(), 0)

  await writeFile(file, newLine)
  const after = await createSealer({ database, masterKeyFile: file })
  assert.equal((await after.open(organization, place(row), before)).reveal(), 'before')
})

test('a new data key leaves old values readable', async () => {
  const database = await testDatabase()
  const sealer = await createSealer({ database, masterKeyFile: keyFile() })
  const [organization, row] = [newId(), newId()]
  const before = await sealer.seal(organization, place(row), 'before')
  await sealer.rotateDataKey(organization)
  const later = await sealer.seal(organization, place(row), 'later')
  assert.notEqual(before.split('.')[2], later.split('.')[2])
  assert.equal((await sealer.open(organization, place(row), before)).reveal(), 'before')
})
