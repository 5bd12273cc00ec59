/**
 * The tree of all managed resources, as rows of `node`. Promises that names are unique in their parent and that reads
 * always include the organization. Does not know what a kind means: its resource provides the SQL expressions for
 * records.
 */
import type { Queryable } from './database.ts'

/** A row, without its configuration: enough to know its organization and its parents. */
export interface Node {
  id: string
  organizationId: string
  kind: string
  parentId: string | null
  grandparentId: string | null
  name: string
  /** Text of the public record, if it was requested. */
  record?: string
  /** A version that changes whenever the answer made from the row does, if it was requested. */
  version?: string
  /** Rows that were read with it. */
  rows?: readonly object[]
}

/** SQL for a timestamptz as RFC 3339 UTC with milliseconds. */
export const timestampSql = (expression: string): string =>
  `to_char(${expression} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** SQL for a public record: an expression over the row `n`, and the joins that it needs. */
export interface RecordSql {
  text: string
  joins: string
}

const stamps = { created_at: timestampSql('n.created_at'), updated_at: timestampSql('n.updated_at') }

/**
 * SQL for the public record of a row `n`, as text: the fields of its configuration, then id, name, timestamps and
 * `columns` (field → SQL), which take precedence.
 */
export const recordSql = (columns: Record<string, string>, joins = ''): RecordSql => {
  const fields: Record<string, string> = { id: 'n.id', name: 'n.name', ...stamps, ...columns }
  const pairs = Object.entries(fields).map(([field, sql]) => `'${field}', ${sql}`)
  return { text: `(n.spec || jsonb_build_object(${pairs}))::text`, joins }
}

/**
 * The same by joining text, which costs a third of building objects in SQL: only `columns` are answered, and each is
 * SQL for JSON text that is never null.
 */
export const textRecordSql = (columns: Record<string, string>, joins = ''): RecordSql => {
  const fields = Object.entries(columns).map(([field, sql]) => ` || ',"${field}":' || ${sql}`)
  const head = `'{"id":"' || n.id || '","created_at":"' || ${stamps.created_at} || '","updated_at":"' || ${stamps.updated_at}`
  return { text: `(${head} || '","name":' || to_json(n.name)${fields.join('')} || '}')`, joins }
}

const identity = `n.id, n.organization_id as "organizationId", n.kind, n.parent_id as "parentId", n.name`
const grandparent = `(select p.parent_id from node p where p.id = n.parent_id)`

const findSql = (record: RecordSql | null, condition: string): string => {
  const more = record === null ? `${grandparent} as "grandparentId"` : `${record.text} as record`
  return `select ${identity}, ${more} from node n ${record?.joins ?? ''}
    where n.id = $1 and n.organization_id = $2 and ${condition}`
}

/** Reads one row of a kind by id: with its record when the SQL of it is given, else with its grandparent. */
export const findNode =
  (kind: string, record: RecordSql | null = null) =>
  async (db: Queryable, id: string, organizationId: string): Promise<Node | null> => {
    const [row] = await db.query<Node>(statement(kind, record), [id, organizationId])
    return row ?? null
  }

const statements = new Map<string, string>()

const statement = (kind: string, record: RecordSql | null): string => {
  const key = `${kind} ${record?.text}`
  const condition = kind === 'service' ? `n.name_scope = 'service'` : `n.kind = '${kind}'`
  const text = statements.get(key) ?? findSql(record, condition)
  statements.set(key, text)
  return text
}

/** SQL that answers `{"results": […]}` of a parent's rows of one kind in one text: $1 parent. */
export const listSql = (kind: string, record: RecordSql): string =>
  `select '{"results":[' || coalesce(string_agg(${record.text}, ',' order by n.created_at, n.id), '') || ']}' as text
   from node n ${record.joins} where n.parent_id = $1 and n.kind = '${kind}'`

export interface Audit {
  eventId: string
  eventType: 'CREATE' | 'UPDATE' | 'DELETE'
  targetType: string
  subTargetType: string | null
  projectId: string | null
  environmentId: string | null
  change: string | null
  /** The former values of the fields in `change`. */
  original?: string | null
  origin: string
  triggeredBy: string
  actorType: 'API_TOKEN' | 'USER' | 'OPERATOR' | 'SYSTEM'
  actorId: string | null
  userAgent: string | null
  requestId: string
}

const auditInsert = `insert into event (id, organization_id, event_type, target_type, sub_target_type, target_id,
  target_name, project_id, environment_id, change, origin, triggered_by, user_agent, request_id, actor_type, actor_id,
  original, created_at)`

const auditValues = (audit: Audit): unknown[] => [
  audit.eventId,
  audit.eventType,
  audit.targetType,
  audit.subTargetType,
  audit.projectId,
  audit.environmentId,
  audit.change,
  audit.origin,
  audit.triggeredBy,
  audit.userAgent,
  audit.requestId,
  audit.actorType,
  audit.actorId,
  audit.original ?? null,
]

/** The audit row for a statement whose changed rows are called `n`; its values begin at `$first`. */
const auditSql = (first: number, original = `$${first + 13}::jsonb`): string => {
  const $ = (offset: number): string => `$${first + offset}`
  return `${auditInsert} select ${$(0)}, n.organization_id, ${$(1)}, ${$(2)}, ${$(3)}, n.id, n.name, ${$(4)}::uuid,
    ${$(5)}::uuid, ${$(6)}::jsonb, ${$(7)}, ${$(8)}, ${$(9)}, ${$(10)}, ${$(11)}, ${$(12)}::uuid,
    ${original}, clock_timestamp() from n`
}

interface NewNode {
  id: string
  organizationId: string
  parentId: string | null
  name: string
  spec: object
  sealed: object
  updatedBy: string | null
}

/** One statement: the row and its audit; answers the record. $1–$7 the row, $8– the audit. */
export const insertSql = (kind: string, nameScope: string, record: RecordSql): string =>
  `with n as (
     insert into node (id, organization_id, kind, parent_id, name_scope, name, spec, sealed, updated_by)
     values ($1, $2, '${kind}', $3, '${nameScope}', $4, $5, $6, $7) returning *
   ), audit as (${auditSql(8)})
   select ${record.text} as record from n ${record.joins}`

export const insertNode = async (db: Queryable, sql: string, node: NewNode, audit: Audit): Promise<string> => {
  const [row] = await db.query<{ record: string }>(sql, [
    node.id,
    node.organizationId,
    node.parentId,
    node.name,
    JSON.stringify(node.spec),
    JSON.stringify(node.sealed),
    node.updatedBy,
    ...auditValues(audit),
  ])
  return row!.record
}

export interface Content {
  name: string
  spec: Record<string, unknown>
  sealed: Record<string, string>
}

/** Reads a row's content and locks it until the transaction ends. */
export const lockNode = async (tx: Queryable, id: string): Promise<Content | null> => {
  const [row] = await tx.query<Content>('select name, spec, sealed from node where id = $1 for no key update', [id])
  return row ?? null
}

/** One statement: $1 id, $2 name, $3 spec, $4 sealed, $5 updated_by, $6– the audit. */
export const updateSql = (record: RecordSql): string =>
  `with n as (
     update node set name = $2, spec = $3, sealed = $4, updated_by = $5, version = version + 1,
       updated_at = clock_timestamp() where id = $1 returning *
   ), audit as (${auditSql(6)})
   select ${record.text} as record from n ${record.joins}`

export const updateNode = async (
  tx: Queryable,
  sql: string,
  id: string,
  content: Content,
  updatedBy: string | null,
  audit: Audit,
): Promise<string> => {
  const values = [id, content.name, JSON.stringify(content.spec), JSON.stringify(content.sealed), updatedBy]
  const [row] = await tx.query<{ record: string }>(sql, [...values, ...auditValues(audit)])
  return row!.record
}

const wholeSql = `coalesce($15::jsonb, jsonb_build_object('name', n.name) || n.spec)`

const deleteSql = `with n as (delete from node where id = $1 returning *), audit as (${auditSql(2, wholeSql)})
  select id from n`

/** Deletes a row and everything below it; false if it no longer exists. */
export const deleteNode = async (db: Queryable, id: string, audit: Audit): Promise<boolean> =>
  (await db.query(deleteSql, [id, ...auditValues(audit)])).length > 0

/** An audit row about something outside the tree, or about an action on a row. */
export const writeAudit = async (
  db: Queryable,
  organizationId: string,
  target: { id: string | null; name: string | null },
  audit: Omit<Audit, 'eventType'> & { eventType: string },
): Promise<void> => {
  // A request is sorted before the events that it queues in the same transaction.
  const at = audit.eventType.startsWith('TRIGGER_') ? 'now()' : 'clock_timestamp()'
  const values = `$1, $15, $2, $3, $4, $16, $17, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, ${at}`
  await db.query(`${auditInsert} values (${values})`, [
    ...auditValues(audit as Audit),
    organizationId,
    target.id,
    target.name,
  ])
}
