/** Variables and secrets in responses: the shapes of the API's two families for the same rows. Pure. */
import Type from 'typebox'
import { Flag, Maybe, Nullable, Recorded, Text, Timestamp, Uuid } from '../../api/operations/schema.ts'
import { builtInVariables } from '../../variables/built-in.ts'
import type { PlaceInContext, VariablePlace } from '../../variables/places.ts'
import type { VariableRecord, VariableTarget } from '../../variables/records.ts'
import { traceVariables } from '../../variables/resolve.ts'
import { maxValueBytes } from '../../variables/rules.ts'

const Key = () =>
  Text(255, { description: 'Letters, digits, `_`, `.` and `-`, not beginning with a digit or two underscores.' })
export const Value = () => Text(maxValueBytes)
const Description = () => Maybe(Nullable(Text(255)))
const Interpolation = () => Maybe(Recorded(Nullable(Flag())))

const extras = { description: Description(), enable_interpolation_in_file: Interpolation() }

export const createBody = Type.Object(
  {
    key: Key(),
    value: Maybe(Nullable(Value())),
    mount_path: Maybe(Nullable(Text(1024))),
    ...extras,
  },
  { title: 'VariableRequest' },
)
export const editBody = Type.Object(
  { key: Key(), value: Maybe(Nullable(Value())), ...extras },
  { title: 'VariableEditRequest' },
)
const newPath =
  'The variable is written to a file at this path; one without a file becomes one. If omitted or null, it is kept.'

/** Only the older family of variables can move a file. */
export const editVariableBody = Type.Object(
  { ...editBody.properties, mount_path: Maybe(Nullable(Text(1024, { description: newPath }))) },
  { title: 'EnvironmentVariableEditRequest' },
)
export const aliasBody = Type.Object({ key: Key(), ...extras }, { title: 'VariableAliasRequest' })
export const overrideBody = Type.Object(
  { value: Maybe(Nullable(Value())), ...extras },
  { title: 'VariableOverrideRequest' },
)

const target = { id: Uuid(), key: Key(), mount_path: Text(1024), scope: Text(), variable_type: Text() }
const variableTarget = Maybe(Type.Object({ ...target, value: Maybe(Nullable(Value())) }, { title: 'VariableTarget' }))
const secretTarget = Maybe(Type.Object({ ...target, ...extras }, { title: 'SecretTarget' }))

const common = {
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  key: Key(),
  mount_path: Nullable(Text(1024)),
  description: Nullable(Text()),
  enable_interpolation_in_file: Nullable(Flag()),
  scope: Text(),
  variable_type: Text(),
  service_id: Maybe(Uuid()),
  service_name: Maybe(Text()),
  service_type: Maybe(Text()),
  owned_by: Maybe(Text()),
  secret_manager_access_id: Maybe(Nullable(Uuid())),
  effective: Maybe(
    Flag({ description: 'In lists: whether this row is the one in effect for its key in the scope of the list.' }),
  ),
  origin: Maybe(
    Type.Object(
      { scope: Text(), parent_id: Uuid(), parent_name: Text(), key: Key() },
      {
        title: 'VariableOrigin',
        description: 'In lists: where the value is set; for an alias, where its target is set.',
      },
    ),
  ),
}

export const variableAnswer = Type.Object(
  {
    ...common,
    value: Text(),
    overridden_variable: variableTarget,
    aliased_variable: variableTarget,
  },
  { title: 'EnvironmentVariable' },
)
export const secretAnswer = Type.Object(
  { ...common, overridden_secret: secretTarget, aliased_secret: secretTarget },
  { title: 'Secret' },
)
export const genericAnswer = Type.Object(
  {
    ...common,
    description: Text(),
    enable_interpolation_in_file: Flag(),
    value: Nullable(Text()),
    is_secret: Flag(),
    overridden_variable: variableTarget,
    aliased_variable: variableTarget,
  },
  { title: 'Variable' },
)

interface Origin {
  scope: string
  parent_id: string
  parent_name: string
  key: string
}

interface Shown extends VariableRecord {
  service: { id: string; name: string; type: string } | null
  /** In lists only. */
  traced?: { effective: boolean; origin: Origin }
}

