/** Backups of a database that is written to meanwhile, and everything that may be wrong with one. */
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { generateIdentity, identityToRecipient } from 'age-encryption'
import { type TestDatabase, testDatabase } from '../../../test/support/database.ts'
import { until } from '../../../test/support/until.ts'
import { newId } from '../../lib/ids.ts'
import { createLog } from '../../lib/log.ts'
import { Secret } from '../../lib/secret.ts'
import { readOwnTables } from '../../store/copy/own-tables.ts'
import { openSession } from '../../store/copy/session.ts'
import { createFolderPlace } from '../places/folder-place.ts'
import { PlaceError } from '../places/place.ts'
import { checkBackup } from './check-backup.ts'
import type { Key, Lock } from './lock.ts'
import { type BackupParts, makeBackup } from './make-backup.ts'
import { nameOf } from './names.ts'
import { refuseNewer, restoreBackup } from './restore-backup.ts'

const log = createLog('silent')
const { signal } = new AbortController()
const passphrase = new Secret('a passphrase of tests')
const name = nameOf(new Date(), null)

const root = mkdtempSync(join(tmpdir(), 'slipway-own-backup-'))
after(() => rmSync(root, { recursive: true, force: true }))
let folders = 0
const newFolder = (): string => {
  folders += 1
  const folder = join(root, String(folders))
  mkdirSync(folder, { mode: 0o700 })
  return folder
}

/** A public key is quick; each use of a passphrase takes a second. */
const identity = await generateIdentity()
const lock: Lock = { recipient: await identityToRecipient(identity) }
const key: Key = { identities: new Secret([identity]) }

/** Awkward values, and more rows than one piece holds. */
const fill = async (database: TestDatabase): Promise<void> => {
  const spec = JSON.stringify({ text: 'a\tb\\n\\.\nc "d" \u2028 é', empty: '' })
  await database.query(
    `insert into node (id, organization_id, kind, name_scope, name, spec) values ($1, $1, 'organization', 'x', $2, $3)`,
    [newId(), '\\.', spec],
  )
  await database.query(
    `insert into event (id, organization_id, event_type, target_type, origin, triggered_by, target_name)
     select gen_random_uuid(), gen_random_uuid(), 'CREATE', 'PROJECT', 'API', 'x', repeat(n::text || E'\\n', 20) from generate_series(1, 60000) n`,
  )
  // What is pushed is in rows of bytes.
  await database.query(`insert into git_repository (id, organization_id) select id, id from node`)
  await database.query(`insert into git_pack (id, repository_id) select id, id from git_repository`)
  await database.query(
    `insert into git_pack_part (pack_id, part, bytes) select id, n, sha256(n::text::bytea) || '\\x00ff0a5c'::bytea from git_pack, generate_series(1, 100) n`,
  )
  await database.query(
    `select nextval('outside_port_draw'), nextval('deployment_log_id_seq') from generate_series(1, 7)`,
  )
}

const makeParts = (database: TestDatabase, more: Partial<BackupParts> = {}) => {
  const dataDir = newFolder()
  const to = newFolder()
  mkdirSync(join(dataDir, 'keys'))
  const masterKeyFile = join(dataDir, 'keys/master')
  writeFileSync(masterKeyFile, `${Buffer.alloc(32, 7).toString('base64')}\n`)
  writeFileSync(join(dataDir, 'slipway.env'), 'SLIPWAY_PORT=8123\n')
  const place = createFolderPlace(to)
  const { connectionString } = database
  const parts = {
    dataDir,
    masterKeyFile,
    connectionString,
    place,
    lock,
    environment: [],
    verify: true,
    signal,
    ...more,
  }
  return { parts, place, to }
}

/** Every row of every table, in an order of its own. */
const rowsOf = async (connectionString: string): Promise<Record<string, string>> => {
  const session = await openSession(connectionString)
  const rows: Record<string, string> = {}
  for (const table of await readOwnTables(session)) {
    const text = `select coalesce(md5(string_agg(t::text, ' ' order by t::text)), '') as rows from "${table.name}" t
      where '${table.name}' <> 'installation' or t::text not like '(restored,%'`
    rows[table.name] = ((await session.query(text))[0] as { rows: string }).rows
  }
  await session.close()
  return rows
}

