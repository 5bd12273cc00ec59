/** The stand-ins for database images keep the contract of the usual ones, on which deployments of databases rely. */
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, test } from 'node:test'
import { type DatabaseImage, ensureDatabaseImage } from './support/docker/database-image.ts'
import { engine, removeContainer } from './support/docker/docker.ts'
import { until } from './support/until.ts'

interface Database {
  name: DatabaseImage
  volume: string
  env: string[]
  command: string[]
  probe: string[]
  /** A client inside the container that signs in over the network and runs one statement. */
  client(password: string, statement: string): string[]
  write: string
  read: string
  /** The server's message about a wrong password. */
  refusal: RegExp
}

const password = `it's "a" \\t $HOME; password`
const run = randomUUID()
const Labels = { 'slipway.test.run': run }

/** A program that gets the container's own address in its variable `address`. */
const atOwnAddress = (script: string, ...args: string[]): string[] => [
  'sh',
  '-c',
  `address=$(hostname -i); ${script}`,
  'sh',
  ...args,
]

const databases: Database[] = [
  {
    name: 'postgres:16',
    volume: '/var/lib/postgresql/data',
    env: ['POSTGRES_USER=the user', `POSTGRES_PASSWORD=${password}`, 'POSTGRES_DB=the-database'],
    command: [],
    probe: ['pg_isready', '-U', 'the user', '-d', 'the-database'],
    client: (secret, statement) =>
      atOwnAddress(
        'PGPASSWORD=$1 psql -h "$address" -U "the user" -d the-database -v ON_ERROR_STOP=1 -tAc "$2"',
        secret,
        statement,
      ),
    write: "create table kept as select 'kept ' || current_database() as text",
    read: 'select text from kept',
    refusal: /password authentication failed/,
  },
  {
    name: 'mysql:8',
    volume: '/var/lib/mysql',
    env: [
      `MYSQL_ROOT_PASSWORD=${password}`,
      'MYSQL_DATABASE=the-database',
      'MYSQL_USER=the user',
      `MYSQL_PASSWORD=${password}`,
    ],
    command: [],
    probe: ['mysqladmin', 'ping', '-h', '127.0.0.1'],
    client: (secret, statement) =>
      atOwnAddress(
        'mysql -h "$address" -u "the user" "-p$1" --skip-column-names the-database -e "$2"',
        secret,
        statement,
      ),
    write: "create table kept as select concat('kept ', database()) as text",
    read: 'select text from kept',
    refusal: /Access denied/,
  },
  {
    name: 'redis:7',
    volume: '/data',
    env: [],
    command: ['--requirepass', password, '--appendonly', 'yes'],
    probe: ['redis-cli', '-a', password, '--no-auth-warning', 'ping'],
    client: (secret, statement) =>
      atOwnAddress('redis-cli -h "$address" -a "$1" --no-auth-warning -e $2', secret, statement),
    write: 'set key kept-the-database',
    read: 'get key',
    refusal: /WRONGPASS|NOAUTH/,
  },
]

const create = async ({ name, volume, env, command }: Database, source: string): Promise<string> => {
  const Mounts = [{ Type: 'volume', Source: source, Target: volume, VolumeOptions: { Labels } }]
  const HostConfig = { Mounts, SecurityOpt: ['no-new-privileges'] }
  const Cmd = command.length > 0 ? command : undefined
  const body = { Image: name, Env: env, Cmd, Labels, HostConfig }
  return (await engine.call<{ Id: string }>('POST', '/containers/create', { body })).Id
}

const start = async (database: Database, source: string): Promise<string> => {
  const id = await create(database, source)
  await engine.call('POST', `/containers/${id}/start`)
  await until(async () => (await execute(id, database.probe)).code === 0, {
    timeoutMs: 60_000,
    what: `${database.name} to be ready`,
  })
  return id
}

