/** The rows of a database as SQL that another database of the same schema takes, and taking them. */
import type { Queryable } from '../../src/store/database.ts'
import { splitStatements } from '../../src/store/database.ts'

const tablesSql = `select table_name as name from information_schema.tables
  where table_schema = 'public' and table_type = 'BASE TABLE' order by 1`

const columnsSql = `select string_agg(quote_ident(column_name), ', ' order by ordinal_position) as columns
  from information_schema.columns where table_schema = 'public' and table_name = $1 and is_generated = 'NEVER'`

const sequencesSql = `select sequencename as name, last_value as value from pg_sequences
  where schemaname = 'public' and last_value is not null`

/** A value as a literal; lines end where the text says, so that a statement never seems to end within one. */
const literal = (text: string): string =>
  `e'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'").replaceAll('\n', '\\n')}'`

export const dumpRows = async (db: Queryable): Promise<string> => {
  const statements: string[] = []
  for (const { name } of await db.query<{ name: string }>(tablesSql)) {
    const [{ columns } = { columns: '' }] = await db.query<{ columns: string }>(columnsSql, [name])
    const rows = await db.query<{ row: string }>(`select to_json(t)::text as row from ${name} t`)
    const values = rows.map(({ row }) => `  ${literal(row)}::json`)
    const from = `select ${columns} from unnest(array[\n${values.join(',\n')}\n]) row, json_populate_record(null::${name}, row)`
    if (rows.length > 0) statements.push(`insert into ${name} (${columns}) overriding system value ${from};`)
  }
  for (const { name, value } of await db.query<{ name: string; value: string }>(sequencesSql))
    statements.push(`select setval('${name}', ${value});`)
  return `${statements.join('\n')}\n`
}

/** Fills an empty database: its schema first, then the rows, whatever refers to whatever. */
export const takeDump = async (tx: Queryable, dump: string): Promise<void> => {
  await tx.query(
    'create table migration (name text primary key, applied_at timestamptz not null default clock_timestamp())',
  )
  for (const statement of splitStatements(dump)) {
    if (statement.startsWith('insert into')) await tx.query('set local session_replication_role = replica')
    await tx.query(statement)
  }
}
