/**
 * The embedded PostgreSQL server: promises a server on a unix socket for a data directory, never two on one, and
 * listens on no TCP port. Refuses to know tables and pools. The server is a process of its own: when we die here it
 * keeps running, and the next start adopts it; what a killed server left behind is cleared by PostgreSQL's own
 * recovery. No data directory is ever deleted except by `removePostgres`.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { closeSync, existsSync, openSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { chown, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { exec } from '../lib/exec.ts'
import type { Log } from '../lib/log.ts'
import { findBinaries, postgresEnv } from './postgres-binaries.ts'
import { connectionStringOf, locate, type Place, socketName } from './postgres-place.ts'

export interface PostgresOptions {
  dataDir: string
  log: Log
  /** False trades crash safety for speed: for tests only. Default true. */
  durable?: boolean
}

export interface Postgres {
  connectionString: string
  /** True when a server of this data directory was already running. */
  adopted: boolean
  /** Ends the server: open transactions are rolled back, connections closed. */
  stop(): Promise<void>
}

const startTimeoutMs = 60_000
const stopTimeoutMs = 20_000
const pollMs = 10
const settings = {
  listen_addresses: '',
  unix_socket_permissions: '0700',
  max_connections: '200',
  shared_buffers: '64MB',
  max_wal_size: '256MB',
  min_wal_size: '32MB',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_parallel_workers_per_gather: '0',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
}
const careless = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }

/** `busy`: a server is there and starts or stops; `away`: none answers. */
const probe = async (place: Place): Promise<'ready' | 'busy' | 'away'> => {
  const client = new pg.Client({ connectionString: connectionStringOf(place), connectionTimeoutMillis: 5000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query('select current_setting($1) as folder', ['data_directory'])
    if (rows[0].folder !== place.data) throw new Error(`another database answers in ${place.socketDir}`)
    return 'ready'
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    if (message.startsWith('another database')) throw error
    if (code === '53300') return 'ready'
    return code === 'ENOENT' || code === 'ECONNREFUSED' ? 'away' : 'busy'
  } finally {
    await client.end().catch(() => {})
  }
}

const readPid = (file: string): number | undefined => {
  try {
    return Number.parseInt(readFileSync(file, 'utf8'), 10) || undefined
  } catch {
    return undefined
  }
}

const hasProc = existsSync('/proc/self/stat')

/** False for a process that is gone or a zombie. */
const isRunning = (pid: number): boolean => {
  if (!hasProc) return isAlive(pid)
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

/** Whether the process runs and is the server of `data`, not a stranger with a number that was used again. */
const isServer = (pid: number, data: string): boolean => {
  if (!hasProc || !isRunning(pid)) return isRunning(pid)
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').includes(data)
  } catch {
    return false
  }
}

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/**
 * PostgreSQL trusts any living process with the number in its lock file. Where that is a zombie or a stranger, the
 * number is replaced by an impossible one: the rest of the file stays, so that PostgreSQL still makes sure itself
 * that no child of the old server holds the shared memory.
 */
const clearStaleLocks = async ({ data, socketDir, user }: Place): Promise<void> => {
  const files = [join(data, 'postmaster.pid'), join(socketDir, `${socketName}.lock`)]
  for (const file of files) {
    const pid = readPid(file)
    if (pid === undefined || isServer(pid, data) || !isAlive(pid)) continue
    await writeFile(file, (await readFile(file, 'utf8')).replace(/^\d+/, '2147483647'))
    if (user.uid !== undefined) await chown(file, user.uid, user.gid!)
  }
}

/** Makes the data directory beside its place and moves it there, so that it is whole or absent. */
const initialise = async (bin: string, { data, user }: Place, durable: boolean): Promise<void> => {
  const half = `${data}.${randomBytes(4).toString('hex')}`
  const args = ['-D', half, '-U', 'slipway', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-instructions']
  const options = { env: postgresEnv, cwd: '/', ...user }
  const result = await exec(join(bin, 'initdb'), durable ? args : [...args, '--no-sync'], options)
  if (result.code !== 0) throw new Error(`initdb failed: ${(result.stderr || result.stdout).trim().slice(-1000)}`)
  await rename(half, data).catch(async (error: NodeJS.ErrnoException) => {
    await rm(half, { recursive: true, force: true })
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
  })
}

const longestLog = 5_000_000

const launch = async (bin: string, place: Place, durable: boolean): Promise<ChildProcess> => {
  const { data, socketDir, logFile, user } = place
  if ((statSync(logFile, { throwIfNoEntry: false })?.size ?? 0) > longestLog) await rename(logFile, `${logFile}.1`)
  const chosen = { ...settings, ...(durable ? {} : careless), unix_socket_directories: socketDir }
  const flags = Object.entries(chosen).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const logFd = openSync(logFile, 'a', 0o600)
  try {
    // A session of its own: Ctrl-C in our terminal is not for the database.
    const stdio: ['ignore', number, number] = ['ignore', logFd, logFd]
    const child = spawn(join(bin, 'postgres'), ['-D', data, ...flags], {
      stdio,
      env: postgresEnv,
      cwd: '/',
      detached: true,
      ...user,
    })
    child.on('error', () => {})
    child.unref()
    return child
  } finally {
    closeSync(logFd)
  }
}

const hasEnded = (child: ChildProcess): boolean =>
  child.pid === undefined || child.exitCode !== null || child.signalCode !== null

/** Held by one process at a time and let go by the kernel when that dies; where there is none, PostgreSQL's must do. */
const takeStartLock = (data: string): Promise<(() => void) | undefined> => {
  if (process.platform !== 'linux') return Promise.resolve(() => {})
  const server = createServer((socket) => socket.destroy())
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(undefined) : reject(error),
    )
    server.listen(`\0slipway-${createHash('sha256').update(data).digest('hex')}`, () => {
      server.unref()
      resolve(() => server.close())
    })
  })
}

