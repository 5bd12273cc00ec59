/**
 * The embedded PostgreSQL server: promises exactly one server on a unix socket for a data directory, which requires a
 * password and listens on no TCP port. Knows no tables or pools. The server is a separate process: if we die it keeps
 * running, and the next start adopts it; PostgreSQL's own recovery cleans up after a killed server. No data directory
 * is ever deleted except by `removePostgres`.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, constants, existsSync, lstatSync, openSync, readFileSync, realpathSync } from 'node:fs'
import { rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { exec } from '../../lib/exec.ts'
import type { Log } from '../../lib/log.ts'
import { close, isOpen, writeRules } from './access.ts'
import { findBinaries, postgresEnv } from './binaries.ts'
import { passwordFile } from './password.ts'
import { connectionStringOf, locate, type PostgresPlace, replaceFile } from './place.ts'
import { clearStaleLocks, stopAt } from './process.ts'
import { takeStartLock } from './start-lock.ts'

interface PostgresOptions {
  dataDir: string
  log: Log
  /** False trades crash safety for speed: for tests only. Default true. */
  durable?: boolean
}

interface Postgres {
  connectionString: string
  /** True when a server of this data directory was already running. */
  adopted: boolean
  /** Stops the server: open transactions are rolled back, connections closed. */
  stop(): Promise<void>
}

const startTimeoutMs = 60_000
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
/** For a server that many tests share, each with databases and pools of its own. */
const throwAway = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off', max_connections: '500' }

const wrongPassword = '28P01'

/** `busy`: a server is starting or stopping; `away`: none answers; `locked`: it has a different password. */
const probe = async (place: PostgresPlace): Promise<'ready' | 'busy' | 'away' | 'locked'> => {
  const client = new pg.Client({ connectionString: connectionStringOf(place), connectionTimeoutMillis: 5000 })
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query('select current_setting($1) as folder', ['data_directory'])
    if (rows[0].folder !== place.data) throw new Error(`another database is running in ${place.socketDir}`)
    return 'ready'
  } catch (error) {
    const { code, message } = error as { code?: string; message: string }
    if (message.startsWith('another database')) throw error
    if (code === '53300') return 'ready'
    if (code === wrongPassword) return 'locked'
    return code === 'ENOENT' || code === 'ECONNREFUSED' ? 'away' : 'busy'
  } finally {
    await client.end().catch(() => {})
  }
}

/** Creates the data directory next to its place and moves it there, so that it is complete or absent. */
const initialise = async (bin: string, { data, user, password }: PostgresPlace, durable: boolean): Promise<void> => {
  const half = `${data}.${randomBytes(4).toString('hex')}`
  const secret = join(dirname(data), 'initial-password')
  const args = ['-D', half, '-U', 'slipway', '-A', 'scram-sha-256', `--pwfile=${secret}`, '-E', 'UTF8', '--locale=C']
  const options = { env: postgresEnv, cwd: '/', ...user }
  await replaceFile(secret, `${password}\n`, user)
  const whole = [...args, '--no-instructions', ...(durable ? [] : ['--no-sync'])]
  const result = await exec(join(bin, 'initdb'), whole, options).finally(() => rm(secret, { force: true }))
  if (result.code !== 0) throw new Error(`initdb failed: ${(result.stderr || result.stdout).trim().slice(-1000)}`)
  await writeRules(half, user)
  await rename(half, data).catch(async (error: NodeJS.ErrnoException) => {
    await rm(half, { recursive: true, force: true })
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
  })
}

const longestLog = 5_000_000

const launch = async (bin: string, place: PostgresPlace, durable: boolean): Promise<ChildProcess> => {
  const { data, socketDir, logFile, user } = place
  if ((lstatSync(logFile, { throwIfNoEntry: false })?.size ?? 0) > longestLog) await rename(logFile, `${logFile}.1`)
  const chosen = { ...settings, ...(durable ? {} : throwAway), unix_socket_directories: socketDir }
  const flags = Object.entries(chosen).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  // The folder belongs to the database's user: we must not follow a link in it.
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants
  const logFd = openSync(logFile, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600)
  try {
    // Its own session: Ctrl-C in our terminal must not reach the database.
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

const lastLines = (file: string): string =>
  existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n').slice(-5).join('\n') : ''

/** Waits until the server answers, up to the deadline or, if it is our child, until it exits. */
const awaitReady = async (place: PostgresPlace, deadline: number, child?: ChildProcess): Promise<boolean> => {
  while (performance.now() < deadline) {
    const state = await probe(place)
    if (state === 'ready') return true
    if (state === 'locked' || (child === undefined ? state === 'away' : hasEnded(child))) return false
    await pause(pollMs)
  }
  throw new Error(`PostgreSQL did not answer within ${startTimeoutMs / 1000} s; its log is ${place.logFile}`)
}

const launchOnce = async (place: PostgresPlace, deadline: number, { durable = true, log }: PostgresOptions) => {
  const versionFile = join(place.data, 'PG_VERSION')
  const isNew = !existsSync(versionFile)
  const bin = await findBinaries(place.user, isNew ? undefined : Number(readFileSync(versionFile, 'utf8')))
  if (isNew) await initialise(bin, place, durable)
  else if ((await isOpen(place)) || (await probe(place)) === 'locked') await close(bin, place, log)
  await clearStaleLocks(place)
  return awaitReady(place, deadline, await launch(bin, place, durable))
}

/**
 * A start fails briefly while children of a killed server are still exiting; after this many attempts it is a real
 * failure.
 */
const mostLaunches = 25

const needsUs: readonly string[] = ['away', 'locked']

/** True if a running server accepted our password. */
const ensureStarted = async (place: PostgresPlace, options: PostgresOptions): Promise<boolean> => {
  const deadline = performance.now() + startTimeoutMs
  for (let launches = 0; ; ) {
    if (!(await isOpen(place)) && (await awaitReady(place, deadline))) return launches === 0
    const release = await takeStartLock(options.dataDir)
    try {
      if (release !== undefined && ((await isOpen(place)) || needsUs.includes(await probe(place)))) {
        if (await launchOnce(place, deadline, options)) return false
        if (++launches >= mostLaunches) throw new Error(`PostgreSQL does not start:\n${lastLines(place.logFile)}`)
      }
    } finally {
      await release?.()
    }
    await pause(pollMs * (1 + launches + Math.random()))
  }
}

/** Starts the server of this data directory, or adopts the running one. Rejects with a message for the operator. */
export const startPostgres = async (options: PostgresOptions): Promise<Postgres> => {
  const { dataDir, log } = options
  const place = await locate(dataDir)
  const adopted = await ensureStarted(place, options)
  log.debug({ socketDir: place.socketDir, adopted }, 'PostgreSQL is ready')
  return { connectionString: connectionStringOf(place), adopted, stop: () => stopAt(place, log) }
}

export const stopPostgres = async ({ dataDir, log }: { dataDir: string; log: Log }): Promise<void> => {
  if (existsSync(join(dataDir, 'postgres'))) await stopAt(await locate(dataDir), log)
}

/** Stops the server and deletes its data permanently, also if it is outside the data directory. */
export const removePostgres = async ({ dataDir, log }: { dataDir: string; log: Log }): Promise<void> => {
  const home = join(dataDir, 'postgres')
  if (!existsSync(home)) return
  const place = await locate(dataDir)
  await stopAt(place, log)
  const folder = realpathSync(home)
  // Its last processes may still put files away.
  for (const path of [place.socketDir, folder, home, passwordFile(dataDir)])
    await rm(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 })
}
