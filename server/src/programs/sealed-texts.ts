/**
 * Every place where sealed texts are stored, so that all can be sealed again. A new table with sealed texts must be
 * added here: a test compares this list with the sources.
 */
import { placeOfAnswer } from '../api/idempotency.ts'
import type { Queryable } from '../store/database.ts'
import { installationId } from '../store/installation.ts'
import type { SealedPlace } from '../store/keys/seal.ts'

export interface SealedText {
  organizationId: string
  place: SealedPlace
  sealed: string
  /** Key by which `write` finds the row. */
  key: readonly string[]
  cursor: string
}

export interface SealedKind {
  table: string
  /** Texts that these data keys sealed, in the order of the cursor. */
  read(db: Queryable, dataKeys: readonly string[], after: string | null, limit: number): Promise<SealedText[]>
  /** Replaces the text of a row if it still is `old`. */
  write(db: Queryable, key: readonly string[], sealed: string, old: string): Promise<unknown>
}

const zero = '00000000-0000-0000-0000-000000000000'

/** Rows by their id, each with at most one text in this column; those of no organization are the installation's. */
const columnOf = (table: string, column: string, placeColumn = column): SealedKind => ({
  table,
  async read(db, dataKeys, after, limit) {
    const rows = await db.query<{ id: string; organizationId: string; sealed: string }>(
      `select id, coalesce(organization_id, '${installationId}') as "organizationId", ${column} as sealed from ${table}
       where id > $1 and split_part(${column}, '.', 3) = any($2) order by id limit $3`,
      [after ?? zero, dataKeys, limit],
    )
    return rows.map(({ id, ...row }) => ({
      ...row,
      place: { table, row: id, column: placeColumn },
      key: [id],
      cursor: id,
    }))
  },
  write: (db, [id], sealed, old) =>
    db.query(`update ${table} set ${column} = $2 where id = $1 and ${column} = $3`, [id, sealed, old]),
})

/** Secret fields of a row of the tree: an object of texts by the path of their field. */
const nodes: SealedKind = {
  table: 'node',
  async read(db, dataKeys, after, limit) {
    const rows = await db.query<{ id: string; organizationId: string; path: string; sealed: string; cursor: string }>(
      `select n.id, n.organization_id as "organizationId", s.key as path, s.value as sealed,
         n.id::text || ' ' || s.key as cursor
       from node n, jsonb_each_text(n.sealed) s
       where n.sealed <> '{}' and split_part(s.value, '.', 3) = any($2)
         and (n.id::text || ' ' || s.key) collate "C" > $1
       order by (n.id::text || ' ' || s.key) collate "C" limit $3`,
      [after ?? '', dataKeys, limit],
    )
    return rows.map(({ id, path, ...row }) => ({
      ...row,
      place: { table: 'node', row: id, column: path },
      key: [id, path],
    }))
  },
  write: (db, [id, path], sealed, old) =>
    db.query(
      `update node set sealed = sealed || jsonb_build_object($2::text, $3::text)
       where id = $1 and sealed ->> $2::text = $4`,
      [id, path, sealed, old],
    ),
}

const answers: SealedKind = {
  table: 'idempotency_key',
  async read(db, dataKeys, after, limit) {
    const rows = await db.query<{ organizationId: string; method: string; path: string; key: string; sealed: string }>(
      `select organization_id as "organizationId", method, path, key, body as sealed from idempotency_key
       where split_part(body, '.', 3) = any($1)
         and ($2::text is null or (organization_id, method, path, key) >
           (select (a ->> 0)::uuid, a ->> 1, a ->> 2, a ->> 3 from (select $2::jsonb as a) given))
       order by organization_id, method, path, key limit $3`,
      [dataKeys, after, limit],
    )
    return rows.map(({ sealed, ...row }) => {
      const key = [row.organizationId, row.method, row.path, row.key]
      return { organizationId: row.organizationId, place: placeOfAnswer(row), sealed, key, cursor: JSON.stringify(key) }
    })
  },
  write: (db, key, sealed, old) =>
    db.query(
      `update idempotency_key set body = $5
       where organization_id = $1 and method = $2 and path = $3 and key = $4 and body = $6`,
      [...key, sealed, old],
    ),
}

/** Facts of the installation; most of them are not secret and not sealed. */
const facts: SealedKind = {
  table: 'installation',
  async read(db, dataKeys, after, limit) {
    const rows = await db.query<{ name: string; sealed: string }>(
      `select name, value as sealed from installation
       where value like 'v1.%' and split_part(value, '.', 3) = any($1) and name > $2 order by name limit $3`,
      [dataKeys, after ?? '', limit],
    )
    return rows.map(({ name, sealed }) => {
      const place = { table: 'installation', row: name, column: 'value' }
      return { organizationId: installationId, place, sealed, key: [name], cursor: name }
    })
  },
  write: (db, [name], sealed, old) =>
    db.query('update installation set value = $2 where name = $1 and value = $3', [name, sealed, old]),
}

export const sealedKinds: readonly SealedKind[] = [
  facts,
  nodes,
  columnOf('variable', 'sealed', 'value'),
  columnOf('release', 'sealed_env'),
  columnOf('service_output', 'sealed'),
  columnOf('task_state', 'sealed'),
  columnOf('managed_cluster', 'sealed'),
  columnOf('certificate', 'order_key'),
  columnOf('certificate', 'chain_key'),
  columnOf('uploaded_certificate', 'chain_key'),
  columnOf('backup', 'sealed_key'),
  answers,
]