/** The built-in variables of a place, as rows. */
const builtInRecords = (place: PlaceInContext): Shown[] =>
  builtInVariables(place.context).map((one) => ({
    id: one.id,
    created_at: place.createdAt,
    updated_at: place.createdAt,
    organization_id: place.organizationId,
    parent_id: one.parentId,
    scope: 'BUILT_IN',
    key: one.key,
    value: one.isSecret ? null : one.value,
    is_secret: one.isSecret,
    variable_type: 'BUILT_IN',
    mount_path: null,
    description: null,
    enable_interpolation_in_file: null,
    owned_by: null,
    secret_manager_access_id: null,
    target: null,
    service: one.service,
  }))

export const withService = (place: VariablePlace, row: VariableRecord): Shown => ({
  ...row,
  service: row.parent_id === place.service?.id ? place.service : null,
})

/** Built-in variables are computed at every read: the row that an alias refers to may be outdated. */
const refresh = (row: VariableRecord, builtIns: ReadonlyMap<string, Shown>): VariableRecord => {
  const now = row.target?.scope === 'BUILT_IN' ? builtIns.get(row.target.id) : undefined
  if (now === undefined) return row
  const target = { ...row.target!, value: now.value }
  return { ...row, target, value: row.variable_type === 'ALIAS' ? now.value : row.value }
}

const originOf = (place: VariablePlace, source: Shown): Origin => ({
  scope: source.scope,
  parent_id: source.parent_id,
  parent_name: place.names[source.parent_id] ?? '',
  key: source.key,
})

/** Everything visible at a place, built-in ones first, each with whether it is in effect there and where its value is set. */
export const traceRecords = (place: PlaceInContext, rows: readonly VariableRecord[]): Shown[] => {
  const builtIns = builtInRecords(place)
  const byId = new Map(builtIns.map((row) => [row.id, row]))
  const all = [...builtIns, ...rows.map((row) => withService(place, refresh(row, byId)))]
  const traceable = all.map((shown) => ({
    id: shown.id,
    key: shown.key,
    scope: shown.scope,
    variableType: shown.variable_type,
    targetId: shown.target?.id ?? null,
    shown,
  }))
  for (const { row, isEffective, source } of traceVariables(traceable))
    row.shown.traced = { effective: isEffective, origin: originOf(place, source.shown) }
  return all
}

const showCommon = (row: Shown) => ({
  id: row.id,
  created_at: row.created_at,
  updated_at: row.updated_at,
  key: row.key,
  mount_path: row.mount_path,
  description: row.description,
  enable_interpolation_in_file: row.enable_interpolation_in_file,
  scope: row.scope,
  variable_type: row.variable_type,
  ...(row.service === null
    ? {}
    : { service_id: row.service.id, service_name: row.service.name, service_type: row.service.type }),
  ...(row.owned_by === null ? {} : { owned_by: row.owned_by }),
  ...(row.secret_manager_access_id === null ? {} : { secret_manager_access_id: row.secret_manager_access_id }),
  ...row.traced,
})

const showTarget = (
  { value, description, enable_interpolation_in_file, ...rest }: VariableTarget,
  isSecret: boolean,
) => ({
  ...rest,
  mount_path: rest.mount_path ?? '',
  ...(isSecret ? { description, enable_interpolation_in_file } : { value }),
})

/** `aliased_variable`, `overridden_secret` …: only on the dependent row. */
const showDependence = (row: Shown, word: 'variable' | 'secret'): Record<string, unknown> => {
  if (row.target === null) return {}
  const verb = row.variable_type === 'ALIAS' ? 'aliased' : 'overridden'
  return { [`${verb}_${word}`]: showTarget(row.target, word === 'secret') }
}

export const showVariable = (row: Shown) => ({
  ...showCommon(row),
  value: row.value ?? '',
  ...showDependence(row, 'variable'),
})

export const showSecret = (row: Shown) => ({ ...showCommon(row), ...showDependence(row, 'secret') })

/** The record of the generic family: one shape for both. */
export const showGeneric = (row: Shown) => ({
  ...showCommon(row),
  description: row.description ?? '',
  enable_interpolation_in_file: row.enable_interpolation_in_file ?? false,
  value: row.is_secret ? null : (row.value ?? ''),
  is_secret: row.is_secret,
  ...showDependence(row, 'variable'),
})
