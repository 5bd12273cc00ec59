/**
 * The writes of a resource: create, edit, delete. Each is one transaction (or one statement, for a create of a kind
 * without `written`) with its audit row; secrets are sealed before it begins.
 */
import type { TObject, TSchema } from 'typebox'
import { conflict, invalidField, notFound } from '../../lib/errors.ts'
import { isUuid, newId } from '../../lib/ids.ts'
import { type Queryable, sqlState } from '../../store/database.ts'
import type { ListForm } from '../../store/long-list.ts'
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
} from '../../store/tree.ts'
import type { Area, ClusterLevel } from '../auth/permissions.ts'
import { actorOf } from '../auth/principal.ts'
import { refuseMarked } from './effects.ts'
import { type Context, type FieldsOf, JsonText, type Scope } from './operation.ts'
import { refsIn, secretPaths } from './schema.ts'

export type Spec = Record<string, unknown>

/** The row that is written; `previous` is null for a create. */
export interface Change<Kept = Spec> {
  /** For reads: inside the write's transaction once that has begun, so that they need no other connection. */
  db: Queryable
  id: string
  parent: Node
  previous: (Omit<Content, 'spec'> & { spec: Kept }) | null
}

export const verbs = ['list', 'create', 'read', 'edit', 'remove'] as const
export type Verb = (typeof verbs)[number]

/** Writes what goes with a row, in its transaction; returns the row's record completed with it. */
export type CompanionWrite = (tx: Queryable, record: Spec) => Promise<Spec>

export type Answered = JsonText | Spec

export type Write = (context: Context, along?: CompanionWrite) => Promise<Answered>

/** `Schema` is the body of a create, `Kept` the result of `validate`. */
export interface ResourceDefinition<Schema extends TObject = TObject, Kept = FieldsOf<Schema>> {
  kind: string
  parent: { kind: string; param: string }
  /** Names are unique among rows of one scope; default the kind. */
  nameScope?: string
  tag: string
  /** For the list and the create, if different. */
  collectionTag?: string
  /** Singular and plural, for summaries. */
  words: [string, string]
  collection: string
  item: string
  param: string
  /** OpenAPI ids; an operation without one does not exist. */
  ids: Partial<Record<Verb, string>>
  /** The area of permissions of all five, or of those of the collection (list, create) and of the others. */
  area: Area | { collection: Area; item: Area }
  /** Scopes that differ from the usual: Write, and Admin for a delete. */
  scopes?: Partial<Record<Verb, Scope>>
  /** The level that a create needs on the cluster that its row will be on (`Need.cluster`). */
  createNeeds?: { cluster: ClusterLevel; modeInBody: true }
  createStatus?: 200 | 201
  reads?: 'sensitive'
  /** The fields of a create, `name` included. */
  spec: Schema
  /** Fields that keep their value for life, and the words for it: an edit may repeat the value, and refuses another. */
  fixed?: Readonly<Record<string, string>>
  /** Fields of `spec` that `validate` makes: no request can name them. */
  generated?: readonly string[]
  /** The query of a delete. */
  removeQuery?: TObject
  /** The fields of a record besides id, timestamps and the fields of `spec`. */
  record: Record<string, TSchema>
  /** SQL for the fields of `record`, over the row `n`. */
  columns: Record<string, string>
  /** SQL to join what `columns` needs besides `n`. */
  joins?: string
  /** False: records have only `columns`, each SQL for JSON text that is never null. */
  wholeSpec?: boolean
  audit: { target: string; subTarget?: string }
  /** Checks and completes a configuration before it is written; throws an `ApiError`. */
  validate?(spec: FieldsOf<Schema>, context: Context, change: Change<NoInfer<Kept>>): Promise<Kept> | Kept
  /** Wraps a create or edit with work before or after it; calls `write` once. */
  around?(context: Context, write: Write): Promise<Answered>
  /** For long lists: how they build their records; the same as `columns` builds. */
  list?: ListForm
  /** Data that a create reads together with the parent, as the parent's `record`. */
  parentRecord?: RecordSql
  /** The query of the list, and which of its records are answered then. */
  listQuery?: TObject
  listed?(context: Context, records: Spec[]): Promise<Spec[]>
  /** Final changes to a record made by SQL, for the caller of the request if there is one. */
  view?(record: NoInfer<Kept> & Spec, context?: Context): Spec
  /** Writes what belongs to the row, in its transaction. */
  written?(
    tx: Queryable,
    spec: NoInfer<Kept> & { name: string },
    context: Context,
    change: Change<NoInfer<Kept>>,
  ): Promise<void>
  /** The last check of the written rows, in their transaction: throws to refuse them. */
  judge?(tx: Queryable, context: Context, change: Change<NoInfer<Kept>>): Promise<void>
  /** Throws when the row must not be deleted; may say that it has already been deleted. */
  onDelete?(tx: Queryable, context: Context): Promise<'gone' | undefined>
}

