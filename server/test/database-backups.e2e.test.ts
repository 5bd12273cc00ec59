/**
 * Backups of PostgreSQL, MySQL and Redis on a real engine: made by their own programs, verified by a load, restored with
 * every row; damaged files and failures are reported.
 */
import assert from 'node:assert/strict'
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { ensureDatabaseImage } from './support/docker/database-image.ts'
import { containersOf, engine } from './support/docker/docker.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { createPlace, deploymentLog, isSettled, type Place } from './support/slipway/story.ts'
import { until } from './support/until.ts'

interface Database {
  type: string
  version: string
  image: 'postgres:16' | 'mysql:8' | 'redis:7'
  /** A command in its container, for one statement. */
  client(statement: string): string
  fill: string[]
  /** The whole content, in order. */
  read: string[]
  change: string[]
  /** The beginning of a downloaded file. */
  begins: RegExp
}

const databases: Record<string, Database> = {
  postgres: {
    type: 'POSTGRESQL',
    version: '16',
    image: 'postgres:16',
    client: (text) =>
      `PGPASSWORD=$POSTGRES_PASSWORD psql -h $(hostname -i) -U postgres -v ON_ERROR_STOP=1 -qtA <<'END'\n${text}\nEND`,
    fill: [
      'create table orders (id serial primary key, word text not null, at timestamptz default now());',
      `insert into orders (word) select 'word ' || i || E'\\n\\ttab \\\\ "' from generate_series(1, 5000) i;`,
      `create view last_orders as select * from orders order by id desc limit 10;`,
      `create function twice(n int) returns int language sql as $$ select n * 2 $$;`,
      `create role "app user" login password 'app-secret';`,
      'grant select on orders to "app user";',
      'create database "Other Shop";',
      '\\connect "Other Shop"',
      `create table things as select i as id, md5(i::text) as word from generate_series(1, 300) i;`,
    ],
    read: [
      'select md5(string_agg(o::text, chr(10) order by id)) || count(*) from orders o;',
      'select count(*), twice(max(id)) from last_orders;',
      `select has_table_privilege('app user', 'orders', 'select');`,
      '\\connect "Other Shop"',
      'select md5(string_agg(t::text, chr(10) order by id)) || count(*) from things t;',
    ],
    change: ['delete from orders where id > 100;', 'create table later (id int);', 'drop database "Other Shop";'],
    begins: /PostgreSQL database cluster dump/,
  },
}

databases.mysql = {
  type: 'MYSQL',
  version: '8',
  image: 'mysql:8',
  client: (text) =>
    `MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql -h $(hostname -i) -u root --skip-column-names main <<'END'\n${text}\nEND`,
  fill: [
    'create table orders (id int primary key auto_increment, word text, raw blob);',
    `insert into orders (word, raw) select concat('wörd ', seq, '\\n"'), unhex(md5(seq)) from seq_1_to_5000;`,
    'create view last_orders as select * from orders order by id desc limit 10;',
    'create function twice(n int) returns int deterministic return n * 2;',
    'create database `Other Shop`;',
    'create table `Other Shop`.things as select seq as id, md5(seq) as word from seq_1_to_300;',
  ],
  read: [
    'set group_concat_max_len = 10000000;',
    'select count(*), md5(group_concat(concat(id, word, hex(raw)) order by id)) from orders;',
    'select count(*), twice(max(id)) from last_orders;',
    'select count(*), md5(group_concat(concat(id, word) order by id)) from `Other Shop`.things;',
  ],
  change: ['delete from orders where id > 100;', 'create table later (id int);', 'drop database `Other Shop`;'],
  begins: /(MariaDB|MySQL) dump/,
}

