/**
 * All access to PostgreSQL: prepared statements by text, transactions, NOTIFY. Knows no tables. When the database is
 * unavailable, callers get a 503 `ApiError` with Retry-After; the pool reconnects by itself.
 */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import pg from 'pg'
import { unavailable } from '../lib/errors.ts'
import type { Log } from '../lib/log.ts'
import { lockSql } from './locks.ts'

/** Something that runs one statement: the pool or a transaction. */
export interface Queryable {
  /**
   * Runs one statement, prepared under a name made from its text: keep texts constant, put values in `$n`.
   * bigint and numeric come back as strings, timestamptz as `Date` (format in SQL where lists are long).
   */
  query<Row extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<Row[]>
}

export interface Database extends Queryable {
  /**
   * Runs `work` in one transaction; commits when it resolves, rolls back when it rejects. The victim of a deadlock is
   * run again, so `work` must act only through `tx`.
   */
  transaction<T>(work: (tx: Queryable) => Promise<T>): Promise<T>
  /**
   * Calls back for each NOTIFY on `channel`, and once with '' after each reconnect, when notifications may have been
   * lost.
   */
  listen(channel: string, onNotify: (payload: string) => void): Promise<() => void>
  /** Rejects unless the database answers within `timeoutMs`. */
  ping(timeoutMs: number): Promise<void>
  close(): Promise<void>
}

const names = new Map<string, string>()

const statementName = (text: string): string => {
  let name = names.get(text)
  if (name === undefined) {
    name = createHash('sha256').update(text).digest('base64url').slice(0, 24)
    names.set(text, name)
  }
  return name
}

// 08P01 is a mistake of ours in the protocol, such as a missing parameter.
const lostConnection = /^(08(?!P01)|57P0|53)|^(ECONN|ENOENT|EPIPE|ETIMEDOUT)/

/** True for errors that mean that the database is unavailable, not that the statement is wrong. */
const isLost = (error: unknown): boolean => {
  const { code, message } = error as { code?: string; message?: string }
  return (
    (code !== undefined && lostConnection.test(code)) ||
    /Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error/.test(
      message ?? '',
    )
  )
}

const diskFull = '53100'

const translate = (error: unknown): unknown => {
  if ((error as { code?: string }).code === diskFull)
    return unavailable('disk_full', 'The disk of the database is full: the operator must free space.', 30, error)
  return isLost(error)
    ? unavailable('database_unavailable', 'The database is temporarily unavailable: try again.', 2, error)
    : error
}

const run = async <Row extends object>(
  client: pg.Pool | pg.PoolClient,
  text: string,
  values: readonly unknown[] = [],
): Promise<Row[]> => {
  try {
    const result = await client.query({ name: statementName(text), text, values: values as unknown[] })
    return result.rows as Row[]
  } catch (error) {
    throw translate(error)
  }
}

/** SQLSTATE of a database error (`23505` unique violation, `23503` foreign key …), '' for anything else. */
export const sqlState = (error: unknown): string => {
  const { code } = error as { code?: unknown }
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : ''
}

type Listeners = Map<string, Set<(payload: string) => void>>

/** Keeps one connection for LISTEN and reopens it, with increasing pauses, when it is lost. */
const createListener = (config: pg.ClientConfig, log: Log) => {
  const listeners: Listeners = new Map()
  let client: pg.Client | undefined
  let closed = false
  let retry: NodeJS.Timeout | undefined

  const open = async (): Promise<void> => {
    const fresh = new pg.Client(config)
    fresh.on('error', () => {})
    fresh.on('end', () => {
      if (client === fresh) client = undefined
      reopen(250)
    })
    fresh.on('notification', ({ channel, payload }) => {
      for (const notify of listeners.get(channel) ?? []) notify(payload ?? '')
    })
    await fresh.connect()
    for (const channel of listeners.keys()) await fresh.query(`listen ${pg.escapeIdentifier(channel)}`)
    client = fresh
    for (const all of listeners.values()) for (const notify of all) notify('')
  }
  const reopen = (pauseMs: number): void => {
    if (closed || retry !== undefined) return
    retry = setTimeout(() => {
      retry = undefined
      open().catch((error: unknown) => {
        log.warn({ err: error }, 'no connection for notifications yet')
        reopen(Math.min(pauseMs * 2, 4000))
      })
    }, pauseMs)
  }
  return {
    async listen(channel: string, onNotify: (payload: string) => void): Promise<() => void> {
      let all = listeners.get(channel)
      if (all === undefined) {
        all = new Set()
        listeners.set(channel, all)
        if (client === undefined) await open()
        else await client.query(`listen ${pg.escapeIdentifier(channel)}`)
      }
      all.add(onNotify)
      return () => all.delete(onNotify)
    },
    async close(): Promise<void> {
      closed = true
      clearTimeout(retry)
      await client?.end()
    },
  }
}

