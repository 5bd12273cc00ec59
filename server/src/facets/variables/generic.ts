/** The generic family: the same variables and secrets under `/variable`, with their scope in the query or the body. */
import Type from 'typebox'
import {
  type Context,
  creating,
  editing,
  type Operation,
  type Owner,
  operation,
  ownOrganization,
  reading,
  removing,
} from '../../api/operations/operation.ts'
import { checkRefs } from '../../api/operations/resource.ts'
import { Flag, Maybe, Nullable, OneOf, Recorded, Ref, Results, Text, Uuid } from '../../api/operations/schema.ts'
import { invalidField, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import type { Node } from '../../store/tree.ts'
import { createAlias, createOverride, createVariable, deleteVariable, editVariable } from '../../variables/change.ts'
import type { PlaceInContext, VariablePlace } from '../../variables/places.ts'
import { findVariable, listVisible, type VariableRecord } from '../../variables/records.ts'
import { importVariables } from './import.ts'
import { editBody, genericAnswer, showGeneric, traceRecords, Value, withService } from './records.ts'
import { extrasOf, importAnswer, importBody } from './variables.ts'
import { readPlace, readPlaceInContext, variableScopes as scopes, serviceScopes, writeRow } from './writes.ts'

const tag = 'Variable Main Calls'
const extras = {
  description: Maybe(Nullable(Text(255))),
  enable_interpolation_in_file: Maybe(Recorded(Nullable(Flag()))),
}

/** The row of the tree where a variable is set, as if the path had named it. */
const holderOf: Owner['find'] = async (db, { variableId = '' }, { organizationId }) => {
  if (!isUuid(variableId)) return null
  const [row] = await db.query<Node>(
    `select n.id, n.organization_id as "organizationId", n.kind, n.parent_id as "parentId", coalesce(n.name, '') as name,
       (select p.parent_id from node p where p.id = n.parent_id) as "grandparentId"
     from variable v join node n on n.id = v.parent_id where v.id = $1 and v.organization_id = $2`,
    [variableId, organizationId],
  )
  return row ?? null
}

const variableInPath: Owner = { kind: 'variable', param: 'variableId', parentParam: null, find: holderOf }

/** A place given by scope and id, which must match. */
const named = async <Found extends VariablePlace>(
  context: Context,
  [id, scope, field]: [id: string, scope: string, field: string],
  read: (context: Context, id: string) => Promise<Found>,
): Promise<Found> => {
  await context.authorizeAlso(id)
  const place = await read(context, id)
  if (place.scope !== scope) throw invalidField(field, `is ${scope}, but ${id} is of the kind ${place.scope}`)
  return place
}

const namedPlace = (context: Context, ...name: [string, string, string]): Promise<VariablePlace> =>
  named(context, name, readPlace)

const namedInContext = (context: Context, ...name: [string, string, string]): Promise<PlaceInContext> =>
  named(context, name, readPlaceInContext)

const common = { tag, area: 'projects' as const, owner: ownOrganization }

const show = (place: VariablePlace) => (row: VariableRecord) => showGeneric(withService(place, row))

const ownRow = async ({ db, principal, params }: Context): Promise<VariableRecord> => {
  const row = await findVariable(db, principal.organizationId, params.variableId!.toLowerCase())
  if (row === null) throw notFound()
  return row
}

const list = operation({
  id: 'listVariables',
  ...reading,
  ...common,
  path: '/variable',
  summary: 'List the variables and secrets that are visible in a scope',
  reads: 'sensitive',
  query: Type.Object({ parent_id: Uuid(), scope: OneOf([...scopes, 'BUILT_IN']), is_secret: Maybe(Flag()) }),
  answer: Results(genericAnswer),
  async run(context) {
    const { parent_id, scope, is_secret } = context.query
    const wantsBuiltIn = scope === 'BUILT_IN'
    if (wantsBuiltIn) await context.authorizeAlso(parent_id)
    const place = wantsBuiltIn
      ? await readPlaceInContext(context, parent_id)
      : await namedInContext(context, parent_id, scope, '/scope')
    const all = traceRecords(place, await listVisible(context.db, place.parents))
    const wanted = all.filter((row) => row.is_secret === (is_secret ?? row.is_secret))
    return { results: wanted.filter((row) => !wantsBuiltIn || row.scope === 'BUILT_IN').map(showGeneric) }
  },
})

/** The value is a reference to be resolved by this secret manager access. */
const fromSecretManager = { secret_manager_access_id: Maybe(Nullable(Ref('secret_manager_access'))) }

const createBody = Type.Object({
  key: Text(255),
  value: Value(),
  mount_path: Maybe(Nullable(Text(1024))),
  is_secret: Flag(),
  variable_scope: OneOf(scopes),
  variable_parent_id: Uuid(),
  ...fromSecretManager,
  ...extras,
})

const create = operation({
  id: 'createVariable',
  ...creating,
  ...common,
  path: '/variable',
  summary: 'Set a variable or secret; replaces one with the same key',
  body: createBody,
  answer: genericAnswer,
  async run(context) {
    const { body } = context
    await checkRefs(context.db, createBody, body, context.principal.organizationId)
    const place = await namedPlace(context, body.variable_parent_id, body.variable_scope, '/variable_scope')
    const wanted = { key: body.key, value: body.value, isSecret: body.is_secret, mountPath: body.mount_path }
    const from = { secretManagerAccessId: body.secret_manager_access_id }
    const work = (tx: Queryable) =>
      createVariable(tx, context.parts.sealer, place, { ...wanted, ...from, ...extrasOf(body) })
    return writeRow(context, place, 'CREATE', work, show(place))
  },
})

const variableEdit = Type.Object({ ...editBody.properties, ...fromSecretManager })

const ofOne = { ...common, path: '/variable/{variableId}', owner: variableInPath }

const edit = operation({
  ...ofOne,
  id: 'editVariable',
  ...editing,
  summary: 'Change a variable or secret; an omitted value is kept',
  body: variableEdit,
  answer: genericAnswer,
  async run(context) {
    const [place, row] = [await readPlace(context, context.node.id), await ownRow(context)]
    const { body } = context
    await checkRefs(context.db, variableEdit, body, context.principal.organizationId)
    const from = { secretManagerAccessId: body.secret_manager_access_id }
    const wanted = { key: body.key, value: body.value, ...from, ...extrasOf(body) }
    const work = (tx: Queryable) => editVariable(tx, context.parts.sealer, row, wanted)
    return writeRow(context, place, 'UPDATE', work, show(place))
  },
})

const remove = operation({
  ...ofOne,
  id: 'deleteVariable',
  ...removing,
  summary: 'Delete a variable or secret with its aliases and overrides',
  async run(context) {
    const [place, row] = [await readPlace(context, context.node.id), await ownRow(context)]
    const work = (tx: Queryable) => deleteVariable(tx, row).then(() => row)
    return writeRow(context, place, 'DELETE', work, () => undefined)
  },
})

// A built-in variable has no row yet, so the place of its alias comes only from the body.
const dependent = { ...creating, ...common, answer: genericAnswer }

const aliasBody = Type.Object({ key: Text(255), alias_scope: OneOf(scopes), alias_parent_id: Uuid(), ...extras })

const alias = operation({
  id: 'createVariableAlias',
  path: '/variable/{variableId}/alias',
  summary: 'Create an alias of a variable or secret',
  ...dependent,
  body: aliasBody,
  async run(context) {
    const { body } = context
    const place = await namedInContext(context, body.alias_parent_id, body.alias_scope, '/alias_scope')
    const id = context.params.variableId.toLowerCase()
    const wanted = { key: body.key, ...extrasOf(body) }
    const work = (tx: Queryable) => createAlias(tx, context.parts.sealer, place, id, wanted)
    return writeRow(context, place, 'CREATE', work, show(place))
  },
})

const overrideBody = Type.Object({
  value: Value(),
  override_scope: OneOf(scopes),
  override_parent_id: Uuid(),
  ...extras,
})

const override = operation({
  id: 'createVariableOverride',
  path: '/variable/{variableId}/override',
  summary: 'Override a variable or secret in a narrower scope',
  ...dependent,
  body: overrideBody,
  async run(context) {
    const { body } = context
    const place = await namedInContext(context, body.override_parent_id, body.override_scope, '/override_scope')
    const id = context.params.variableId.toLowerCase()
    const wanted = { value: body.value, ...extrasOf(body) }
    const work = (tx: Queryable) => createOverride(tx, context.parts.sealer, place, id, wanted)
    return writeRow(context, place, 'CREATE', work, show(place))
  },
})

const importMany = operation({
  id: 'importEnvironmentVariables',
  ...creating,
  ...common,
  path: '/variable/import',
  summary: 'Set many variables and secrets of a service at once; existing secrets are kept',
  query: Type.Object({ service_id: Uuid(), service_type: OneOf(serviceScopes) }),
  body: importBody,
  defaults: true,
  answer: importAnswer,
  async run(context) {
    const { service_id, service_type } = context.query
    const place = await namedPlace(context, service_id, service_type, '/service_type')
    return importVariables(context, place, context.body)
  },
})

export const genericVariableOperations: Operation[] = [list, create, importMany, edit, remove, alias, override]