databases.redis = {
  type: 'REDIS',
  version: '7',
  image: 'redis:7',
  client: (text) => `redis-cli <<'END'\n${text}\nEND`,
  fill: [
    ...Array.from({ length: 500 }, (_, index) => `set "key ${index}" "word ${index} \\n"`),
    'hset basket apples 3 pears 4',
    'zadd scores 1 one 2 two',
    'set passing soon ex 100000',
    'select 3',
    'rpush list a b c',
  ],
  read: [
    ...[0, 17, 499].map((index) => `get "key ${index}"`),
    ...['dbsize', 'hgetall basket', 'zrange scores 0 -1 withscores', 'select 3', 'lrange list 0 -1', 'dbsize'],
  ],
  change: ['del "key 17"', 'set later 1', 'select 3', 'flushdb'],
  begins: /^REDIS/,
}

let slipway: Slipway
let place: Place

before(async () => {
  for (const { image } of Object.values(databases)) await ensureDatabaseImage(image)
  slipway = await prepareSlipway()
  await slipway.start()
  place = await createPlace(slipway)
})

after(async () => {
  await slipway?.remove()
  await engine.close()
})

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const deployDatabase = async ({ type, version }: Database, name: string): Promise<string> => {
  const { environmentId } = place
  const body = { name, type, version, mode: 'CONTAINER' }
  const { id } = await send('POST', `/environment/${environmentId}/database`, body)
  await send('POST', `/database/${id}/deploy`)
  const state = await until(
    async () => {
      const { state } = await send('GET', `/database/${id}/status`)
      return state !== 'READY' && isSettled(state) ? state : null
    },
    { timeoutMs: 120_000, what: `${name} to be deployed` },
  )
  assert.equal(state, 'DEPLOYED', await deploymentLog(slipway, environmentId))
  return id
}

