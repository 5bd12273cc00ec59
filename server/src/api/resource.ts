/**
 * Five operations from one description of a kind: list, create, read, edit, delete. Promises unique names (409), an
 * audit row in the transaction of every write, sealed secrets, references that stay in the organization. What a kind
 * needs beyond that it says in `validate`, `view`, `written` and `onDelete`, or it writes the operation by hand.
 */
import Type, { type TObject, type TSchema } from 'typebox'
import { conflict, invalidField, notFound } from '../lib/errors.ts'
import { isUuid, newId } from '../lib/ids.ts'
import { type Queryable, sqlState } from '../store/database.ts'
import {
  type Audit,
  type Content,
  deleteNode,
  insertNode,
  insertSql,
  listSql,
  lockNode,
  type Node,
  recordSql,
  updateNode,
  updateSql,
} from '../store/tree.ts'
import { type Context, JsonText, nodeInPath, type Operation, type Owner, organizationInPath } from './operation.ts'
import { merge, partial, Results, refsIn, secretFields, Timestamp, Uuid } from './schema.ts'
import { check } from './validate.ts'

export type Spec = Record<string, unknown>

/** What a write is about; `previous` is null for a create. */
export interface Change {
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
  /** Answer the configuration as it is kept (default), or only `columns`. */
  wholeSpec?: boolean
  audit: { target: string; subTarget?: string }
  /** Checks and completes a configuration before it is written; throws the caller's error. */
  validate?(spec: Spec, context: Context, change: Change): Promise<Spec> | Spec
  /** Last touch to a record made by SQL. */
  view?(record: Spec): Spec
  /** Writes what belongs to the row, in its transaction. */
  written?(tx: Queryable, spec: Spec & { name: string }, context: Context, change: Change): Promise<void>
  /** Throws when the row must not go; may say that it went already. */
  onDelete?(tx: Queryable, context: Context): Promise<'gone' | undefined>
}

