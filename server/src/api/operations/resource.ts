/**
 * Five operations from one description of a kind: list, create, read, edit, delete. Promises unique names (409), an
 * audit row in the transaction of every write, sealed secrets, and references that stay in the organization. A kind
 * adds what it needs in `validate`, `view`, `written` and `onDelete`, or writes the operation by hand.
 */
import Type, { type TObject, type TProperties, type TSchema } from 'typebox'
import { notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import { type ListForm, longList } from '../../store/long-list.ts'
import { listSql, type Node, type RecordSql, recordSql, textRecordSql } from '../../store/tree.ts'
import type { Area, Need } from '../auth/permissions.ts'
import {
  type Context,
  editing,
  etagOf,
  type FieldsOf,
  JsonText,
  nodeInPath,
  type Operation,
  type Owner,
  operation,
  organizationInPath,
  reading,
  removing,
} from './operation.ts'
import {
  creator,
  editor,
  type ResourceDefinition,
  remover,
  type Spec,
  showRecord,
  type Verb,
  verbs,
} from './resource-writes.ts'
import { merge, Nullable, partial, Results, Timestamp, Uuid, withoutSecrets } from './schema.ts'

// Long lists: read together with their parent in one statement. With If-None-Match only their version is read first, so
// that a 304 builds no list. Both statements check the organization.
/** Represents a list whose version the caller already has: only its ETag is sent. */
const unchanged = '{"results":[]}'

/** Owners and run of the operation that lists the rows of `kind` below a parent. */
const longListOf = (
  form: ListForm,
  kind: string,
  parent: { kind: string; param: string },
): { owner: Owner; versionOwner: Owner; run(context: Context): Promise<JsonText> } => {
  const list = longList(kind, parent.kind, form)
  const read = async (db: Queryable, id: string, organizationId: string): Promise<Node | null> => {
    const found = await list.read(db, id, organizationId)
    const node = { id, organizationId, kind: parent.kind, parentId: null, grandparentId: null, name: '' }
    return found === null ? null : { ...node, record: found.text, version: found.version }
  }
  const versionOwner = nodeInPath(parent.kind, parent.param, null, list.version)
  const owner: Owner = {
    ...versionOwner,
    async find(db, params, { organizationId }) {
      const id = params[parent.param]
      return typeof id === 'string' && isUuid(id) ? read(db, id.toLowerCase(), organizationId) : null
    },
  }
  return {
    owner,
    versionOwner,
    async run({ db, node, headers }) {
      if (node.version !== undefined) return new JsonText(node.record!, node.version)
      if (headers['if-none-match'] === etagOf(node.record!)) return new JsonText(unchanged, node.record!)
      const found = await read(db, node.id, node.organizationId)
      if (found === null) throw notFound()
      return new JsonText(found.record!, found.version!)
    },
  }
}

export {
  type Answered,
  auditOf,
  type Change,
  type CompanionWrite as Along,
  checkRefs,
  placeOf,
  type ResourceDefinition,
  type Spec,
  translateWrite,
  type Verb,
  valuesBefore,
  type Write,
} from './resource-writes.ts'

interface Resource {
  /** Those that have an id. */
  operations: Operation[]
  /** Schema of a record. */
  answer: TObject
  recordText: RecordSql
  owner: Owner
}

interface Known {
  definition: ResourceDefinition
  title: string
  answer: TObject
  recordText: RecordSql
  parentOwner: Owner
  createOwner: Owner
  owner: Owner
  readOwner: Owner
}

const usualScopes: Record<Verb, Need['scope']> = {
  list: 'Read',
  create: 'Write',
  read: 'Read',
  edit: 'Write',
  remove: 'Admin',
}

const isOfCollection = (verb: Verb): boolean => verb === 'list' || verb === 'create'

const areaOf = ({ area }: ResourceDefinition, verb: Verb): Area => {
  if (typeof area === 'string') return area
  return isOfCollection(verb) ? area.collection : area.item
}

/** The declaration of each of the five besides its schemas and its run. */
const headOf = (definition: ResourceDefinition, verb: Verb) => {
  const { tag, collectionTag = tag, collection, item, ids, scopes, reads } = definition
  const scope = scopes?.[verb] ?? usualScopes[verb]
  const area = areaOf(definition, verb)
  return {
    id: ids[verb]!,
    tag: isOfCollection(verb) ? collectionTag : tag,
    path: isOfCollection(verb) ? collection : item,
    scope,
    area,
    ...(area === 'clusters' ? { cluster: scope === 'Read' ? ('VIEWER' as const) : ('ADMIN' as const) } : {}),
    ...(reads === undefined || (verb !== 'list' && verb !== 'read') ? {} : { reads }),
  }
}

const shortListOf = ({ definition, recordText, parentOwner }: Known) => {
  const list = listSql(definition.kind, recordText)
  return {
    owner: parentOwner,
    async run(context: Context) {
      const { view, listed } = definition
      const [row] = await context.db.query<{ text: string }>(list, [context.node.id])
      if (view === undefined && listed === undefined) return new JsonText(row!.text)
      const { results } = JSON.parse(row!.text) as { results: Spec[] }
      const shown = view === undefined ? results : results.map((record) => view(record, context))
      return { results: (await listed?.(context, shown)) ?? shown }
    },
  }
}

const listOf = (known: Known): Operation => {
  const { definition, answer } = known
  const { list, kind, parent } = definition
  return operation({
    ...reading,
    ...headOf(definition, 'list'),
    summary: `List ${definition.words[1]}`,
    ...(definition.listQuery === undefined ? {} : { query: definition.listQuery }),
    answer: Results(answer),
    ...(list === undefined ? shortListOf(known) : longListOf(list, kind, parent)),
  })
}

const createOf = ({ definition, recordText, answer, createOwner, title }: Known): Operation =>
  operation({
    ...headOf(definition, 'create'),
    ...definition.createNeeds,
    method: 'POST',
    summary: `Create ${definition.words[0]}`,
    owner: createOwner,
    body: titled(merge(definition.spec, {}, definition.generated), `${title}Request`),
    defaults: true,
    status: definition.createStatus ?? 201,
    answer,
    run: creator(definition, recordText),
  })

const readOf = ({ definition, answer, readOwner }: Known): Operation =>
  operation({
    ...reading,
    ...headOf(definition, 'read'),
    summary: `Read ${definition.words[0]}`,
    owner: readOwner,
    answer,
    run: async (context) => showRecord(definition, context.node.record!, context),
  })

const editOf = ({ definition, recordText, answer, owner, title }: Known): Operation => {
  const { spec, fixed = {}, generated = [] } = definition
  const kept = Object.fromEntries(Object.keys(fixed).map((name) => [name, Nullable(spec.properties[name]!)]))
  return operation({
    ...editing,
    ...headOf(definition, 'edit'),
    summary: `Change ${definition.words[0]}; omitted fields keep their values`,
    owner,
    body: titled(partial(merge(spec, kept, generated)), `${title}EditRequest`),
    refusesMarked: true,
    answer,
    run: editor(definition, recordText),
  })
}

const removeOf = ({ definition, owner }: Known): Operation =>
  operation({
    ...removing,
    ...headOf(definition, 'remove'),
    summary: `Delete ${definition.words[0]}`,
    owner,
    ...(definition.removeQuery === undefined ? {} : { query: definition.removeQuery }),
    run: remover(definition),
  })

const makers: Record<Verb, (known: Known) => Operation> = {
  list: listOf,
  create: createOf,
  read: readOf,
  edit: editOf,
  remove: removeOf,
}

const pascal = (kind: string): string => kind.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase())

