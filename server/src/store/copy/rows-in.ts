/**
 * Puts rows into an empty database: the schema of the version that they come from, the rows, and only then what binds
 * them to each other. All in one transaction of the caller: either everything is there or nothing. Needs no rights of a
 * superuser.
 */
import { Readable, type Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { applyMigrations } from '../database.ts'
import { type OwnSequence, type OwnTable, readOwnTables } from './own-tables.ts'
import { columnsOf } from './rows-out.ts'
import type { Session } from './session.ts'

interface Constraint {
  table: string
  name: string
  definition: string
}

export interface RowsIn {
  /** The rows of one table; returns how many they were. */
  load(table: OwnTable, rows: AsyncIterable<Buffer>): Promise<number>
  setSequences(sequences: readonly OwnSequence[]): Promise<void>
  /** Binds the rows: foreign keys are checked, triggers act again. */
  bind(): Promise<void>
}

/** Whether there is anything in it: a database that is used by something else is not ours to fill. */
export const isEmptyDatabase = async (session: Session): Promise<boolean> => {
  const found = await session.query(
    `select 1 from pg_class c where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v', 'm', 'S')
       and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e') limit 1`,
  )
  return found.length === 0
}

const foreignKeys = `select conrelid::regclass::text as table, quote_ident(conname) as name, pg_get_constraintdef(oid) as definition
  from pg_constraint where contype = 'f' and connamespace = current_schema()::regnamespace and conparentid = 0 order by 1, 2`

/** Makes the schema after these migrations, unbound and without the rows that migrations make. */
export const openRowsIn = async (tx: Session, migrations: readonly string[]): Promise<RowsIn> => {
  await applyMigrations(tx, migrations)
  const tables = new Map((await readOwnTables(tx)).map((table) => [table.name, table]))
  const constraints = await tx.query<Constraint & Record<string, unknown>>(foreignKeys)
  for (const { table, name } of constraints) await tx.query(`alter table ${table} drop constraint ${name}`)
  for (const name of tables.keys()) await tx.query(`alter table "${name}" disable trigger user`)
  await tx.query(`truncate ${[...tables.keys()].map((name) => `"${name}"`).join(', ')}`)
  return {
    async load(given, rows) {
      const table = tables.get(given.name)
      const unknown = given.columns.filter((column) => table?.columns.includes(column) !== true)
      if (table === undefined || unknown.length > 0)
        throw new Error(`its table ${given.name.slice(0, 60)} is not one of this version`)
      const target = tx.copyIn(`copy "${table.name}" (${columnsOf(given)}) from stdin`)
      await pipeline(Readable.from(rows), target)
      return (target as Writable & { rowCount: number }).rowCount
    },
    async setSequences(sequences) {
      for (const { name, value } of sequences) await tx.query('select setval($1::regclass, $2::bigint)', [name, value])
    },
    async bind() {
      for (const name of tables.keys()) await tx.query(`alter table "${name}" enable trigger user`)
      for (const { table, name, definition } of constraints)
        await tx.query(`alter table ${table} add constraint ${name} ${definition}`)
    },
  }
}