export const auditOf = (
  context: Context,
  eventType: Audit['eventType'],
  target: { target: string; subTarget?: string },
  place: { projectId: string | null; environmentId: string | null },
  change: unknown,
  original: unknown = null,
): Audit => ({
  eventId: newId(),
  eventType,
  targetType: target.target,
  subTargetType: target.subTarget ?? null,
  ...place,
  change: change === null ? null : JSON.stringify(change),
  original: original === null ? null : JSON.stringify(original),
  origin: context.origin,
  triggeredBy: context.principal.name,
  ...(context.isOwn === true ? ({ actorType: 'SYSTEM', actorId: null } as const) : actorOf(context.principal)),
  userAgent: context.userAgent,
  requestId: context.requestId,
})

/** The project and environment that a row is, or is in. */
export const placeOf = (node: Node): { projectId: string | null; environmentId: string | null } => {
  if (node.kind === 'organization') return { projectId: null, environmentId: null }
  if (node.kind === 'project') return { projectId: node.id, environmentId: null }
  if (node.kind === 'environment') return { projectId: node.parentId, environmentId: node.id }
  const inEnvironment = node.grandparentId !== null && node.grandparentId !== node.organizationId
  return inEnvironment
    ? { projectId: node.grandparentId, environmentId: node.parentId }
    : { projectId: null, environmentId: null }
}

/** Turns a constraint violation into an `ApiError`. */
export const translateWrite = (error: unknown): unknown => {
  const state = sqlState(error)
  if (state === '23505')
    return conflict('name_taken', 'This name is taken: names are unique here, whatever their case.')
  if (state === '23503') return notFound()
  return error
}

/** Every id in a configuration must be a row of the right kind in the same organization. */
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

/** Seals the secrets of a configuration for the row `id`; returns the rest in clear. */
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

/** The record made by SQL, as it is answered. */
export const showRecord = (definition: ResourceDefinition, text: string, context: Context): Answered =>
  definition.view === undefined ? new JsonText(text) : definition.view(JSON.parse(text) as Spec, context)

const wrapped =
  ({ around = (context, write) => write(context) }: ResourceDefinition, write: Write) =>
  (context: Context): Promise<Answered> =>
    around(context, write)

const orTranslated = (writing: Promise<string>): Promise<string> =>
  writing.catch((error: unknown) => {
    throw translateWrite(error)
  })

const answerOf = async (
  definition: ResourceDefinition,
  text: string,
  context: Context,
  tx: Queryable,
  along: CompanionWrite | undefined,
) => {
  const record = showRecord(definition, text, context)
  if (along === undefined) return record
  return along(tx, record instanceof JsonText ? (JSON.parse(record.text) as Spec) : record)
}

/** Creates rows of a kind; `recordText` is the SQL of its record. */
export const creator = (definition: ResourceDefinition, recordText: RecordSql) =>
  wrapped(definition, createOf(definition, recordText))

