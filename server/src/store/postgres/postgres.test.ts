import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs'
import { readdir, readFile, readlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import test, { type TestContext } from 'node:test'
import pg from 'pg'
import { until } from '../../../test/support/until.ts'
import { createLog } from '../../lib/log.ts'
import { removePostgres, startPostgres, stopPostgres } from './postgres.ts'

const log = createLog('silent')
const isRoot = process.getuid?.() === 0
const isLinux = process.platform === 'linux'

/** A data directory whose server and files are gone when the test ends. */
const folderFor = (t: TestContext, ...below: string[]): string => {
  const top = mkdtempSync(join(tmpdir(), 'slipway-pg-'))
  chmodSync(top, 0o755)
  const dataDir = join(top, ...below)
  mkdirSync(dataDir, { recursive: true })
  t.after(async () => {
    await removePostgres({ dataDir, log })
    rmSync(top, { recursive: true, force: true })
  })
  return dataDir
}

const query = async (connectionString: string, text: string): Promise<Record<string, string>[]> => {
  const client = new pg.Client({ connectionString })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const dataOf = (dataDir: string): string => join(realpathSync(join(dataDir, 'postgres')), 'data')
const pidFile = (dataDir: string): string => join(dataOf(dataDir), 'postmaster.pid')
const serverPid = (dataDir: string): number => Number.parseInt(readFileSync(pidFile(dataDir), 'utf8'), 10)

const isRunning = (pid: number): boolean => {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

const killServer = async (dataDir: string): Promise<void> => {
  const pid = serverPid(dataDir)
  process.kill(pid, 'SIGKILL')
  await until(() => !isRunning(pid), { what: 'the killed server to be gone' })
}

/** Processes that serve exactly this data directory. */
const serversOf = async (dataDir: string): Promise<number[]> => {
  const data = dataOf(dataDir)
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  return pids.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(data)
    } catch {
      return false
    }
  })
}

const starter = `
  const [,, dataDir, modules] = process.argv
  const { startPostgres } = await import(modules + 'store/postgres/postgres.ts')
  const { createLog } = await import(modules + 'lib/log.ts')
  const { adopted } = await startPostgres({ dataDir, log: createLog('silent') })
  console.log(adopted ? 'adopted' : 'started')
  setInterval(() => {}, 1000)
`

/** Starts the server in a separate process; `said` is the result. */
const startElsewhere = async (dataDir: string) => {
  const modules = new URL('../../', import.meta.url).href
  const args = ['--input-type=module', '-e', starter, 'starter', dataDir, modules]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const [said] = await once(child.stdout.setEncoding('utf8'), 'data')
  return { child, said: String(said).trim() }
}

const killStarter = async (child: ReturnType<typeof spawn>): Promise<void> => {
  child.kill('SIGKILL')
  await once(child, 'exit')
}

test('a start gives a UTF-8 database that keeps its data, and the next start adopts it', async (t) => {
  const dataDir = folderFor(t)
  const first = await startPostgres({ dataDir, log })
  assert.equal(first.adopted, false)
  const [row] = await query(
    first.connectionString,
    `select current_setting('server_encoding') as encoding, current_setting('fsync') as fsync,
       current_setting('timezone') as zone, (select datcollate from pg_database where datname = 'postgres') as locale`,
  )
  assert.deepEqual(row, { encoding: 'UTF8', fsync: 'on', zone: 'UTC', locale: 'C' })
  const pid = serverPid(dataDir)
  const second = await startPostgres({ dataDir, log })
  assert.equal(second.adopted, true)
  assert.equal(second.connectionString, first.connectionString)
  assert.equal(serverPid(dataDir), pid)
})

test('stop ends a server that another process started, and a later start serves the same data', async (t) => {
  const dataDir = folderFor(t)
  const first = await startPostgres({ dataDir, log })
  await query(first.connectionString, 'create table kept as select 7 as n')
  const pid = serverPid(dataDir)
  await stopPostgres({ dataDir, log })
  assert.equal(isRunning(pid), false)
  await stopPostgres({ dataDir, log })
  const second = await startPostgres({ dataDir, log })
  assert.equal(second.adopted, false)
  assert.deepEqual(await query(second.connectionString, 'select n from kept'), [{ n: 7 }])
})

test('the server outlives a killed starter and is adopted', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  const { child, said } = await startElsewhere(dataDir)
  assert.equal(said, 'started')
  const pid = serverPid(dataDir)
  await killStarter(child)
  const { adopted } = await startPostgres({ dataDir, log })
  assert.equal(adopted, true)
  assert.equal(serverPid(dataDir), pid)
})

test('starters that come at once end with one server, which one of them started', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  const all = await Promise.all([1, 2, 3, 4].map(() => startElsewhere(dataDir)))
  t.after(() => Promise.all(all.map(({ child }) => killStarter(child))))
  assert.deepEqual(all.map(({ said }) => said).sort(), ['adopted', 'adopted', 'adopted', 'started'])
  assert.equal((await serversOf(dataDir)).length, 1)
  const left = await readdir(realpathSync(join(dataDir, 'postgres')))
  assert.deepEqual(
    left.filter((name) => name.startsWith('data.')),
    [],
  )
})

test('what was committed survives a killed server', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  const { connectionString } = await startPostgres({ dataDir, log })
  await query(connectionString, 'create table kept (n int)')
  for (let n = 0; n < 20; n++) await query(connectionString, `insert into kept values (${n})`)
  await killServer(dataDir)
  const again = await startPostgres({ dataDir, log })
  assert.equal(again.adopted, false)
  assert.deepEqual(await query(again.connectionString, 'select count(*)::int as n from kept'), [{ n: 20 }])
})

