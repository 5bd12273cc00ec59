/**
 * Five operations from one description of a kind: list, create, read, edit, delete. Promises unique names (409), an
 * audit row in the transaction of every write, sealed secrets, references that stay in the organization. What a kind
 * needs beyond that it says in `validate`, `view`, `written` and `onDelete`, or it writes the operation by hand.
 */
import Type, { type TObject, type TSchema } from 'typebox'
import { listSql, type RecordSql, recordSql, textRecordSql } from '../store/tree.ts'
import { longListOf } from './long-list.ts'
import { JsonText, nodeInPath, type Operation, type Owner, organizationInPath } from './operation.ts'
import { creator, editor, type ResourceDefinition, remover, type Spec, showRecord } from './resource-writes.ts'
import { merge, partial, Results, Timestamp, Uuid, withoutSecrets } from './schema.ts'

export {
  auditOf,
  type Change,
  checkRefs,
  placeOf,
  type ResourceDefinition,
  type Spec,
  translateWrite,
} from './resource-writes.ts'

export interface Resource {
  operations: Operation[]
  /** Schema of a record. */
  answer: TObject
  /** SQL of a record. */
  recordText: RecordSql
  /** The row of this kind by the path. */
  owner: Owner
}

type Bare = Omit<Operation, 'id' | 'tag'>

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

const readsOf = ({ reads }: ResourceDefinition) => (reads === undefined ? {} : { reads })

const shortListOf = ({ definition, recordText, parentOwner }: Known): Pick<Bare, 'owner' | 'run'> => {
  const list = listSql(definition.kind, recordText)
  return {
    owner: parentOwner,
    async run({ db, node }) {
      const [row] = await db.query<{ text: string }>(list, [node.id])
      if (definition.view === undefined) return new JsonText(row!.text)
      const { results } = JSON.parse(row!.text) as { results: Spec[] }
      return { results: results.map(definition.view) }
    },
  }
}

const listOf = (known: Known): Bare => {
  const { definition, answer } = known
  const { list, kind, parent } = definition
  return {
    method: 'GET',
    path: definition.collection,
    summary: `List ${definition.words[1]}`,
    scope: 'Read',
    ...readsOf(definition),
    status: 200,
    answer: Results(answer),
    ...(list === undefined ? shortListOf(known) : longListOf(list, kind, parent)),
  }
}

const createOf = ({ definition, recordText, answer, createOwner, title }: Known): Bare => ({
  method: 'POST',
  path: definition.collection,
  summary: `Create ${definition.words[0]}`,
  scope: 'Write',
  owner: createOwner,
  body: titled(definition.spec, `${title}Request`),
  defaults: true,
  status: definition.createStatus ?? 201,
  answer,
  run: creator(definition, recordText),
})

const readOf = ({ definition, answer, readOwner }: Known): Bare => ({
  method: 'GET',
  path: definition.item,
  summary: `Read ${definition.words[0]}`,
  scope: 'Read',
  ...readsOf(definition),
  owner: readOwner,
  status: 200,
  answer,
  run: async (context) => showRecord(definition, context.node.record!),
})

const editOf = ({ definition, recordText, answer, owner, title }: Known): Bare => ({
  method: 'PUT',
  path: definition.item,
  summary: `Change ${definition.words[0]}; fields left out keep their values`,
  scope: 'Write',
  owner,
  body: titled(partial(merge(definition.spec, {}, definition.notEditable)), `${title}EditRequest`),
  status: 200,
  answer,
  run: editor(definition, recordText),
})

const removeOf = ({ definition, owner }: Known): Bare => ({
  method: 'DELETE',
  path: definition.item,
  summary: `Delete ${definition.words[0]}`,
  scope: 'Admin',
  owner,
  status: 204,
  run: remover(definition),
})

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
  // The path of an item may name its parent too: then both must fit.
  const nested = kind !== 'organization' && item.includes(`{${parent.param}}`) ? parent.param : null
  const parentOwner = inOrganization ? organizationInPath : nodeInPath(parent.kind, parent.param)
  return {
    parentOwner,
    createOwner: parentRecord === undefined ? parentOwner : nodeInPath(parent.kind, parent.param, null, parentRecord),
    owner: nodeInPath(kind, param, nested),
    readOwner: nodeInPath(kind, param, nested, recordText),
  }
}

export const resource = (definition: ResourceDefinition): Resource => {
  const make = definition.wholeSpec === false ? textRecordSql : recordSql
  const recordText = make(definition.columns, definition.joins)
  const answer = answerOf(definition)
  const owners = ownersOf(definition, recordText)
  const known: Known = { definition, title: pascal(definition.kind), answer, recordText, ...owners }
  const { ids, tag } = definition
  const parts = [
    [ids.list, listOf],
    [ids.create, createOf],
    [ids.read, readOf],
    [ids.edit, editOf],
    [ids.remove, removeOf],
  ] as const
  const operations = parts.flatMap(([id, part]) => (id === undefined ? [] : [{ id, tag, ...part(known) }]))
  return { operations, answer, recordText, owner: owners.owner }
}

/** The same fields, of which only `required` must be there (and, of the record's own, those not marked optional). */
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
  return Type.Object(Object.fromEntries(fields) as Record<string, TSchema>, { title }) as unknown as TObject
}

const titled = (schema: TObject, title: string): TObject => ({ ...schema, title }) as TObject

const withoutOptional = (schema: TSchema): TSchema => {
  const copy = { ...schema } as Record<string, unknown>
  delete copy['~optional']
  return copy as unknown as TSchema
}
