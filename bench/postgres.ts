/**
 * One PostgreSQL for both sides of every figure, started by the server's own launcher: same binary, same settings, a
 * database for each side. Ends with the bench; its data are removed.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { createLog } from '../server/src/lib/log.ts'
import { removePostgres, startPostgres } from '../server/src/store/postgres/postgres.ts'

export interface BenchPostgres {
  /** Root of the server's process tree. */
  pid: number
  /** What it is, for the record. */
  version: string
  /** URL of a new database of this server. */
  database(name: string): Promise<string>
  /** URL of a database that is there. */
  url(name: string): string
  stop(): Promise<void>
}

const ask = async <Row extends object>(url: string, text: string): Promise<Row[]> => {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query<Row>(text)).rows
  } finally {
    await client.end()
  }
}

/** Starts it with its data in `dataDir`. */
export const startBenchPostgres = async (dataDir: string): Promise<BenchPostgres> => {
  const log = createLog('warn')
  const { connectionString } = await startPostgres({ dataDir, log })
  const url = (name: string): string => {
    const found = new URL(connectionString)
    found.pathname = `/${name}`
    return found.href
  }
  const [facts] = await ask<{ server_version: string }>(connectionString, 'show server_version')
  return {
    pid: Number.parseInt(readFileSync(join(dataDir, 'postgres/data/postmaster.pid'), 'utf8'), 10),
    version: facts!.server_version,
    async database(name) {
      await ask(connectionString, `create database ${pg.escapeIdentifier(name)}`)
      return url(name)
    },
    url,
    stop: () => removePostgres({ dataDir, log }),
  }
}
