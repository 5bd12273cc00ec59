/**
 * The writes of a resource: create, edit, delete. Each is one transaction (a create of a kind without `written` is one
 * statement) with its audit row; secrets are sealed before it begins.
 */
import type { TObject, TSchema } from 'typebox'
import { conflict, invalidField, notFound } from '../lib/errors.ts'
import { isUuid, newId } from '../lib/ids.ts'
import { type Queryable, sqlState } from '../store/database.ts'
import type { ListForm } from '../store/long-list.ts'
import {
  type Audit,
  type Content,
  deleteNode,
  insertNode,
  insertSql,
  lockNode,
  type Node,
  type RecordSql,
  updateNode,
  updateSql,
} from '../store/tree.ts'
import { type Context, JsonText } from './operation.ts'
import { refsIn, secretPaths } from './schema.ts'

export type Spec = Record<string, unknown>

/** What a write is about; `previous` is null for a create. */
export interface Change {
  /** To read with: inside the write's transaction, where that has begun, so that it waits for no other connection. */
  db: Queryable
  id: string
  parent: Node
  previous: Content | null
}

export interface ResourceDefinition {
  kind: string
  parent: { kind: string; param: string }
  /** Rows of one scope share their names; default the kind. */
  nameScope?: string
  tag: string
  /** Singular and plural, for summaries. */
  words: [string, string]
  collection: string
  item: string
  param: string
  /** OpenAPI ids; an operation without one is not there. */
  ids: { list?: string; create?: string; read?: string; edit?: string; remove?: string }
  createStatus?: 200 | 201
  reads?: 'sensitive'
  /** What a create takes; `name` is among it. */
  spec: TObject
  /** What an edit takes beside: fields of `spec` are optional in it. */
  notEditable?: readonly string[]
  /** What is answered beyond id, timestamps and the fields of `spec`. */
  record: Record<string, TSchema>
  /** SQL for the fields of `record`, over the row `n`. */
  columns: Record<string, string>
  /** SQL to join what `columns` needs beside `n`. */
  joins?: string
  /** False: answer only `columns`, each SQL for JSON text that is never null. */
  wholeSpec?: boolean
  audit: { target: string; subTarget?: string }
  /** Checks and completes a configuration before it is written; throws the caller's error. */
  validate?(spec: Spec, context: Context, change: Change): Promise<Spec> | Spec
  /** For long lists: how they make their records; the same as `columns` makes. */
  list?: ListForm
  /** What a create reads with the parent, as the parent's `record`. */
  parentRecord?: RecordSql
  /** Last touch to a record made by SQL. */
  view?(record: Spec): Spec
  /** Writes what belongs to the row, in its transaction. */
  written?(tx: Queryable, spec: Spec & { name: string }, context: Context, change: Change): Promise<void>
  /** The last look at what was written, in its transaction: throws when it must not be. */
  judge?(tx: Queryable, context: Context, change: Change): Promise<void>
  /** Throws when the row must not go; may say that it went already. */
  onDelete?(tx: Queryable, context: Context): Promise<'gone' | undefined>
}

export const auditOf = (
  context: Context,
  eventType: Audit['eventType'],
  target: { target: string; subTarget?: string },
  place: { projectId: string | null; environmentId: string | null },
  change: unknown,
): Audit => ({
  eventId: newId(),
  eventType,
  targetType: target.target,
  subTargetType: target.subTarget ?? null,
  ...place,
  change: change === null ? null : JSON.stringify(change),
  origin: context.origin,
  triggeredBy: context.principal.name,
  actorType: context.principal.account === null ? 'API_TOKEN' : 'USER',
  actorId: context.principal.tokenId,
  userAgent: context.userAgent,
  requestId: context.requestId,
})

/** Project and environment that a row is, or is in. */
export const placeOf = (node: Node): { projectId: string | null; environmentId: string | null } => {
  if (node.kind === 'organization') return { projectId: null, environmentId: null }
  if (node.kind === 'project') return { projectId: node.id, environmentId: null }
  if (node.kind === 'environment') return { projectId: node.parentId, environmentId: node.id }
  const inEnvironment = node.grandparentId !== null && node.grandparentId !== node.organizationId
  return inEnvironment
    ? { projectId: node.grandparentId, environmentId: node.parentId }
    : { projectId: null, environmentId: null }
}

/** Turns what the database refuses into the caller's error. */
export const translateWrite = (error: unknown): unknown => {
  const state = sqlState(error)
  if (state === '23505')
    return conflict('name_taken', 'This name is taken: names are unique here, whatever their case.')
  if (state === '23503') return notFound()
  return error
}

/** Every id that a configuration refers to must be a row of its kind in the same organization. */
export const checkRefs = async (db: Queryable, schema: TSchema, value: unknown, organizationId: string) => {
  const refs = refsIn(schema, value)
  if (refs.length === 0) return
  const rows = await db.query<{ id: string; kind: string }>(
    'select id, kind from node where id = any($1) and organization_id = $2',
    [refs.map((ref) => ref.id).filter(isUuid), organizationId],
  )
  const kinds = new Map(rows.map((row) => [row.id, row.kind]))
  for (const { id, kind, field } of refs)
    if (kinds.get(id) !== kind) throw invalidField(field, 'not found in this organization')
}

