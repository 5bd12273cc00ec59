/**
 * Slipway backs itself up while it works, is destroyed, and is restored elsewhere: the programs as an operator runs them,
 * on a server with simulated services.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext, test } from 'node:test'
import { generateIdentity, identityToRecipient } from 'age-encryption'
import { type ExecResult, exec } from '../src/lib/exec.ts'
import { createLog } from '../src/lib/log.ts'
import { readOwnTables } from '../src/store/copy/own-tables.ts'
import { connect } from '../src/store/database.ts'
import { startPostgres, stopPostgres } from '../src/store/postgres/postgres.ts'
import { startReceiver } from './support/peers/receiver.ts'
import { s3Keys, startS3Server } from './support/peers/s3-server.ts'
import { bundledServer, freePort, type Json, prepareSlipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const log = createLog('silent')
const isRoot = process.getuid?.() === 0
const passphrase = 'a passphrase of tests'
const server = await bundledServer()

const root = mkdtempSync(join(tmpdir(), 'slipway-own-'))
chmodSync(root, 0o755)
after(() => rmSync(root, { recursive: true, force: true }))
let folders = 0
const newFolder = (mode = 0o700): string => {
  folders += 1
  const folder = join(root, String(folders))
  mkdirSync(folder)
  chmodSync(folder, mode)
  return folder
}

interface Who {
  uid?: number
  gid?: number
}

const programOf = (name: string): string => new URL(`../src/programs/${name}.ts`, import.meta.url).pathname

const envOf = (dataDir: string, more: Record<string, string> = {}): Record<string, string> => ({
  PATH: process.env.PATH ?? '',
  HOME: '/nonexistent',
  SLIPWAY_DATA_DIR: dataDir,
  SLIPWAY_BACKUP_PASSPHRASE: passphrase,
  ...more,
})

const run = (name: string, args: string[], env: Record<string, string>, who: Who = {}): Promise<ExecResult> =>
  exec(process.execPath, [programOf(name), ...args], { env, timeoutMs: 120_000, ...who })

const runWell = async (name: string, args: string[], env: Record<string, string>, who: Who = {}): Promise<string> => {
  const { code, stdout, stderr } = await run(name, args, env, who)
  assert.equal(code, 0, stdout + stderr)
  return stdout
}

interface Running {
  url: string
  output(): string
  stop(): Promise<void>
}

/** A server with simulated services on this data directory, until the test ends. */
const start = async (
  t: TestContext,
  dataDir: string,
  who: Who = {},
  more: Record<string, string> = {},
): Promise<Running> => {
  const [port, routerPort] = [await freePort(), await freePort()]
  const env = envOf(dataDir, {
    ...{ SLIPWAY_PORT: String(port), SLIPWAY_ROUTER_PORT: String(routerPort), SLIPWAY_SAMPLE: 'off' },
    ...{ SLIPWAY_RATE_LIMIT: '0', SLIPWAY_OUTBOUND_ALLOW: 'loopback', SLIPWAY_ENGINE_IMAGES: '*', ...more },
  })
  const child: ChildProcess = spawn(process.execPath, [...server, '--fake'], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    ...who,
  })
  let printed = ''
  for (const stream of [child.stdout!, child.stderr!])
    stream.setEncoding('utf8').on('data', (text: string) => {
      printed = (printed + text).slice(-100_000)
    })
  const isOver = (): boolean => child.exitCode !== null || child.signalCode !== null
  const stop = async (): Promise<void> => {
    if (!isOver()) child.kill('SIGTERM')
    await until(isOver, { timeoutMs: 30_000, what: 'the server to end' })
    await run('stop', [], env, who)
  }
  t.after(stop)
  const url = `http://127.0.0.1:${port}`
  const isReady = async () => {
    if (isOver()) throw new Error(`the server ended:\n${printed}`)
    return (await fetch(`${url}/readyz`).catch(() => null))?.ok
  }
  await until(isReady, { timeoutMs: 90_000, what: 'the server to be ready' })
  return { url, output: () => printed, stop }
}

