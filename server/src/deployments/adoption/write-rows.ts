/** Writes rows of a record back into their tables: in statements that keep existing and newer rows. */
import type { Queryable } from '../../store/database.ts'
import type { Rows } from '../release/record.ts'

type Row = Readonly<Record<string, unknown>>

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`

const writableColumns = async (tx: Queryable, table: string): Promise<Set<string>> => {
  const rows = await tx.query<{ name: string }>(
    `select attname as name from pg_attribute
     where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' and attidentity = ''`,
    [table],
  )
  return new Set(rows.map(({ name }) => name))
}

/** The columns that the rows have in common with the table: a record may be older or newer than the table's form. */
const sharedColumns = async (tx: Queryable, table: string, rows: readonly Row[]): Promise<string[]> => {
  const known = await writableColumns(tx, table)
  return Object.keys(rows[0] ?? {}).filter((name) => known.has(name))
}

/** Inserts missing rows; rows that collide with another one are left out. `where` is SQL over the row `r`. */
export const insertMissing = async (
  tx: Queryable,
  table: string,
  rows: readonly Row[] | null | undefined,
  where = 'true',
): Promise<void> => {
  if (rows === null || rows === undefined || rows.length === 0) return
  const columns = (await sharedColumns(tx, table, rows)).map(quoted).join(', ')
  await tx.query(
    `insert into ${table} (${columns}) select ${columns} from jsonb_populate_recordset(null::${table}, $1) r
     where ${where} on conflict do nothing`,
    [JSON.stringify(rows)],
  )
}

/** Updates existing rows that were written before those of the record. */
export const updateOlder = async (
  tx: Queryable,
  table: 'node' | 'variable',
  rows: readonly Row[] | null | undefined,
): Promise<void> => {
  if (rows === null || rows === undefined || rows.length === 0) return
  const columns = (await sharedColumns(tx, table, rows)).filter((name) => name !== 'id').map(quoted)
  await tx.query(
    `update ${table} t set ${columns.map((name) => `${name} = r.${name}`).join(', ')}
     from jsonb_populate_recordset(null::${table}, $1) r where t.id = r.id and t.updated_at < r.updated_at`,
    [JSON.stringify(rows)],
  )
}

/** Variables in an order in which their targets come first; an alias without its target is left out. */
export const writeVariables = async (tx: Queryable, all: readonly Rows[]): Promise<void> => {
  const parents = 'exists (select from node where id = r.parent_id)'
  for (const { variable } of all) {
    await updateOlder(tx, 'variable', variable)
    await insertMissing(tx, 'variable', variable, `r.target_id is null and ${parents}`)
  }
  // An override refers to a variable, an alias may refer to an override.
  for (let depth = 0; depth < 2; depth++)
    for (const { variable } of all)
      await insertMissing(
        tx,
        'variable',
        variable,
        `r.target_id is not null and ${parents} and exists (select from variable where id = r.target_id)`,
      )
}

/** Free names for those whose name another row of the same parent has by now. */
export const withFreeNames = async (tx: Queryable, rows: readonly Row[]): Promise<Row[]> => {
  const taken = await tx.query<{ id: string }>(
    `select r.id from jsonb_populate_recordset(null::node, $1) r join node n
       on n.parent_id = r.parent_id and n.name_scope = r.name_scope and lower(n.name) = lower(r.name) and n.id <> r.id`,
    [JSON.stringify(rows)],
  )
  const ids = new Set(taken.map(({ id }) => id))
  return rows.map((row) =>
    ids.has(String(row.id)) ? { ...row, name: `${String(row.name).slice(0, 240)} ${String(row.id).slice(-6)}` } : row,
  )
}
