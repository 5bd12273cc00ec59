/**
 * Long lists: parent and rows in one statement of plain columns, turned into JSON text here, which costs less than half
 * of doing so in SQL. Each list has a version, which can be read without the list, and which changes with every row of
 * the list or referenced by it.
 */
import { hash } from 'node:crypto'
import type { Queryable } from './database.ts'
import type { RecordSql } from './tree.ts'

/** A row of a list, plus what `columns` selects. */
interface ListRow {
  id: string
  name: string
  organizationId: string
  parentId: string
  [column: string]: string | null
}

export interface ListForm {
  /** Select list over the row `n`; each column answers text. */
  columns: string
  joins: string
  /** Kind of the rows of the same organization that `joins` reads. */
  quotes: string
  /** JSON text of a record after its id, timestamps and name: `,"field":…`. */
  write(row: ListRow): string
}

interface LongList {
  /** `{"results":[…]}` of a parent's rows and its version; null when the organization has no such parent. */
  read(db: Queryable, parentId: string, organizationId: string): Promise<{ text: string; version: string } | null>
  /** The version alone, as SQL over the parent `n`; $2 is the organization. */
  version: RecordSql
}

/** Text of a timestamptz that `toTimestamp` reads; casting costs half of `to_char`. */
export const instantSql = (expression: string): string => `(${expression} at time zone 'utc')::text`

/** RFC 3339 UTC with milliseconds from `2024-01-31 12:00:00.5`: trailing zeros of fractions are left out in it. */
export const toTimestamp = (text: string): string => {
  const fraction = text.length > 19 ? text.slice(20, 23).padEnd(3, '0') : '000'
  return `${text.slice(0, 10)}T${text.slice(11, 19)}.${fraction}Z`
}

const hashSql = (alias: string): string => `uuid_hash_extended(${alias}.id, ${alias}.version)`

const quotedSql = (kind: string): string =>
  `(select bit_xor(${hashSql('q')}) from node q where q.organization_id = $2 and q.kind = '${kind}')`

const versionOf = (form: string, rows: string | bigint, quoted: string | null): string => `${form}.${rows}.${quoted}`

const listSql = (kind: string, parentKind: string, { columns, joins, quotes }: ListForm): string =>
  `select n.id, n.name, ${instantSql('n.created_at')} as "createdAt", ${instantSql('n.updated_at')} as "updatedAt",
     ${hashSql('n')} as hash, ${quotedSql(quotes)} as quoted, ${columns}
   from node p left join (node n ${joins}) on n.parent_id = p.id and n.kind = '${kind}'
   where p.id = $1 and p.organization_id = $2 and p.kind = '${parentKind}' order by n.created_at, n.id`

type Row = ListRow & { createdAt: string; updatedAt: string; hash: string; quoted: string | null }
/** A parent without rows is one row of nulls. */
type Read = Row | { id: null; quoted: string | null }

const recordOf = (form: ListForm, row: Row): string =>
  `{"id":"${row.id}","created_at":"${toTimestamp(row.createdAt)}","updated_at":"${toTimestamp(row.updatedAt)}","name":${JSON.stringify(row.name)}${form.write(row)}}`

export const longList = (kind: string, parentKind: string, form: ListForm): LongList => {
  const sql = listSql(kind, parentKind, form)
  // Another version of Slipway may make different records from the same rows.
  const shape = hash('sha1', sql + form.write.toString(), 'base64url').slice(0, 8)
  const rowsHash = `(select bit_xor(${hashSql('e')}) from node e where e.parent_id = n.id and e.kind = '${kind}')`
  const version = `'${shape}.' || coalesce(${rowsHash}, 0) || '.' || coalesce(${quotedSql(form.quotes)}::text, 'null')`
  return {
    version: { text: version, joins: '' },
    async read(db, parentId, organizationId) {
      const rows = await db.query<Read>(sql, [parentId, organizationId])
      if (rows.length === 0) return null
      let text = ''
      let all = 0n
      for (const row of rows) {
        if (row.id === null) continue
        row.parentId = parentId
        row.organizationId = organizationId
        all ^= BigInt(row.hash)
        text += `${text === '' ? '' : ','}${recordOf(form, row)}`
      }
      return { text: `{"results":[${text}]}`, version: versionOf(shape, all, rows[0]!.quoted ?? null) }
    },
  }
}