const send = async ({ url }: Running, token: string, method: string, path: string, body?: unknown): Promise<Json> => {
  const headers = { authorization: `Token ${token}`, 'content-type': 'application/json' }
  const answer = await fetch(url + path, {
    method,
    headers,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`)
  return text === '' ? null : JSON.parse(text)
}

const adminToken = (dataDir: string): string => readFileSync(join(dataDir, 'admin-token'), 'utf8').trim()

const settles = (running: Running, token: string, path: string): Promise<string> =>
  until(
    async () => {
      const { deployment_state: state } = await send(running, token, 'GET', `${path}/status`)
      return /^(DEPLOYED|.*_ERROR)$/.test(state) ? state : null
    },
    { timeoutMs: 60_000, what: `${path} to settle` },
  )

const receiver = await startReceiver()
after(() => receiver.close())

/** Something of every kind, deployed; a token of its own, and a webhook whose secret signs what it sends. */
const fill = async (running: Running, token: string) => {
  const organization = (await send(running, token, 'GET', '/organization')).results[0].id
  const base = `/organization/${organization}`
  const { token: made } = await send(running, token, 'POST', `${base}/apiToken`, { name: 'ci', scope: 'ADMIN' })
  const hook = { target_url: receiver.url, events: ['DEPLOYMENT_SUCCESSFUL'] }
  receiver.secret = (await send(running, token, 'POST', `${base}/webhook`, hook)).signing_secret
  const registry = { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} }
  const registryId = (await send(running, token, 'POST', `${base}/containerRegistry`, registry)).id
  const project = (await send(running, token, 'POST', `${base}/project`, { name: 'shop' })).id
  const place = (
    await send(running, token, 'POST', `/project/${project}/environment`, { name: 'live', mode: 'PRODUCTION' })
  ).id
  await send(running, token, 'POST', `/environment/${place}/secret`, { key: 'KEPT', value: 'an old secret' })
  const web = { name: 'web', registry_id: registryId, image_name: 'busybox', tag: '1', cpu: 100, memory: 64 }
  const { id } = await send(running, token, 'POST', `/environment/${place}/container`, {
    ...web,
    healthchecks: {},
    ports: [],
  })
  const orders = { name: 'orders', type: 'POSTGRESQL', version: '16', mode: 'CONTAINER' }
  const database = (await send(running, token, 'POST', `/environment/${place}/database`, orders)).id
  for (const path of [`/container/${id}`, `/database/${database}`]) {
    await send(running, token, 'POST', `${path}/deploy`, {})
    assert.equal(await settles(running, token, path), 'DEPLOYED')
  }
  return { token: made as string, base, path: `/container/${id}` }
}

/** Every row of every table of a data directory whose server is stopped. */
const rowsOf = async (dataDir: string): Promise<Record<string, string>> => {
  const { connectionString } = await startPostgres({ dataDir, log })
  const database = connect(connectionString, log, { max: 1 })
  const rows: Record<string, string> = {}
  for (const { name } of await readOwnTables(database)) {
    const found = await database.query<{ text: string }>(
      `select coalesce(string_agg(t::text, E'\\n' order by t::text), '') as text from "${name}" t where t::text not like '(restored,%'`,
    )
    rows[name] = found[0]!.text
  }
  await database.close()
  await stopPostgres({ dataDir, log })
  return rows
}

/** Writes projects, one after the other, until `end`. */
const writeOn = (running: Running, token: string, base: string) => {
  const writing = { isOver: false, count: 0 }
  const done = (async () => {
    while (!writing.isOver) {
      await send(running, token, 'POST', `${base}/project`, { name: `written ${writing.count}` })
      writing.count += 1
    }
  })()
  return {
    count: () => writing.count,
    async end() {
      writing.isOver = true
      await done
    },
  }
}

const backupsIn = (folder: string): string[] =>
  existsSync(folder) ? readdirSync(folder).filter((name) => !name.startsWith('.')) : []

test('a server that is backed up while it works is destroyed, and comes back elsewhere with all it had', async (t) => {
  const first = join(newFolder(), 'data')
  const to = newFolder()
  const running = await start(t, first)
  const made = await fill(running, adminToken(first))
  writeFileSync(join(first, 'slipway.env'), '# mine\nSLIPWAY_METRICS_TOKEN=a-token-for-metrics-1234567890\n', {
    mode: 0o600,
  })
  const writing = writeOn(running, made.token, made.base)
  await until(() => writing.count() > 3, { what: 'the first writes' })
  const before = writing.count()
  const [meanwhile] = (await runWell('backup', ['--to', to], envOf(first))).trim().split('\n')
  await writing.end()
  assert.ok(writing.count() > before, 'nothing was written during the backup')
  await runWell('restore', ['--from', join(to, meanwhile!), '--check'], envOf(first))
  await running.stop()

  // Stopped, so that the rows can be compared.
  const last = (await runWell('backup', ['--to', to], envOf(first))).trim()
  const rows = await rowsOf(first)
  assert.ok(Object.values(rows).filter((text) => text !== '').length > 15)
  await runWell('reset', ['--yes'], envOf(first))
  assert.ok(!existsSync(first))

  const second = join(newFolder(), 'elsewhere', 'data')
  const report = await runWell('restore', ['--from', join(to, last)], envOf(second))
  assert.match(report, /^By itself +1 service: .*: shop\/live\/web$/m)
  assert.match(report, /^Your turn +1 service with data .*: shop\/live\/orders$/m)
  assert.match(report, /^Next +npm start -- --fake;/m)
  assert.deepEqual(await rowsOf(second), rows)
  assert.match(readFileSync(join(second, 'slipway.env'), 'utf8'), /^# mine\nSLIPWAY_METRICS_TOKEN=/)
  const again = await run('restore', ['--from', join(to, last)], envOf(second))
  assert.equal(again.code, 1)
  assert.match(
    again.stderr,
    new RegExp(`^Nothing was restored: ${second} is not empty \\(it has .*\\): .*SLIPWAY_DATA_DIR`),
  )

  // Tokens, secrets, deployments and webhooks.
  const restored = await start(t, second)
  assert.equal((await send(restored, adminToken(second), 'GET', `${made.base}/project`)).results.length > before, true)
  const heard = receiver.deliveries.length
  await send(restored, made.token, 'POST', `${made.path}/redeploy`, {})
  await until(() => receiver.deliveries.length > heard, {
    timeoutMs: 60_000,
    what: 'the webhook of the restored server',
  })
  // Its secret was sealed.
  assert.deepEqual(receiver.refused, [])
  assert.equal(await settles(restored, made.token, made.path), 'DEPLOYED')
})

/** A backup of a small installation with many rows, made once. */
const someBackup = async (): Promise<{ file: string; dataDir: string; token: string }> => {
  const dataDir = join(newFolder(0o711), 'data')
  const slipway = await prepareSlipway({
    fake: true,
    server,
    env: { SLIPWAY_DATA_DIR: dataDir, SLIPWAY_ADMIN_TOKEN: '' },
  })
  await slipway.start()
  await slipway.kill('SIGTERM')
  const { connectionString } = await startPostgres({ dataDir, log })
  const database = connect(connectionString, log, { max: 1 })
  await database.query(
    `insert into event (id, organization_id, event_type, target_type, origin, triggered_by, change)
     select gen_random_uuid(), gen_random_uuid(), 'CREATE', 'PROJECT', 'API', 'x', to_jsonb(md5(n::text) || repeat(md5((-n)::text), 20))
     from generate_series(1, 60000) n`,
  )
  await database.close()
  await run('stop', [], envOf(dataDir))
  const to = newFolder(0o755)
  const name = (await runWell('backup', ['--to', to], envOf(dataDir))).trim()
  chmodSync(join(to, name), 0o644)
  return { file: join(to, name), dataDir, token: adminToken(dataDir) }
}
const some = await someBackup()

for (const [layout, mode, who] of [
  ['as root, in a folder that others reach', 0o755, {}],
  ['as root, in a folder that nobody else enters', 0o700, {}],
  ['as another user, in a folder that others reach', 0o755, { uid: 1, gid: 1 }],
  ['as another user, in a folder of that user', 0o700, { uid: 1, gid: 1 }],
] as const)
  test(`a backup is restored and starts ${layout}`, { skip: isRoot ? false : 'only root can be others' }, async (t) => {
    const above = newFolder(mode)
    if ('uid' in who) chownSync(above, who.uid, who.gid)
    const dataDir = join(above, 'data')
    await runWell('restore', ['--from', some.file], envOf(dataDir), who)
    const running = await start(t, dataDir, who)
    assert.equal((await send(running, some.token, 'GET', '/organization')).results.length, 1)
    await running.stop()
    await runWell('reset', ['--yes'], envOf(dataDir), who)
    assert.ok(!existsSync(dataDir))
  })

test('a data directory that was copied and given to root starts, and can be reset', {
  skip: isRoot ? false : 'only root can give files away',
}, async (t) => {
  const env = { PATH: process.env.PATH ?? '' }
  for (const isStarted of [true, false]) {
    const copy = join(newFolder(0o700), 'data')
    assert.equal((await exec('cp', ['-aL', some.dataDir, copy], { env })).code, 0)
    assert.equal((await exec('chown', ['-R', 'root:root', copy], { env })).code, 0)
    if (isStarted) {
      const running = await start(t, copy)
      assert.equal((await send(running, some.token, 'GET', '/organization')).results.length, 1)
      await running.stop()
    }
    const moved = isStarted ? realpathSync(join(copy, 'postgres')) : null
    await runWell('reset', ['--yes'], envOf(copy))
    assert.ok(!existsSync(copy))
    if (moved !== null) assert.ok(!existsSync(moved))
  }
})

/** Starts a program and kills it when the condition holds; false if it was over before. */
const killWhen = async (
  name: string,
  args: string[],
  env: Record<string, string>,
  when: () => boolean,
): Promise<boolean> => {
  const child = spawn(process.execPath, [programOf(name), ...args], { env, stdio: 'ignore' })
  await until(() => when() || child.exitCode !== null, { timeoutMs: 60_000, what: `the moment to kill ${name}` })
  child.kill('SIGKILL')
  await until(() => child.exitCode !== null || child.signalCode !== null, { what: 'its end' })
  return child.signalCode === 'SIGKILL'
}

const bytesIn = (folder: string): number =>
  readdirSync(folder).reduce(
    (sum, name) => sum + (statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0),
    0,
  )

test('a backup that is killed in the middle does not exist, and the next one does', async () => {
  const to = newFolder()
  assert.ok(await killWhen('backup', ['--to', to], envOf(some.dataDir), () => bytesIn(to) > 100_000))
  assert.deepEqual(backupsIn(to), [])
  const name = (await runWell('backup', ['--to', to], envOf(some.dataDir))).trim()
  assert.deepEqual(backupsIn(to), [name])
})

test('a restore that is killed in the middle starts no server, and is simply started again', async (t) => {
  const dataDir = join(newFolder(), 'data')
  const args = ['--from', some.file]
  const log = () => {
    try {
      return readFileSync(join(dataDir, 'postgres/postgres.log'), 'utf8')
    } catch {
      return ''
    }
  }
  assert.ok(await killWhen('restore', args, envOf(dataDir), () => log().includes('ready to accept connections')))
  const refused = await exec(process.execPath, [...server, '--fake'], { env: envOf(dataDir), timeoutMs: 30_000 })
  assert.match(
    refused.stderr,
    /^Slipway cannot start: a restore into .* was not finished: run the same npm run restore again\.\n$/,
  )
  await runWell('restore', args, envOf(dataDir))
  const running = await start(t, dataDir)
  assert.equal((await send(running, some.token, 'GET', '/organization')).results.length, 1)
})

test('a full disk ends a backup with that sentence, and nothing is there', {
  skip: isRoot ? false : 'only root can mount',
}, async (t) => {
  const to = newFolder()
  const env = { PATH: process.env.PATH ?? '' }
  const { code } = await exec('mount', ['-t', 'tmpfs', '-o', 'size=400k', 'tmpfs', to], { env })
  if (code !== 0) return t.skip('this machine mounts nothing')
  t.after(() => exec('umount', ['-l', to], { env }))
  const { stderr } = await run('backup', ['--to', to], envOf(some.dataDir))
  assert.match(stderr, /^No backup was made: The disk of the backup folder is full/)
  assert.deepEqual(readdirSync(to), [])
})

test('a wrong passphrase, a public key, and a bucket', async (t) => {
  const wrong = await run(
    'restore',
    ['--from', some.file, '--check'],
    envOf(some.dataDir, { SLIPWAY_BACKUP_PASSPHRASE: 'another passphrase' }),
  )
  assert.match(wrong.stderr, /^Nothing was restored: this passphrase does not open it/)
  const s3 = await startS3Server()
  t.after(() => s3.close())
  const access = {
    ...{ SLIPWAY_BACKUP_S3_ENDPOINT: s3.url, SLIPWAY_BACKUP_S3_ACCESS_KEY_ID: s3Keys.accessKeyId },
    ...{ SLIPWAY_BACKUP_S3_SECRET_ACCESS_KEY: s3Keys.secretAccessKey, SLIPWAY_BACKUP_PASSPHRASE: '' },
  }
  const identity = await generateIdentity()
  const file = join(newFolder(), 'identity')
  writeFileSync(file, `# a comment\n${identity}\n`)
  const recipient = await identityToRecipient(identity)
  const args = ['--to', 's3://bucket/of/slipway', `--recipient=${recipient}`]
  const name = (await runWell('backup', args, envOf(some.dataDir, access))).trim()
  const dataDir = join(newFolder(), 'data')
  const from = ['--from', `s3://bucket/of/slipway/${name}`]
  const without = await run('restore', from, envOf(dataDir, access))
  assert.match(without.stderr, /was made for a public key: name the file with its private key, --identity FILE/)
  await runWell('restore', [...from, '--identity', file], envOf(dataDir, access))
  assert.equal(adminToken(dataDir), some.token)
})

test('backups by schedule are made when they are due, are reported when they fail, and only so many are kept', async (t) => {
  const dataDir = join(newFolder(), 'data')
  await runWell('restore', ['--from', some.file], envOf(dataDir))
  const to = newFolder()
  const recipient = await identityToRecipient(await generateIdentity())
  const settings = { SLIPWAY_BACKUP_TO: to, SLIPWAY_BACKUP_RECIPIENT: recipient, SLIPWAY_BACKUP_KEEP: '1' }
  // Of another server, and by hand: neither is ever removed here.
  const others = ['slipway-20200101T000000Z-0123abcd.age', 'slipway-20200101T000000Z-by-hand.age']
  for (const name of others) writeFileSync(join(to, name), '')
  const running = await start(t, dataDir, {}, settings)
  const { connectionString } = await startPostgres({ dataDir, log })
  const database = connect(connectionString, log, { max: 1 })
  t.after(() => database.close())
  const own = () => backupsIn(to).filter((name) => !others.includes(name))
  /** Ends the server, and starts it when a backup should have been made. */
  const startLate = async (before: Running): Promise<Running> => {
    const known = () => database.query(`select 1 from installation where name = 'own_backup'`)
    await until(async () => (await known()).length > 0, { what: 'the schedule to be known' })
    await before.stop()
    await startPostgres({ dataDir, log })
    await database.query(
      `update installation set value = (value::jsonb || '{"due": "2020-01-01T00:00:00.000Z"}')::text where name = 'own_backup'`,
    )
    return start(t, dataDir, {}, settings)
  }
  const second = await startLate(running)
  await until(() => own().length === 1, { timeoutMs: 30_000, what: 'the first backup' })
  const [name] = own()
  const third = await startLate(second)
  await until(() => own().length === 1 && own()[0] !== name, {
    timeoutMs: 30_000,
    what: 'the second to replace the first',
  })
  assert.deepEqual(backupsIn(to).toSorted(), [...others, ...own()].toSorted())
  rmSync(to, { recursive: true })
  writeFileSync(to, 'no folder any more')
  const fourth = await startLate(third)
  const health = async (): Promise<Json> => (await fetch(`${fourth.url}/readyz`)).json()
  await until(async () => (await health()).backup === 'failed', { timeoutMs: 30_000, what: 'the failure in /readyz' })
  assert.match(await (await fetch(`${fourth.url}/metrics`)).text(), /^slipway_backup_failed 1$/m)
  assert.match(fourth.output(), /Slipway could not be backed up/)
})