const emptyDatabase = async (t: TestContext): Promise<TestDatabase> => {
  const database = await testDatabase()
  t.after(() => database.close())
  await database.query('drop schema public cascade')
  await database.query('create schema public')
  return database
}

const restoreInto = (databaseUrl: string, place: BackupParts['place'], which: Key, dataDir = newFolder()) =>
  restoreBackup({ place, name, key: which, signal, dataDir, databaseUrl, log, finish: async () => {} })

const source = await testDatabase()
await fill(source)

test('a backup has the rows of one moment, although they change meanwhile, and a restore has them all', async (t) => {
  let isOver = false
  let pairs = 0
  // Two rows at a time, in two tables: a backup of one moment has as many of one as of the other.
  const writing = (async () => {
    while (!isOver) {
      await source.transaction(async (tx) => {
        const id = newId()
        await tx.query(
          `insert into node (id, organization_id, kind, name_scope, name) values ($1, $1, 'pair', 'x', $2)`,
          [id, id],
        )
        await tx.query(`insert into installation (name, value) values ($1, 'pair')`, [`pair ${id}`])
      })
      pairs += 1
    }
  })()
  await until(() => pairs > 5, { what: 'the first writes' })
  const { parts, place } = makeParts(source)
  const made = await makeBackup(parts, name)
  isOver = true
  await writing
  const target = await emptyDatabase(t)
  const dataDir = newFolder()
  await restoreInto(target.connectionString, place, key, dataDir)
  const [counts] = await target.query<{ nodes: number; facts: number }>(
    `select (select count(*)::int from node where kind = 'pair') as nodes,
       (select count(*)::int from installation where value = 'pair') as facts`,
  )
  assert.ok(counts!.nodes > 5 && counts!.nodes <= pairs)
  assert.equal(counts!.nodes, counts!.facts)
  assert.ok(made.rows > 60_000)
  // What was written since goes; then both are the same.
  const there = await target.query<{ id: string }>(`select id from node where kind = 'pair'`)
  const ids = there.map(({ id }) => id)
  await source.query(`delete from installation where value = 'pair' and name <> all($1)`, [
    ids.map((id) => `pair ${id}`),
  ])
  await source.query(`delete from node where kind = 'pair' and id <> all($1)`, [ids])
  await source.query('delete from deletion')
  assert.deepEqual(await rowsOf(target.connectionString), await rowsOf(source.connectionString))
  for (const sequence of ['outside_port_draw', 'deployment_log_id_seq']) {
    const last = `select last_value, is_called from ${sequence}`
    assert.deepEqual(await target.query(last), await source.query(last))
  }
  assert.equal(
    readFileSync(join(dataDir, 'slipway.env'), 'utf8'),
    `SLIPWAY_PORT=8123\nDATABASE_URL=${target.connectionString}\n`,
  )
  assert.deepEqual(readFileSync(join(dataDir, 'keys/master')), readFileSync(parts.masterKeyFile))
  // What binds rows to each other is there again.
  const bound = `select count(*)::int as count from pg_constraint where contype = 'f'`
  assert.deepEqual(await target.query(bound), await source.query(bound))
  const acting = `select count(*)::int as count from pg_trigger where tgenabled = 'O'`
  assert.deepEqual(await target.query(acting), await source.query(acting))
  // And it is not restored over.
  await assert.rejects(restoreInto(target.connectionString, place, key), /is not empty/)
})

test('a flipped bit, a missing end or a missing middle is found wherever it is, and nothing of it is restored', async (t) => {
  const { parts, place, to } = makeParts(source)
  await makeBackup(parts, name)
  const whole = readFileSync(join(to, name))
  const target = await emptyDatabase(t)
  const broken: [what: string, bytes: Buffer][] = [
    ...[0.2, 0.5, 0.999].map((at): [string, Buffer] => {
      const bytes = Buffer.from(whole)
      bytes[Math.floor(bytes.length * at)]! ^= 4
      return [`a bit at ${at}`, bytes]
    }),
    ['no end', whole.subarray(0, -1)],
    ['half of it', whole.subarray(0, whole.length / 2)],
    ['no middle', Buffer.concat([whole.subarray(0, 100_000), whole.subarray(200_000)])],
    ['something after it', Buffer.concat([whole, Buffer.from('x')])],
    ['nothing', Buffer.alloc(0)],
  ]
  for (const [what, bytes] of broken) {
    writeFileSync(join(to, name), bytes)
    await assert.rejects(checkBackup({ place, name, key, signal }), /is damaged or incomplete/, what)
    const dataDir = newFolder()
    await assert.rejects(restoreInto(target.connectionString, place, key, dataDir), /is damaged or incomplete/, what)
    assert.deepEqual(await target.query(`select 1 from pg_tables where schemaname = 'public'`), [], what)
    assert.deepEqual(readdirSync(dataDir), ['unfinished-restore'], what)
  }
  writeFileSync(join(to, name), whole)
  await restoreInto(target.connectionString, place, key)
})