const createOf = (definition: ResourceDefinition, recordText: RecordSql): Write => {
  const { spec: schema, kind } = definition
  const secrets = secretPaths(schema)
  const insert = insertSql(kind, definition.nameScope ?? kind, recordText)
  return async (context, along) => {
    const parent = context.node
    const change: Change = { db: context.db, id: newId(), parent, previous: null }
    await checkRefs(context.db, schema, context.body, context.principal.organizationId)
    const spec = (await definition.validate?.(context.body, context, change)) ?? context.body
    const { open, sealed } = await sealAll(context, change.id, secrets, spec)
    const audit = auditOf(context, 'CREATE', definition.audit, placeOf(parent), open)
    const { organizationId, tokenId } = context.principal
    const name = String(open.name)
    const row = { id: change.id, organizationId, parentId: parent.id, name, sealed, updatedBy: tokenId }
    const work = async (db: Queryable): Promise<Answered> => {
      const text = await orTranslated(insertNode(db, insert, { ...row, spec: withoutName(open) }, audit))
      await definition.written?.(db, { ...open, name }, context, change)
      await definition.judge?.(db, context, change)
      return answerOf(definition, text, context, db, along)
    }
    const isOne = definition.written === undefined && along === undefined
    return isOne ? context.write(work) : context.transaction(work)
  }
}

const sameText = (a: unknown, b: unknown): boolean =>
  JSON.stringify(a)?.toLowerCase() === JSON.stringify(b)?.toLowerCase()

/** The body without fixed fields; throws if one differs from its stored value. */
const withoutFixed = ({ fixed = {} }: ResourceDefinition, body: Spec, kept: Spec): Spec => {
  for (const [field, as] of Object.entries(fixed)) {
    const sent = body[field]
    if (sent !== undefined && sent !== null && kept[as] !== undefined && !sameText(sent, kept[as]))
      throw invalidField(`/${field}`, 'cannot be changed after creation')
  }
  return Object.fromEntries(Object.entries(body).filter(([field]) => fixed[field] === undefined))
}

/** The fields of a change as they were before it, without those that had no value. */
export const valuesBefore = ({ name, spec }: Omit<Content, 'sealed'>, changes: object): Spec => {
  const kept: Spec = { ...spec, name }
  return Object.fromEntries(Object.keys(changes).flatMap((key) => (key in kept ? [[key, kept[key]]] : [])))
}

/** Changes rows of a kind: fields missing in the body are kept. */
export const editor = (definition: ResourceDefinition, recordText: RecordSql) =>
  wrapped(definition, changeOf(definition, recordText))

const changeOf = (definition: ResourceDefinition, recordText: RecordSql): Write => {
  const secrets = secretPaths(definition.spec)
  const update = updateSql(recordText)
  return async (context, along) => {
    const { node, principal } = context
    const parent = { ...node, id: node.parentId ?? node.organizationId, kind: definition.parent.kind }
    await checkRefs(context.db, definition.spec, context.body, principal.organizationId)
    const { open, sealed } = await sealAll(context, node.id, secrets, context.body)
    return context.transaction(async (tx) => {
      const previous = await lockNode(tx, node.id)
      if (previous === null) throw notFound()
      const changes = withoutFixed(definition, open, previous.spec)
      refuseMarked(definition.spec, changes, previous.spec)
      const merged = { ...previous.spec, name: previous.name, ...changes }
      const change: Change = { db: tx, id: node.id, parent, previous }
      const spec = (await definition.validate?.(merged, context, change)) ?? merged
      const content = { name: String(spec.name), spec: withoutName(spec), sealed: { ...previous.sealed, ...sealed } }
      const audit = auditOf(
        context,
        'UPDATE',
        definition.audit,
        placeOf(node),
        changes,
        valuesBefore(previous, changes),
      )
      const text = await orTranslated(updateNode(tx, update, node.id, content, principal.tokenId, audit))
      await definition.written?.(tx, { ...spec, name: content.name }, context, change)
      await definition.judge?.(tx, context, change)
      return answerOf(definition, text, context, tx, along)
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
