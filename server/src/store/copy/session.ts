/**
 * One connection of its own to PostgreSQL that streams whole tables (COPY) besides running statements. Knows no tables.
 * A stream holds back what its reader, or the database, does not take yet: nothing is collected in memory.
 */
import type { Readable, Writable } from 'node:stream'
import pg from 'pg'
import { from, to } from 'pg-copy-streams'
import type { Queryable } from '../database.ts'

export interface Session extends Queryable {
  /** What `copy … to stdout` sends. */
  copyOut(sql: string): Readable
  /** What `copy … from stdin` takes; `finish` comes when the database has all of it. */
  copyIn(sql: string): Writable
  /** Ends a transaction that is still open without its effects. */
  close(): Promise<void>
}

/** Rejects when the database does not answer. */
export const openSession = async (connectionString: string): Promise<Session> => {
  const client = new pg.Client({
    connectionString,
    connectionTimeoutMillis: 10_000,
    application_name: 'slipway backup',
  })
  // A lost connection is the failure of the statement or the stream that needs it.
  client.on('error', () => {})
  await client.connect()
  return {
    query: async (text, values = []) => (await client.query(text, [...values])).rows,
    copyOut: (sql) => client.query(to(sql)),
    copyIn: (sql) => client.query(from(sql)),
    close: () => client.end().catch(() => {}),
  }
}