test('only its own passphrase or private key opens a backup', async () => {
  const { parts, place } = makeParts(source, { lock: { passphrase } })
  await makeBackup(parts, name)
  await checkBackup({ place, name, key: { passphrase }, signal })
  const wrong = /^CannotOpen: this (passphrase|identity) does not open it/
  const other = await generateIdentity()
  for (const each of [{ passphrase: new Secret('another passphrase') }, { identities: new Secret([other]) }])
    await assert.rejects(checkBackup({ place, name, key: each, signal }), wrong)
})

test('a backup that cannot be stored whole, or is not what was sent, does not exist', async () => {
  const { parts, place, to } = makeParts(source)
  const full: BackupParts['place'] = {
    ...place,
    put: (stored, content, stop) => {
      async function* some() {
        let bytes = 0
        for await (const chunk of content) {
          bytes += chunk.length
          if (bytes > 200_000) throw new PlaceError('full', 'The disk of the backup folder is full.')
          yield chunk
        }
      }
      return place.put(stored, some(), stop)
    },
  }
  await assert.rejects(makeBackup({ ...parts, place: full }, name), /The disk of the backup folder is full/)
  assert.deepEqual(readdirSync(to), [])
  const lying: BackupParts['place'] = {
    ...place,
    async put(stored, content, stop) {
      const result = await place.put(stored, content, stop)
      const bytes = readFileSync(join(to, stored))
      bytes[300_000]! ^= 1
      writeFileSync(join(to, stored), bytes)
      return result
    },
  }
  await assert.rejects(makeBackup({ ...parts, place: lying }, name), /is damaged or incomplete/)
  assert.deepEqual(readdirSync(to), [])
  await makeBackup(parts, name)
})

test('one backup at a time, and none without the keys of the database', async () => {
  const { parts } = makeParts(source)
  const [first, second] = await Promise.allSettled([makeBackup(parts, name), makeBackup(parts, name)])
  assert.deepEqual([first.status, second.status].toSorted(), ['fulfilled', 'rejected'])
  await source.query(
    `insert into data_key (id, organization_id, master_key_id, wrapped) values ($1, $1, 'unknown', 'x')`,
    [newId()],
  )
  await assert.rejects(makeBackup(parts, name), /lacks a key of this database/)
  await source.query('delete from data_key')
})

test('all tables and sequences of the schema are known as ours, and those of others are left out', async (t) => {
  const database = await testDatabase()
  t.after(() => database.close())
  const schema = await database.query<{ name: string }>(
    `select tablename::text as name from pg_tables where schemaname = 'public' order by 1`,
  )
  const own = async () => (await readOwnTables(database)).map(({ name: table }) => table).toSorted()
  assert.deepEqual(await own(), schema.map(({ name: table }) => table).toSorted())
  await database.query('create table of_somebody (id int)')
  assert.deepEqual(await own(), schema.map(({ name: table }) => table).toSorted())
})

test('a database, or a backup, of a newer version is refused with that sentence', async () => {
  const { parts, to } = makeParts(source)
  await source.query(`insert into migration (name) values ('9999-of-the-future.sql')`)
  await assert.rejects(makeBackup(parts, name), /was migrated by a newer Slipway \(9999-of-the-future\.sql\)/)
  await source.query(`delete from migration where name like '9999%'`)
  assert.deepEqual(readdirSync(to), [])
  assert.throws(
    () => refuseNewer({ migrations: ['0001-first-tables.sql', '9999-x.sql'], slipway: '9.9' }),
    /Slipway 9\.9, which is newer/,
  )
})