const answerOf = (definition: ResourceDefinition): TObject => {
  const stamps = { id: Uuid(), created_at: Timestamp(), updated_at: Timestamp() }
  const kept = merge(withoutSecrets(definition.spec), { ...stamps, ...definition.record })
  const required = ['id', 'created_at', 'name', ...Object.keys(definition.record)]
  return relax(pascal(definition.kind), kept, required, definition.record)
}

const ownersOf = (definition: ResourceDefinition, recordText: RecordSql) => {
  const { kind, param, parent, item, parentRecord } = definition
  const inOrganization = parent.kind === 'organization'
  // The path of an item may name its parent too: then both must match.
  const nested = kind !== 'organization' && item.includes(`{${parent.param}}`) ? parent.param : null
  const parentOwner = inOrganization ? organizationInPath : nodeInPath(parent.kind, parent.param)
  return {
    parentOwner,
    createOwner: parentRecord === undefined ? parentOwner : nodeInPath(parent.kind, parent.param, null, parentRecord),
    owner: nodeInPath(kind, param, nested),
    readOwner: nodeInPath(kind, param, nested, recordText),
  }
}

/**
 * Its functions are called only with values that its own schema admitted and its own `validate` returned, so the types
 * can be erased here.
 */
const erased = <Schema extends TObject, Kept>(definition: ResourceDefinition<Schema, Kept>): ResourceDefinition =>
  definition as unknown as ResourceDefinition

export const resource = <Schema extends TObject, Kept = FieldsOf<Schema>>(
  given: ResourceDefinition<Schema, Kept>,
): Resource => {
  const definition = erased(given)
  const make = definition.wholeSpec === false ? textRecordSql : recordSql
  const recordText = make(definition.columns, definition.joins)
  const answer = answerOf(definition)
  const owners = ownersOf(definition, recordText)
  const known: Known = { definition, title: pascal(definition.kind), answer, recordText, ...owners }
  const operations = verbs.filter((verb) => definition.ids[verb] !== undefined).map((verb) => makers[verb](known))
  return { operations, answer, recordText, owner: owners.owner }
}

/** The same fields, of which only `required` are mandatory (and, of the record's own, those not marked optional). */
const relax = (
  title: string,
  schema: TObject,
  required: readonly string[],
  record: Record<string, TSchema>,
): TObject => {
  const wanted = new Set(required.filter((name) => !(name in record) || !Type.IsOptional(record[name]!)))
  const fields = Object.entries(schema.properties).map(([name, inner]) => [
    name,
    wanted.has(name) ? Type.Unsafe(withoutOptional(inner as TSchema)) : Type.Optional(inner as TSchema),
  ])
  return Type.Object<TProperties>(Object.fromEntries(fields), { title })
}

const titled = (schema: TObject, title: string): TObject => ({ ...schema, title }) as TObject

const withoutOptional = (schema: TSchema): TSchema => {
  const copy = { ...schema } as Record<string, unknown>
  delete copy['~optional']
  return copy
}