export interface Resource {
  operations: Operation[]
  /** Schema of a record. */
  answer: TObject
  /** SQL of a record over `n`, as text. */
  recordText: string
  /** The row of this kind by the path. */
  owner: Owner
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

const sealAll = async (context: Context, id: string, fields: readonly string[], spec: Spec) => {
  const sealed: Record<string, string> = {}
  const open = { ...spec }
  for (const field of fields) {
    const value = open[field]
    delete open[field]
    if (typeof value !== 'string') continue
    const place = { table: 'node', row: id, column: field }
    sealed[field] = await context.parts.sealer.seal(context.principal.organizationId, place, value)
  }
  return { open, sealed }
}

const withoutName = ({ name: _, ...rest }: Spec): Spec => rest

export const resource = (definition: ResourceDefinition): Resource => {
  const { kind, spec: schema, ids, words } = definition
  const secrets = secretFields(schema)
  const recordText = recordSql(definition.columns, definition.wholeSpec ?? true)
  const stamps = { id: Uuid(), created_at: Timestamp(), updated_at: Timestamp() }
  const kept = merge(schema, { ...stamps, ...definition.record }, [...secrets])
  const answer = relax(kept, ['id', 'created_at', 'name', ...Object.keys(definition.record)], definition.record)
  const parentIsOrganization = definition.parent.kind === 'organization'
  const parentOwner = parentIsOrganization
    ? organizationInPath
    : nodeInPath(definition.parent.kind, definition.parent.param)
  const nested =
    parentIsOrganization && kind !== 'organization' && definition.item.includes('{organizationId}')
      ? 'organizationId'
      : null
  const owner = nodeInPath(kind, definition.param, nested)
  const insert = insertSql(kind, definition.nameScope ?? kind, recordText)
  const update = updateSql(recordText)
  const list = listSql(kind, recordText)

  const show = (text: string): JsonText | Spec =>
    definition.view === undefined ? new JsonText(text) : definition.view(JSON.parse(text) as Spec)

  const create = async (context: Context): Promise<unknown> => {
    const parent = context.node
    const change: Change = { id: newId(), parent, previous: null }
    await checkRefs(context.db, schema, context.body, context.principal.organizationId)
    const spec = (await definition.validate?.(context.body, context, change)) ?? context.body
    const { open, sealed } = await sealAll(context, change.id, secrets, spec)
    const audit = auditOf(context, 'CREATE', definition.audit, placeOf(parent), open)
    const { organizationId, tokenId } = context.principal
    const name = String(open.name)
    const row = { id: change.id, organizationId, parentId: parent.id, name, sealed, updatedBy: tokenId }
    const work = async (db: Queryable): Promise<unknown> => {
      const text = await insertNode(db, insert, { ...row, spec: withoutName(open) }, audit).catch((error: unknown) => {
        throw translateWrite(error)
      })
      await definition.written?.(db, { ...open, name }, context, change)
      return show(text)
    }
    return definition.written === undefined ? context.write(work) : context.transaction(work)
  }

  const edit = async (context: Context): Promise<unknown> => {
    const { node } = context
    const parent = { ...node, id: node.parentId ?? node.organizationId, kind: definition.parent.kind }
    const sent = context.body as Spec
    await checkRefs(context.db, schema, sent, context.principal.organizationId)
    const { open, sealed } = await sealAll(context, node.id, secrets, sent)
    return context.transaction(async (tx) => {
      const previous = await lockNode(tx, node.id)
      if (previous === null) throw notFound()
      const merged = { ...previous.spec, name: previous.name, ...open }
      const change: Change = { id: node.id, parent, previous }
      const spec = (await definition.validate?.(merged, context, change)) ?? merged
      const content = { name: String(spec.name), spec: withoutName(spec), sealed: { ...previous.sealed, ...sealed } }
      const audit = auditOf(context, 'UPDATE', definition.audit, placeOf(node), open)
      const text = await updateNode(tx, update, node.id, content, context.principal.tokenId, audit).catch(
        (error: unknown) => {
          throw translateWrite(error)
        },
      )
      await definition.written?.(tx, { ...spec, name: content.name }, context, change)
      return show(text)
    })
  }

  const remove = (context: Context): Promise<unknown> =>
    context.transaction(async (tx) => {
      if ((await definition.onDelete?.(tx, context)) === 'gone') return undefined
      const audit = auditOf(context, 'DELETE', definition.audit, placeOf(context.node), null)
      if (!(await deleteNode(tx, context.node.id, audit))) throw notFound()
      return undefined
    })

  const editSchema = partial(merge(schema, {}, [...(definition.notEditable ?? [])]))
  const reads = definition.reads === undefined ? {} : { reads: definition.reads }
  const common = { tag: definition.tag }
  const [one, many] = words
  const operations: Operation[] = []
  const add = (id: string | undefined, operation: Omit<Operation, 'id' | 'tag'>): void => {
    if (id !== undefined) operations.push({ id, ...common, ...operation })
  }
  add(ids.list, {
    method: 'GET',
    path: definition.collection,
    summary: `List ${many}`,
    scope: 'Read',
    ...reads,
    owner: parentOwner,
    status: 200,
    answer: Results(answer),
    async run(context) {
      const [row] = await context.db.query<{ text: string }>(list, [context.node.id])
      if (definition.view === undefined) return new JsonText(row!.text)
      const { results } = JSON.parse(row!.text) as { results: Spec[] }
      return { results: results.map(definition.view) }
    },
  })
  add(ids.create, {
    method: 'POST',
    path: definition.collection,
    summary: `Create ${one}`,
    scope: 'Write',
    owner: parentOwner,
    body: schema,
    defaults: true,
    status: definition.createStatus ?? 201,
    answer,
    run: create,
  })
  add(ids.read, {
    method: 'GET',
    path: definition.item,
    summary: `Read ${one}`,
    scope: 'Read',
    ...reads,
    owner: nodeInPath(kind, definition.param, nested, recordText),
    status: 200,
    answer,
    run: async (context) => show(context.node.record!),
  })
  add(ids.edit, {
    method: 'PUT',
    path: definition.item,
    summary: `Change ${one}; fields left out keep their values`,
    scope: 'Write',
    owner,
    body: editSchema,
    status: 200,
    answer,
    run: edit,
  })
  add(ids.remove, {
    method: 'DELETE',
    path: definition.item,
    summary: `Delete ${one}`,
    scope: 'Admin',
    owner,
    status: 204,
    run: remove,
  })
  return { operations, answer, recordText, owner }
}

/** The same fields, of which only `required` must be there (and, of the record's own, those not marked optional). */
const relax = (schema: TObject, required: readonly string[], record: Record<string, TSchema>): TObject => {
  const wanted = new Set(required.filter((name) => !(name in record) || !Type.IsOptional(record[name]!)))
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name,
    wanted.has(name) ? Type.Unsafe(withoutOptional(inner as TSchema)) : Type.Optional(inner as TSchema),
  ])
  return Type.Object(Object.fromEntries(fields) as Record<string, TSchema>) as unknown as TObject
}

const withoutOptional = (schema: TSchema): TSchema => {
  const copy = { ...schema } as Record<string, unknown>
  delete copy['~optional']
  return copy as unknown as TSchema
}

/** Checks a merged configuration against the schema of a create. */
export const checkWhole = (schema: TObject, spec: Spec): void => check(schema, spec)
