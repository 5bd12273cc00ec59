/**
 * Variables and secrets by path: the same twelve operations (and an import for services) for every kind that can have
 * them. Reads return all that is visible at the place; writes change only what is set at the place itself.
 */
import Type, { type TObject } from 'typebox'
import {
  type Context,
  creating,
  type Fields,
  nodeInPath,
  type Operation,
  operation,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { Flag, List, Maybe, OneOf, Results, Text } from '../../api/operations/schema.ts'
import type { Kind } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { createAlias, createOverride, createVariable, deleteVariable, editVariable } from '../../variables/change.ts'
import type { PlaceInContext } from '../../variables/places.ts'
import { listVisible, type VariableRecord } from '../../variables/records.ts'
import { importVariables } from './import.ts'
import {
  aliasBody,
  createBody,
  editBody,
  editVariableBody,
  overrideBody,
  secretAnswer,
  showSecret,
  showVariable,
  traceRecords,
  Value,
  variableAnswer,
  withService,
} from './records.ts'
import { readOwnRow, readPlace, readPlaceInContext, variableScopes, writeRow } from './writes.ts'

interface VariableFacet {
  /** The kind of the tree row and first part of the path: `application`. */
  kind: Kind | 'project' | 'environment'
  /** Its name in operation ids: `Application`. */
  word: string
  /** The OpenAPI id of the import; only services have one. */
  importId?: string
}

/** The two fields that every write of a variable accepts. */
interface Extras {
  description?: string | null
  enable_interpolation_in_file?: boolean | null
}

export const extrasOf = ({ description, enable_interpolation_in_file }: Extras) => ({
  description,
  interpolateInFile: enable_interpolation_in_file,
})

type MakeDependent<Body extends Fields> = (
  context: Context<Body>,
  here: PlaceInContext,
  id: string,
) => (tx: Queryable) => Promise<VariableRecord>

interface Family {
  isSecret: boolean
  path: string
  param: string
  list: string
  /** Operation ids have this word between verb and suffix. */
  noun: string
  one: string
  tag: string
  answer: TObject
  edit: typeof editVariableBody | typeof editBody
  show: typeof showVariable | typeof showSecret
}

const variableFamily = ({ word }: VariableFacet): Family => ({
  isSecret: false,
  path: 'environmentVariable',
  param: 'environmentVariableId',
  list: `list${word}EnvironmentVariable`,
  noun: `${word}EnvironmentVariable`,
  one: 'a variable',
  tag: word === 'Environment' ? 'Environment Variable' : `${word} Environment Variable`,
  answer: variableAnswer,
  edit: editVariableBody,
  show: showVariable,
})

const secretFamily = ({ word }: VariableFacet): Family => ({
  isSecret: true,
  path: 'secret',
  param: 'secretId',
  list: `list${word}Secrets`,
  noun: `${word}Secret`,
  one: 'a secret',
  tag: `${word} Secret`,
  answer: secretAnswer,
  edit: editBody,
  show: showSecret,
})

const handlersOf = (family: Family) => {
  const { isSecret, param } = family
  const place = (context: Context) => readPlace(context, context.node.id)
  const inContext = (context: Context) => readPlaceInContext(context, context.node.id)
  const own = (context: Context) => readOwnRow(context, context.node.id, context.params[param]!, isSecret)

  const list = async (context: Context) => {
    const here = await inContext(context)
    const all = traceRecords(here, await listVisible(context.db, here.parents))
    return { results: all.filter((row) => row.is_secret === isSecret).map(family.show) }
  }
  const create = async (context: Context<Type.Static<typeof createBody>>) => {
    const here = await place(context)
    const { body } = context
    const wanted = { key: body.key, value: body.value ?? '', isSecret, mountPath: body.mount_path, ...extrasOf(body) }
    const work = (tx: Queryable) => createVariable(tx, context.parts.sealer, here, wanted)
    return writeRow(context, here, 'CREATE', work, (row) => family.show(withService(here, row)))
  }
  const edit = async (context: Context<Type.Static<typeof editVariableBody>>) => {
    const [here, row] = [await place(context), await own(context)]
    const { body } = context
    const work = (tx: Queryable) =>
      editVariable(tx, context.parts.sealer, row, { ...body, mountPath: body.mount_path, ...extrasOf(body) })
    return writeRow(context, here, 'UPDATE', work, (made) => family.show(withService(here, made)))
  }
  const remove = async (context: Context) => {
    const [here, row] = [await place(context), await own(context)]
    const work = (tx: Queryable) => deleteVariable(tx, row).then(() => row)
    return writeRow(context, here, 'DELETE', work, () => undefined)
  }
  const depend =
    <Body extends Fields>(make: MakeDependent<Body>) =>
    async (context: Context<Body>) => {
      const here = await inContext(context)
      const id = context.params[param]!.toLowerCase()
      return writeRow(context, here, 'CREATE', make(context, here, id), (row) => family.show(withService(here, row)))
    }
  const alias = depend<Type.Static<typeof aliasBody>>((context, here, id) => (tx) => {
    const { body } = context
    return createAlias(tx, context.parts.sealer, here, id, { key: body.key, isSecret, ...extrasOf(body) })
  })
  const override = depend<Type.Static<typeof overrideBody>>((context, here, id) => (tx) => {
    const { body } = context
    return createOverride(tx, context.parts.sealer, here, id, { value: body.value ?? '', isSecret, ...extrasOf(body) })
  })

  return { list, create, edit, remove, alias, override }
}

const familyOperations = ({ kind }: VariableFacet, family: Family): Operation[] => {
  const { noun, one, tag, answer } = family
  const run = handlersOf(family)
  const owner = nodeInPath(kind, `${kind}Id`)
  const collection = `/${kind}/{${kind}Id}/${family.path}`
  const item = `${collection}/{${family.param}}`
  const common = { tag, owner, area: 'projects' as const }
  const write = { ...common, scope: 'Write' as const, answer }
  return [
    operation({
      id: family.list,
      ...reading,
      path: collection,
      ...common,
      summary: `List ${family.isSecret ? 'secrets' : 'variables'} that are visible here, including inherited and built-in ones`,
      reads: 'sensitive',
      answer: Results(answer),
      run: run.list,
    }),
    operation({
      id: `create${noun}`,
      method: 'POST',
      path: collection,
      summary: `Set ${one}; replaces one with the same key`,
      ...write,
      body: createBody,
      status: 201,
      run: run.create,
    }),
    operation({
      id: `edit${noun}`,
      method: 'PUT',
      path: item,
      summary: `Change ${one}; an omitted value is kept`,
      ...write,
      body: family.edit,
      status: 200,
      run: run.edit,
    }),
    operation({
      id: `delete${noun}`,
      ...removing,
      path: item,
      summary: `Delete ${one} with its aliases and overrides`,
      ...common,
      run: run.remove,
    }),
    operation({
      id: `create${noun}Alias`,
      method: 'POST',
      path: `${item}/alias`,
      summary: `Create an alias of ${one}`,
      ...write,
      body: aliasBody,
      status: 201,
      run: run.alias,
    }),
    operation({
      id: `create${noun}Override`,
      method: 'POST',
      path: `${item}/override`,
      summary: `Override ${one} here`,
      ...write,
      body: overrideBody,
      status: 201,
      run: run.override,
    }),
  ]
}

const importItem = { name: Text(255), value: Value(), scope: OneOf(variableScopes), is_secret: Flag() }
export const importBody = Type.Object(
  {
    overwrite: Maybe(Flag({ default: false })),
    vars: Maybe(List(Type.Object(importItem), 1000)),
    dotenv: Maybe(
      Type.Object(
        {
          text: Text(500_000),
          scope: Maybe(OneOf(variableScopes)),
          is_secret: Maybe(Flag({ default: false })),
        },
        { description: 'The text of a .env file; its keys are set on the service, or in the given scope.' },
      ),
    ),
  },
  { title: 'VariableImportRequest' },
)
export const importAnswer = Type.Object({
  total_variables_to_import: Type.Integer(),
  successful_imported_variables: Type.Array(Type.Object({ ...importItem, value: Maybe(Text()) })),
})

const importOperation = ({ kind, word, importId }: VariableFacet): Operation[] =>
  importId === undefined
    ? []
    : [
        operation({
          id: importId,
          ...creating,
          path: `/${kind}/{${kind}Id}/environmentVariable/import`,
          tag: `${word} Environment Variable`,
          summary: 'Set many variables and secrets at once; existing secrets are kept',
          area: 'projects',
          owner: nodeInPath(kind, `${kind}Id`),
          body: importBody,
          defaults: true,
          answer: importAnswer,
          run: async (context) => importVariables(context, await readPlace(context, context.node.id), context.body),
        }),
      ]

export const variableOperations = (facet: VariableFacet): Operation[] => [
  ...familyOperations(facet, variableFamily(facet)),
  ...familyOperations(facet, secretFamily(facet)),
  ...importOperation(facet),
]