const deadlock = '40P01'
const maxTries = 3

const transact = async <T>(pool: pg.Pool, work: (tx: Queryable) => Promise<T>): Promise<T> => {
  let client: pg.PoolClient
  try {
    client = await pool.connect()
  } catch (error) {
    throw translate(error)
  }
  let broken = false
  try {
    await run(client, 'begin')
    const result = await work({ query: (text, values) => run(client, text, values) })
    await run(client, 'commit')
    return result
  } catch (error) {
    await client.query('rollback').catch(() => {
      broken = true
    })
    throw error
  } finally {
    client.release(broken)
  }
}

/** Opens a pool on `connectionString` (a PostgreSQL URL; a unix socket as `?host=/dir`). Opens no connection yet. */
export const connect = (connectionString: string, log: Log, options: { max?: number } = {}): Database => {
  const config: pg.PoolConfig = { connectionString, connectionTimeoutMillis: 5000, application_name: 'slipway' }
  const pool = new pg.Pool({
    ...config,
    max: options.max ?? 16,
    idleTimeoutMillis: 60_000,
    // Planning anew for each request costs as much as most statements; a test explains all of them with this plan.
    options: '-c plan_cache_mode=force_generic_plan',
  })
  // A connection that breaks while a transaction holds it has no other listener: the next statement rejects anyway.
  pool.on('connect', (client) => client.on('error', () => {}))
  pool.on('error', (error) => log.warn({ err: error }, 'a database connection was lost'))
  const listener = createListener(config, log)

  return {
    query: (text, values) => run(pool, text, values),
    async transaction(work) {
      for (let tries = 1; ; tries += 1)
        try {
          return await transact(pool, work)
        } catch (error) {
          if (sqlState(error) !== deadlock || tries === maxTries) throw error
        }
    },
    listen: listener.listen,
    async ping(timeoutMs) {
      const timeout = AbortSignal.timeout(timeoutMs)
      await Promise.race([
        run(pool, 'select 1'),
        new Promise((_, reject) =>
          timeout.addEventListener('abort', () =>
            reject(unavailable('database_unavailable', 'The database is temporarily unavailable: try again.')),
          ),
        ),
      ])
    },
    async close() {
      await listener.close()
      await pool.end()
    },
  }
}

const migrationsFolder = new URL('./migrations/', import.meta.url)

/** In their order. */
export const migrationNames = (): string[] =>
  readdirSync(migrationsFolder)
    .filter((name) => name.endsWith('.sql'))
    .sort()

export const migrationText = (name: string): string => readFileSync(new URL(name, migrationsFolder), 'utf8')

export const newerSlipway = (names: readonly string[]): Error =>
  new Error(`the database was migrated by a newer Slipway (${names.join(', ')})`)

export interface Migrations {
  applied: number
  /** Which this version has and the database lacks. */
  pending: string[]
  /** Made by a newer version. */
  unknown: string[]
}

export const readMigrations = async (
  db: Queryable,
  known: readonly string[] = migrationNames(),
): Promise<Migrations> => {
  const applied = new Set((await db.query<{ name: string }>('select name from migration')).map(({ name }) => name))
  const unknown = [...applied].filter((name) => !known.includes(name))
  return { applied: applied.size, pending: known.filter((name) => !applied.has(name)), unknown }
}

/** Applies those of `known` that this database lacks. Call it in a transaction. */
export const applyMigrations = async (tx: Queryable, known: readonly string[]): Promise<string[]> => {
  await tx.query(lockSql('migrations'))
  await tx.query(`create table if not exists migration (
    name text primary key, applied_at timestamptz not null default clock_timestamp())`)
  const { pending, unknown } = await readMigrations(tx, known)
  if (unknown.length > 0) throw newerSlipway(unknown)
  for (const name of pending) {
    for (const statement of splitStatements(migrationText(name))) await tx.query(statement)
    await tx.query('insert into migration (name) values ($1)', [name])
  }
  return pending
}

/**
 * Applies the migrations that this database lacks, in order, all in one transaction. An advisory lock makes replicas
 * that start at once take turns. Refuses a database that a newer version has migrated.
 */
export const migrate = (database: Database): Promise<string[]> =>
  database.transaction((tx) => applyMigrations(tx, migrationNames()))

/** The statements of a migration: separated by a semicolon at the end of a line, outside `$$` bodies. */
export const splitStatements = (sql: string): string[] => {
  const statements: string[] = []
  let current = ''
  for (const line of sql.split('\n')) {
    current += `${line}\n`
    const insideBody = current.split('$$').length % 2 === 0
    if (insideBody || !line.trimEnd().endsWith(';')) continue
    statements.push(current.trim().replace(/;$/, ''))
    current = ''
  }
  return statements
}
