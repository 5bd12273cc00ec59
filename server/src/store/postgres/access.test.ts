import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import pg from 'pg'
import { until } from '../../../test/support/until.ts'
import { exec } from '../../lib/exec.ts'
import { createLog } from '../../lib/log.ts'
import { findBinaries, formerUid, postgresEnv } from './binaries.ts'
import { passwordFile } from './password.ts'
import { removePostgres, startPostgres, stopPostgres } from './postgres.ts'

const log = createLog('silent')
const isRoot = process.getuid?.() === 0
const skip = !isRoot || process.platform !== 'linux'
const nobody = { uid: formerUid(), gid: 65534 }

const folderFor = (t: TestContext): string => {
  const dataDir = mkdtempSync(join(tmpdir(), 'slipway-pg-'))
  t.after(async () => {
    await removePostgres({ dataDir, log })
    rmSync(dataDir, { recursive: true, force: true })
  })
  return dataDir
}

const query = async (connectionString: string, text: string): Promise<Record<string, unknown>[]> => {
  const client = new pg.Client({ connectionString })
  client.on('error', () => {})
  try {
    await client.connect()
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const withoutPassword = (connectionString: string, password = ''): string => {
  const url = new URL(connectionString)
  url.password = password
  return url.href
}

const codeOf = async (connectionString: string): Promise<string> => {
  try {
    await query(connectionString, 'select 1')
    return 'in'
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    return code ?? message
  }
}

/** What happens when a process of another user of the machine connects to that address. */
const asAnother = async (uid: number, connectionString: string): Promise<string> => {
  const program = `const { default: pg } = await import(process.env.PG)
    const client = new pg.Client({ connectionString: process.env.URL })
    client.on('error', () => {})
    try { await client.connect(); console.log('in') } catch (error) { console.log(error.code ?? error.message) }
    await client.end().catch(() => {})`
  const env = { ...postgresEnv, URL: connectionString, PG: import.meta.resolve('pg') }
  const args = ['--input-type=module', '-e', program]
  const { stdout, stderr } = await exec('/proc/self/exe', args, {
    env,
    cwd: '/',
    uid,
    gid: uid,
    timeoutMs: 20_000,
  }).catch((error: Error) => ({ stdout: '', stderr: error.message }))
  return stdout.trim() || `no client: ${stderr.slice(0, 200)}`
}

test('only the password in the data directory opens the database, and only we can read it', async (t) => {
  const dataDir = folderFor(t)
  const { connectionString } = await startPostgres({ dataDir, log })
  assert.equal(await codeOf(connectionString), 'in')
  assert.equal(await codeOf(withoutPassword(connectionString, 'guessed')), '28P01')
  assert.match(await codeOf(withoutPassword(connectionString)), /password must be a string|28P01/)
  const file = statSync(passwordFile(dataDir))
  assert.deepEqual([file.mode & 0o777, file.uid], [0o600, process.getuid?.()])
  const password = readFileSync(passwordFile(dataDir), 'utf8').trim()
  assert.equal(new URL(connectionString).password, password)
  const folder = realpathSync(join(dataDir, 'postgres'))
  for (const name of ['initial-password', ...readdirSync(folder).filter((each) => each.startsWith('data.'))])
    assert.ok(!existsSync(join(folder, name)), name)
  assert.ok(!readFileSync(join(folder, 'postgres.log'), 'utf8').includes(password))
})

test('a process of the former user, or of the database itself, gets no access', { skip }, async (t) => {
  const dataDir = folderFor(t)
  const { connectionString } = await startPostgres({ dataDir, log })
  const { uid } = statSync(join(realpathSync(join(dataDir, 'postgres')), 'data'))
  assert.notEqual(uid, nobody.uid)
  const socketDir = new URL(connectionString).searchParams.get('host')!
  const outcome = await asAnother(nobody.uid, withoutPassword(connectionString, 'any'))
  assert.ok(outcome === 'EACCES' || outcome.startsWith('no client'), outcome)
  // A folder that every user can enter still requires the password.
  for (const folder of [dataDir, realpathSync(join(dataDir, 'postgres')), socketDir]) chmodSync(folder, 0o755)
  const socket = join(socketDir, '.s.PGSQL.5432')
  chmodSync(socket, 0o777)
  assert.equal(await codeOf(withoutPassword(connectionString, 'any')), '28P01')
  chmodSync(socketDir, 0o700)
})

test('a password file that is lost is made again, and the data stay', async (t) => {
  const dataDir = folderFor(t)
  const first = await startPostgres({ dataDir, log })
  await query(first.connectionString, 'create table kept as select 7 as n')
  rmSync(passwordFile(dataDir))
  const second = await startPostgres({ dataDir, log })
  assert.notEqual(second.connectionString, first.connectionString)
  assert.deepEqual(await query(second.connectionString, 'select n from kept'), [{ n: 7 }])
  assert.equal(await codeOf(first.connectionString), '28P01')
})

/** As left by an earlier version: a running server of the user `nobody` that trusts every connection. */
const makeFormer = async (dataDir: string): Promise<{ url: string; data: string }> => {
  const folder = join(dataDir, 'postgres')
  const [data, run] = [join(folder, 'data'), join(folder, 'run')]
  chmodSync(dataDir, 0o710)
  chownSync(dataDir, 0, nobody.gid)
  for (const each of [folder, run]) {
    mkdirSync(each, { mode: 0o700 })
    chownSync(each, nobody.uid, nobody.gid)
  }
  const bin = await findBinaries(nobody, undefined)
  const options = { env: postgresEnv, cwd: '/', ...nobody }
  const made = await exec(join(bin, 'initdb'), ['-D', data, '-U', 'slipway', '-A', 'trust', '--no-sync'], options)
  assert.equal(made.code, 0, made.stderr)
  const flags = ['-D', data, '-c', 'listen_addresses=', '-c', `unix_socket_directories=${run}`]
  spawn(join(bin, 'postgres'), flags, { ...options, stdio: 'ignore', detached: true }).unref()
  const url = `postgresql://slipway@localhost/postgres?host=${encodeURIComponent(run)}`
  await until(async () => (await codeOf(url)) === 'in', { what: 'the former server', timeoutMs: 20_000 })
  await query(url, 'create table kept as select 7 as n')
  return { url, data }
}

const ownersIn = (folder: string): Set<number> =>
  new Set(readdirSync(folder, { recursive: true }).map((name) => lstatSync(join(folder, String(name))).uid))

test('a server of the former user that trusted all connections is moved over with its data, however often that is interrupted', {
  skip,
}, async (t) => {
  const dataDir = folderFor(t)
  const { url, data } = await makeFormer(dataDir)
  assert.equal(await codeOf(url), 'in')
  const outside = join(dataDir, 'of-root')
  writeFileSync(outside, 'kept')
  symlinkSync(outside, join(data, 'planted'))
  lchownSync(join(data, 'planted'), nobody.uid, nobody.gid)

  const check = async (): Promise<void> => {
    const { connectionString, adopted } = await startPostgres({ dataDir, log })
    assert.equal(adopted, false)
    assert.deepEqual(await query(connectionString, 'select n from kept'), [{ n: 7 }])
    assert.equal(await codeOf(withoutPassword(connectionString, 'any')), '28P01')
    assert.ok(!ownersIn(data).has(nobody.uid), 'something is still nobody’s')
    assert.equal((await startPostgres({ dataDir, log })).adopted, true)
  }
  await check()
  assert.equal(statSync(outside).uid, 0)
  assert.match(readFileSync(join(data, 'pg_hba.conf'), 'utf8'), /^local all all scram-sha-256$/m)

  const trust = 'local all all trust\n'
  process.kill(Number.parseInt(readFileSync(join(data, 'postmaster.pid'), 'utf8'), 10), 'SIGKILL')
  writeFileSync(join(data, 'pg_hba.conf'), trust)
  await check()
  const steps: [string, () => void][] = [
    ['before the first file', () => chownSync(join(data, 'base'), nobody.uid, nobody.gid)],
    ['before the password', () => rmSync(passwordFile(dataDir))],
    ['before the rules', () => {}],
  ]
  for (const [what, undo] of steps) {
    await stopPostgres({ dataDir, log })
    writeFileSync(join(data, 'pg_hba.conf'), trust)
    undo()
    await check().catch((error: Error) => {
      throw new Error(`interrupted ${what}: ${error.message}`)
    })
  }
})