const rewritePid = async (dataDir: string, pid: number): Promise<void> => {
  const text = await readFile(pidFile(dataDir), 'utf8')
  await writeFile(pidFile(dataDir), text.replace(/^\d+/, String(pid)))
}

test('a lock file that names a stranger does not hinder the start', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  await startPostgres({ dataDir, log })
  await killServer(dataDir)
  const stranger = spawn('sleep', ['60'], { stdio: 'ignore', ...(isRoot ? { uid: 65534, gid: 65534 } : {}) })
  t.after(() => stranger.kill('SIGKILL'))
  await rewritePid(dataDir, stranger.pid!)
  const { adopted } = await startPostgres({ dataDir, log })
  assert.equal(adopted, false)
  assert.notEqual(serverPid(dataDir), stranger.pid)
  assert.equal(stranger.exitCode, null)
})

/** A dead process that is never reaped: its parent became a program that does not wait for children. */
const makeZombie = async (t: TestContext): Promise<number> => {
  const args = ['-c', 'sleep 0.2 & exec sleep 60']
  const parent = spawn('bash', args, { stdio: 'ignore', ...(isRoot ? { uid: 65534, gid: 65534 } : {}) })
  t.after(() => parent.kill('SIGKILL'))
  return until(
    async () => {
      const children = await readFile(`/proc/${parent.pid}/task/${parent.pid}/children`, 'utf8')
      const pid = Number(children.trim())
      return pid > 0 && /\) Z /.test(await readFile(`/proc/${pid}/stat`, 'utf8')) ? pid : undefined
    },
    { what: 'a zombie' },
  )
}

test('a lock file that names a zombie does not hinder the start or the stop', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  await startPostgres({ dataDir, log })
  await killServer(dataDir)
  await rewritePid(dataDir, await makeZombie(t))
  await stopPostgres({ dataDir, log })
  const { adopted } = await startPostgres({ dataDir, log })
  assert.equal(adopted, false)
})

test('the server listens on no TCP port', { skip: !isLinux }, async (t) => {
  const dataDir = folderFor(t)
  const { connectionString } = await startPostgres({ dataDir, log })
  const fds = await readdir(`/proc/${serverPid(dataDir)}/fd`)
  const targets = await Promise.all(fds.map((fd) => readlink(`/proc/${serverPid(dataDir)}/fd/${fd}`).catch(() => '')))
  const sockets = targets
    .map((target) => target.match(/^socket:\[(\d+)\]$/)?.[1])
    .filter((inode) => inode !== undefined)
  assert.ok(sockets.length > 0, 'its unix socket is seen')
  const tables = ['tcp', 'tcp6'].map((name) => `/proc/net/${name}`).filter((path) => existsSync(path))
  const inodes = tables.flatMap((path) =>
    readFileSync(path, 'utf8')
      .trim()
      .split('\n')
      .map((line) => line.trim().split(/\s+/)[9]),
  )
  assert.deepEqual(
    sockets.filter((inode) => inodes.includes(inode)),
    [],
  )
  const [row] = await query(connectionString, `select current_setting('listen_addresses') as addresses`)
  assert.equal(row!.addresses, '')
})

test('a data directory with a path too long for a socket works', async (t) => {
  const dataDir = folderFor(t, 'long-'.repeat(20), 'longer-'.repeat(20))
  const { connectionString } = await startPostgres({ dataDir, log })
  assert.deepEqual(await query(connectionString, 'select 1 as n'), [{ n: 1 }])
  const socketDir = new URL(connectionString).searchParams.get('host')!
  assert.ok(socketDir.startsWith('/tmp/slipway-') && socketDir.length < 90)
  assert.equal(statSync(socketDir).mode & 0o777, 0o700)
  await removePostgres({ dataDir, log })
  assert.equal(existsSync(socketDir), false)
})

test('root runs it as another user, also below a folder that only root can enter', { skip: !isRoot }, async (t) => {
  const dataDir = folderFor(t, 'home', 'data')
  chmodSync(join(dataDir, '..'), 0o700)
  const { connectionString } = await startPostgres({ dataDir, log })
  const folder = realpathSync(join(dataDir, 'postgres'))
  const { uid, mode } = statSync(join(folder, 'data'))
  assert.notEqual(uid, 0)
  assert.equal(mode & 0o077, 0)
  assert.equal(statSync(`/proc/${serverPid(dataDir)}`).uid, uid)
  assert.equal(statSync(new URL(connectionString).searchParams.get('host')!).mode & 0o077, 0)
  await removePostgres({ dataDir, log })
  assert.equal(existsSync(folder), false)
  assert.equal(existsSync(join(dataDir, 'postgres')), false)
})

test('data of a version that no server here can read are refused by a sentence and left alone', async (t) => {
  const dataDir = folderFor(t)
  const { stop } = await startPostgres({ dataDir, log })
  await stop()
  const version = join(dataOf(dataDir), 'PG_VERSION')
  await writeFile(version, '9\n')
  await assert.rejects(startPostgres({ dataDir, log }), /belongs to PostgreSQL 9, which is not installed/)
  assert.equal(existsSync(join(dataOf(dataDir), 'base')), true)
})

test('a socket folder that another user made is refused', { skip: !isRoot }, async (t) => {
  const dataDir = folderFor(t, 'long-'.repeat(20), 'longer-'.repeat(20))
  const { connectionString, stop } = await startPostgres({ dataDir, log })
  await stop()
  const socketDir = new URL(connectionString).searchParams.get('host')!
  chmodSync(socketDir, 0o777)
  await assert.rejects(startPostgres({ dataDir, log }), /belongs to another user/)
  chmodSync(socketDir, 0o700)
})