const lastLines = (file: string): string =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').slice(-5).join('\n') : ''

/** Waits for an answer of the server, until the deadline or, when it is our child, its end. */
const awaitReady = async (place: Place, deadline: number, child?: ChildProcess): Promise<boolean> => {
  while (performance.now() < deadline) {
    const state = await probe(place)
    if (state === 'ready') return true
    if (child === undefined ? state === 'away' : hasEnded(child)) return false
    await pause(pollMs)
  }
  throw new Error(`PostgreSQL did not answer within ${startTimeoutMs / 1000} s; its log is ${place.logFile}`)
}

const launchOnce = async (place: Place, deadline: number, durable: boolean): Promise<boolean> => {
  const versionFile = join(place.data, 'PG_VERSION')
  const isNew = !existsSync(versionFile)
  const bin = await findBinaries(place.user, isNew ? undefined : Number(readFileSync(versionFile, 'utf8')))
  if (isNew) await initialise(bin, place, durable)
  await clearStaleLocks(place)
  return awaitReady(place, deadline, await launch(bin, place, durable))
}

/** A start fails for a moment while children of a killed server still end; more often than this it is no accident. */
const mostLaunches = 25

const bringUp = async (place: Place, durable: boolean): Promise<boolean> => {
  const deadline = performance.now() + startTimeoutMs
  for (let launches = 0; ; ) {
    if (await awaitReady(place, deadline)) return launches === 0
    const release = await takeStartLock(place.data)
    try {
      if (release !== undefined && (await probe(place)) === 'away') {
        if (await launchOnce(place, deadline, durable)) return false
        if (++launches >= mostLaunches) throw new Error(`PostgreSQL does not start:\n${lastLines(place.logFile)}`)
      }
    } finally {
      release?.()
    }
    await pause(pollMs * (1 + launches))
  }
}

const stopAt = async (place: Place, log: Log): Promise<void> => {
  const pid = readPid(join(place.data, 'postmaster.pid'))
  if (pid === undefined || !isServer(pid, place.data)) return
  process.kill(pid, 'SIGINT')
  const patience = performance.now() + stopTimeoutMs
  let hurried = false
  while (isRunning(pid)) {
    if (!hurried && performance.now() > patience) {
      hurried = true
      log.warn({ pid }, 'PostgreSQL takes long to end; it is ended at once and will recover at its next start')
      process.kill(pid, 'SIGQUIT')
    }
    await pause(pollMs)
  }
}

/** Starts the server of this data directory, or adopts the one that runs. Rejects with a sentence for the operator. */
export const startPostgres = async ({ dataDir, log, durable = true }: PostgresOptions): Promise<Postgres> => {
  const place = await locate(dataDir)
  const adopted = await bringUp(place, durable)
  log.debug({ socketDir: place.socketDir, adopted }, 'PostgreSQL answers')
  return { connectionString: connectionStringOf(place), adopted, stop: () => stopAt(place, log) }
}

/** Ends the server of this data directory if one runs; whoever started it. */
export const stopPostgres = async ({ dataDir, log }: { dataDir: string; log: Log }): Promise<void> => {
  if (existsSync(join(dataDir, 'postgres'))) await stopAt(await locate(dataDir), log)
}

/** Ends the server and deletes its data for good, also where they are kept outside the data directory. */
export const removePostgres = async ({ dataDir, log }: { dataDir: string; log: Log }): Promise<void> => {
  const home = join(dataDir, 'postgres')
  if (!existsSync(home)) return
  const place = await locate(dataDir)
  await stopAt(place, log)
  const folder = realpathSync(home)
  // Its last processes may still put files away.
  for (const path of [place.socketDir, folder, home])
    await rm(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 })
}