/** Takes the value at a path out of a copy of `spec`. */
const takeOut = (spec: Spec, [name, ...below]: string[]): { open: Spec; value: unknown } => {
  const inner = spec[name!]
  if (below.length === 0) {
    const { [name!]: _, ...open } = spec
    return { open, value: inner }
  }
  if (typeof inner !== 'object' || inner === null) return { open: spec, value: undefined }
  const { open, value } = takeOut(inner as Spec, below)
  return { open: { ...spec, [name!]: open }, value }
}

/** Seals the secrets of a configuration for the row `id`; answers the rest in the open. */
export const sealAll = async (context: Context, id: string, paths: readonly string[], spec: Spec) => {
  const sealed: Record<string, string> = {}
  let rest = spec
  for (const path of paths) {
    const { open, value } = takeOut(rest, path.split('.'))
    rest = open
    if (typeof value !== 'string') continue
    const place = { table: 'node', row: id, column: path }
    sealed[path] = await context.parts.sealer.seal(context.principal.organizationId, place, value)
  }
  return { open: rest, sealed }
}

const withoutName = ({ name: _, ...rest }: Spec): Spec => rest

/** Shows a record made by SQL. */
export const showRecord = (definition: ResourceDefinition, text: string): JsonText | Spec =>
  definition.view === undefined ? new JsonText(text) : definition.view(JSON.parse(text) as Spec)

const orTranslated = (writing: Promise<string>): Promise<string> =>
  writing.catch((error: unknown) => {
    throw translateWrite(error)
  })

/** Creates rows of a kind; `recordText` is the SQL of its record. */
export const creator = (definition: ResourceDefinition, recordText: RecordSql) => {
  const { spec: schema, kind } = definition
  const secrets = secretPaths(schema)
  const insert = insertSql(kind, definition.nameScope ?? kind, recordText)
  return async (context: Context): Promise<unknown> => {
    const parent = context.node
    const change: Change = { db: context.db, id: newId(), parent, previous: null }
    await checkRefs(context.db, schema, context.body, context.principal.organizationId)
    const spec = (await definition.validate?.(context.body, context, change)) ?? context.body
    const { open, sealed } = await sealAll(context, change.id, secrets, spec)
    const audit = auditOf(context, 'CREATE', definition.audit, placeOf(parent), open)
    const { organizationId, tokenId } = context.principal
    const name = String(open.name)
    const row = { id: change.id, organizationId, parentId: parent.id, name, sealed, updatedBy: tokenId }
    const work = async (db: Queryable): Promise<unknown> => {
      const text = await orTranslated(insertNode(db, insert, { ...row, spec: withoutName(open) }, audit))
      await definition.written?.(db, { ...open, name }, context, change)
      await definition.judge?.(db, context, change)
      return showRecord(definition, text)
    }
    return definition.written === undefined ? context.write(work) : context.transaction(work)
  }
}

/** Changes rows of a kind: what the body leaves out stays. */
export const editor = (definition: ResourceDefinition, recordText: RecordSql) => {
  const secrets = secretPaths(definition.spec)
  const update = updateSql(recordText)
  return async (context: Context): Promise<unknown> => {
    const { node, principal } = context
    const parent = { ...node, id: node.parentId ?? node.organizationId, kind: definition.parent.kind }
    await checkRefs(context.db, definition.spec, context.body, principal.organizationId)
    const { open, sealed } = await sealAll(context, node.id, secrets, context.body)
    return context.transaction(async (tx) => {
      const previous = await lockNode(tx, node.id)
      if (previous === null) throw notFound()
      const merged = { ...previous.spec, name: previous.name, ...open }
      const change: Change = { db: tx, id: node.id, parent, previous }
      const spec = (await definition.validate?.(merged, context, change)) ?? merged
      const content = { name: String(spec.name), spec: withoutName(spec), sealed: { ...previous.sealed, ...sealed } }
      const audit = auditOf(context, 'UPDATE', definition.audit, placeOf(node), open)
      const text = await orTranslated(updateNode(tx, update, node.id, content, principal.tokenId, audit))
      await definition.written?.(tx, { ...spec, name: content.name }, context, change)
      await definition.judge?.(tx, context, change)
      return showRecord(definition, text)
    })
  }
}

/** Deletes rows of a kind with all below them. */
export const remover =
  (definition: ResourceDefinition) =>
  (context: Context): Promise<unknown> =>
    context.transaction(async (tx) => {
      if ((await definition.onDelete?.(tx, context)) === 'gone') return undefined
      const audit = auditOf(context, 'DELETE', definition.audit, placeOf(context.node), null)
      if (!(await deleteNode(tx, context.node.id, audit))) throw notFound()
      return undefined
    })
