/**
 * Databases for tests: one throw-away PostgreSQL for a whole run of `node --test`, whatever the number of its
 * processes, and in it a fresh, migrated database for each call. All of it is gone when the run ends, however it ends.
 */
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { createLog } from '../../src/lib/log.ts'
import { connect, type Database, migrate } from '../../src/store/database.ts'
import { startPostgres } from '../../src/store/postgres/postgres.ts'

export interface TestDatabase extends Database {
  connectionString: string
}

const log = createLog('silent')

/** The runner starts a process for each test file; a file that is run alone is its own run. */
const runner = process.env.NODE_TEST_CONTEXT === undefined ? process.pid : process.ppid

/** In memory where there is room: twice as fast, and no wear. */
const home = (): string => {
  try {
    const { bavail, bsize } = statfsSync('/dev/shm')
    return bavail * bsize > 2 ** 30 ? '/dev/shm' : tmpdir()
  } catch {
    return tmpdir()
  }
}

const keeper = new URL('./database-keeper.ts', import.meta.url).pathname

const startServer = async (): Promise<string> => {
  const dataDir = join(home(), `slipway-test-run-${runner}`)
  const { connectionString, adopted } = await startPostgres({ dataDir, log, durable: false })
  if (!adopted) spawn(process.execPath, [keeper, dataDir, String(runner)], { detached: true, stdio: 'ignore' }).unref()
  return connectionString
}

const withName = (connectionString: string, name: string): string => {
  const url = new URL(connectionString)
  url.pathname = `/${name}`
  return url.href
}

const template = 'slipway_template'

/** The migrated database that all others are copies of; test processes that need it at once take turns. */
const makeTemplate = async (server: string, admin: Database): Promise<void> => {
  await admin.transaction(async (tx) => {
    await tx.query('select pg_advisory_xact_lock(7301914202)')
    const [found] = await tx.query('select 1 from pg_database where datname = $1', [template])
    if (found !== undefined) return
    // Made under another name first, so that no test copies half of it.
    const half = `slipway_half_${randomBytes(6).toString('hex')}`
    await admin.query(`create database ${half}`)
    const database = connect(withName(server, half), log, { max: 1 })
    await migrate(database)
    await database.close()
    await admin.query(`alter database ${half} rename to ${template}`)
  })
}

let ready: Promise<{ server: string; admin: Database }> | undefined

const prepare = async (): Promise<{ server: string; admin: Database }> => {
  const server = await startServer()
  const admin = connect(server, log, { max: 3 })
  await makeTemplate(server, admin)
  return { server, admin }
}

const open = new Set<TestDatabase>()

/** A fresh, migrated, empty database. Closed and dropped at the end of the test file, or by `close()` before. */
export const testDatabase = async (): Promise<TestDatabase> => {
  ready ??= prepare()
  const { server, admin } = await ready
  const name = `test_${randomBytes(8).toString('hex')}`
  await admin.query(`create database ${name} template ${template} strategy file_copy`)
  const connectionString = withName(server, name)
  const database = connect(connectionString, log)
  let closed: Promise<void> | undefined
  const close = async (): Promise<void> => {
    open.delete(opened)
    await database.close()
    await admin.query(`drop database if exists ${name} with (force)`)
  }
  const opened: TestDatabase = {
    ...database,
    connectionString,
    close: () => {
      closed ??= close()
      return closed
    },
  }
  open.add(opened)
  return opened
}

after(async () => {
  await Promise.allSettled([...open].map((database) => database.close()))
  await (await ready?.catch(() => undefined))?.admin.close()
})