/** Runs a program inside; a terminal, so that its output comes as plain text. */
const execute = async (id: string, argv: string[]): Promise<{ code: number; text: string }> => {
  const body = { Cmd: argv, AttachStdout: true, AttachStderr: true, Tty: true }
  const { Id } = await engine.call<{ Id: string }>('POST', `/containers/${id}/exec`, { body })
  const output = await engine.stream('POST', `/exec/${Id}/start`, { body: { Detach: false, Tty: true } })
  let text = ''
  for await (const chunk of output.setEncoding('utf8')) text += chunk
  const { ExitCode } = await engine.call<{ ExitCode: number }>('GET', `/exec/${Id}/json`)
  return { code: ExitCode, text: text.trim() }
}

const succeed = async (id: string, argv: string[]): Promise<string> => {
  const { code, text } = await execute(id, argv)
  assert.equal(code, 0, text)
  return text
}

/** Ends it the way the engine's `kill` does, and returns its exit code and how long it took. */
const end = async (id: string, signal: string): Promise<{ code: number; ms: number }> => {
  const began = performance.now()
  await engine.call('POST', `/containers/${id}/kill`, { query: { signal } })
  const { StatusCode } = await engine.call<{ StatusCode: number }>('POST', `/containers/${id}/wait`)
  return { code: StatusCode, ms: performance.now() - began }
}

after(async () => {
  const query = { all: true, filters: JSON.stringify({ label: [`slipway.test.run=${run}`] }) }
  for (const { Id } of await engine.call<{ Id: string }[]>('GET', '/containers/json', { query }))
    await removeContainer(Id)
  const { Volumes } = await engine.call<{ Volumes: { Name: string }[] | null }>('GET', '/volumes', { query })
  for (const { Name } of Volumes ?? []) await engine.call('DELETE', `/volumes/${Name}`)
  await engine.close()
})

for (const database of databases) {
  const { name, client } = database

  test(`${name} keeps the data in its volume when its container is replaced, and ends cleanly on SIGTERM`, async () => {
    await ensureDatabaseImage(name)
    const volume = `slipway-test-${run}-${name.split(':')[0]}`
    const first = await start(database, volume)
    await succeed(first, client(password, database.write))
    assert.match((await execute(first, client('wrong', database.read))).text, database.refusal)
    const { code, ms } = await end(first, 'SIGTERM')
    assert.equal(code, 0)
    assert.ok(ms < 5000, `it took ${ms} ms`)
    await removeContainer(first)

    const second = await start(database, volume)
    assert.match(await succeed(second, client(password, database.read)), /kept.the-database/)
    await removeContainer(second)
  })
}

test('the server runs as a user without privileges', async () => {
  for (const database of databases) {
    await ensureDatabaseImage(database.name)
    const id = await start(database, `slipway-test-${run}-user-${database.name.split(':')[0]}`)
    assert.equal(await succeed(id, ['stat', '-c', '%u', '/proc/1']), '999', database.name)
    await removeContainer(id)
  }
})

test('without the password that it needs, a database refuses to start and says which variable is missing', async () => {
  for (const [name, variable] of [
    ['postgres:16', 'POSTGRES_PASSWORD'],
    ['mysql:8', 'MYSQL_ROOT_PASSWORD'],
  ] as const) {
    await ensureDatabaseImage(name)
    const database = databases.find((each) => each.name === name)!
    const id = await create({ ...database, env: [] }, `slipway-test-${run}-empty-${name.split(':')[0]}`)
    await engine.call('POST', `/containers/${id}/start`)
    const { StatusCode } = await engine.call<{ StatusCode: number }>('POST', `/containers/${id}/wait`)
    assert.equal(StatusCode, 1)
    const logs = await engine.stream('GET', `/containers/${id}/logs`, { query: { stdout: true, stderr: true } })
    let text = ''
    for await (const chunk of logs.setEncoding('utf8')) text += chunk
    assert.ok(text.includes(variable), text)
  }
})

test('concurrent calls end with the existing image', async () => {
  const idOf = async () => (await engine.call<{ Id: string }>('GET', '/images/redis:7/json')).Id
  await ensureDatabaseImage('redis:7')
  const before = await idOf()
  await Promise.all([ensureDatabaseImage('redis:7'), ensureDatabaseImage('redis:7')])
  assert.equal(await idOf(), before)
})