const run = async (databaseId: string, command: string): Promise<string> => {
  const [container] = await containersOf(databaseId)
  const body = { Cmd: ['sh', '-c', command], AttachStdout: true, AttachStderr: true, Tty: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${container!.Id}/exec`, { body })
  const output = await engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  return text.trim()
}

const tell = (id: string, { client }: Database, statements: string[]): Promise<string> =>
  run(id, client(statements.join('\n')))

const ended = (path: string, open: string[], what: string): Promise<Json> =>
  until(
    async () => {
      const record = await send('GET', path)
      return open.includes(record.state) ? null : record
    },
    { timeoutMs: 180_000, what },
  )

const backUp = async (id: string): Promise<Json> => {
  const { id: backupId } = await send('POST', `/database/${id}/backup`, { name: 'before', message: 'a test' })
  return ended(`/database/${id}/backup/${backupId}`, ['QUEUED', 'RUNNING', 'VERIFYING'], 'the backup')
}

const restore = async (id: string, backupId: string, confirm: boolean): Promise<Json> => {
  const { id: restoreId } = await send('POST', `/database/${id}/restore`, { backup_id: backupId, confirm })
  return ended(`/database/${id}/restore/${restoreId}`, ['QUEUED', 'RUNNING'], 'the restore')
}

const download = async (id: string, backupId: string): Promise<string> => {
  const url = `${slipway.url}/database/${id}/backup/${backupId}/download`
  const answer = await fetch(url, { headers: { authorization: `Token ${adminToken}` } })
  assert.equal(answer.status, 200)
  return answer.text()
}

const filesOf = (backupId: string): string[] =>
  globSync(`backups/**/${backupId}*`, { cwd: slipway.dataDir }).map((name) => join(slipway.dataDir, name))

for (const [name, database] of Object.entries(databases))
  test(`${name}: a backup is verified, listed, downloaded and deleted`, async () => {
    const id = await deployDatabase(database, name)
    assert.doesNotMatch(await tell(id, database, database.fill), /error/i)
    const backup = await backUp(id)
    assert.deepEqual([backup.state, backup.reason], ['VERIFIED', null])
    const { results } = await send('GET', `/database/${id}/backup`)
    assert.deepEqual(results, [backup])
    assert.match((await download(id, backup.id)).slice(0, 500), database.begins)
    const [file] = filesOf(backup.id)
    const bytes = readFileSync(file!)
    assert.equal(backup.stored_bytes, bytes.length)
    bytes[bytes.length >> 1]! ^= 1
    writeFileSync(file!, bytes)
    await assert.rejects(download(id, backup.id))
    await send('DELETE', `/database/${id}/backup/${backup.id}`)
    await until(async () => !existsSync(file!), { what: 'the removal of the file' })
    assert.deepEqual((await send('GET', `/database/${id}/backup`)).results, [])
  })

for (const [name, database] of Object.entries(databases))
  test(`${name}: all that a backup holds comes back, into a new database and in place, and the logins stay`, async () => {
    const id = await deployDatabase(database, `${name}-from`)
    await tell(id, database, database.fill)
    const content = await tell(id, database, database.read)
    assert.doesNotMatch(content, /error/i)
    const backup = await backUp(id)
    assert.equal(backup.state, 'VERIFIED', backup.reason)
    assert.ok(backup.row_count >= 500 && backup.table_count >= 2)

    const other = await deployDatabase(database, `${name}-into`)
    const credentials = await send('GET', `/database/${other}/masterCredentials`)
    assert.deepEqual((await restore(other, backup.id, false)).reason, null)
    assert.equal(await tell(other, database, database.read), content)
    assert.deepEqual(await send('GET', `/database/${other}/masterCredentials`), credentials)

    await tell(id, database, database.change)
    const changed = await tell(id, database, database.read)
    assert.notEqual(changed, content)
    assert.match((await restore(id, backup.id, false)).reason, /has tables already/)
    assert.equal(await tell(id, database, database.read), changed)
    assert.deepEqual((await restore(id, backup.id, true)).reason, null)
    assert.equal(await tell(id, database, database.read), content)
  })

const toolsOf = (serviceId: string): Promise<unknown[]> => {
  const label = [`slipway.service=${serviceId}`, 'slipway.index=0']
  return engine
    .call<{ Names: string[] }[]>('GET', '/containers/json', {
      query: { all: true, filters: JSON.stringify({ label }) },
    })
    .then((rows) => rows.filter(({ Names }) => Names.some((name) => name.includes('slipway-task-'))))
}

test('what cannot be loaded is not verified, and a restore of it leaves the database as it was', async () => {
  const database = databases.postgres!
  const id = await deployDatabase(database, 'odd')
  await tell(id, database, [
    `create function fits(n int) returns boolean language sql as 'select true';`,
    'create table odd (n int check (fits(n)));',
    'insert into odd values (1);',
    `create or replace function fits(n int) returns boolean language sql as 'select false';`,
  ])
  const backup = await backUp(id)
  assert.deepEqual([backup.state, /violates check constraint/.test(backup.reason)], ['UNVERIFIED', true])
  const { state, reason } = await restore(id, backup.id, true)
  assert.deepEqual([state, /violates check constraint/.test(reason)], ['FAILED', true])
  assert.equal(await tell(id, database, ['select n from odd;']), '1')
  assert.equal(await tell(id, database, ['select count(*) from pg_database where not datistemplate;']), '1')

  const [file] = filesOf(backup.id)
  const bytes = readFileSync(file!)
  bytes[bytes.length >> 1]! ^= 1
  writeFileSync(file!, bytes)
  assert.match((await restore(id, backup.id, true)).reason, /damaged/)
  assert.equal(await tell(id, database, ['select n from odd;']), '1')
})

test('a backup whose server is killed in the middle is made again, and leaves nothing else', async () => {
  const database = databases.postgres!
  const id = await deployDatabase(database, 'killed')
  await tell(id, database, [`create table big as select i, repeat(md5(i::text), 8) from generate_series(1, 200000) i;`])
  const { id: backupId } = await send('POST', `/database/${id}/backup`, {})
  const path = `/database/${id}/backup/${backupId}`
  await until(async () => (await toolsOf(id)).length > 0, { what: 'the dump to begin' })
  await slipway.kill('SIGKILL')
  await slipway.start()
  const backup = await ended(path, ['QUEUED', 'RUNNING', 'VERIFYING'], 'the backup')
  assert.deepEqual([backup.state, backup.reason, backup.row_count], ['VERIFIED', null, 200_000])
  assert.equal(filesOf(backupId).length, 1)
  assert.deepEqual(await toolsOf(id), [])
})
