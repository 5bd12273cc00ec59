/**
 * Reading variables: what is visible at a place, and what a service's environment is. One statement each, however many
 * there are. Promises that a secret's value leaves only inside the result of `loadEffectiveVariables`.
 */
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/seal.ts'
import { timestampSql } from '../store/tree.ts'
import { type BuiltInContext, type BuiltInService, type BuiltInVariable, builtInVariables } from './built-in.ts'
import { type ResolvedVariables, resolveVariables, type VisibleVariable } from './resolve.ts'

/** The target of an alias or override, as its record shows it. */
export interface VariableTarget {
  id: string
  key: string
  value: string | null
  mount_path: string | null
  scope: string
  variable_type: string
  description: string | null
  enable_interpolation_in_file: boolean | null
}

/** A row as answers need it; `value` is null for secrets, and an alias shows its target's. */
export interface VariableRecord {
  id: string
  created_at: string
  updated_at: string
  organization_id: string
  parent_id: string
  scope: string
  key: string
  value: string | null
  is_secret: boolean
  variable_type: string
  mount_path: string | null
  description: string | null
  enable_interpolation_in_file: boolean | null
  owned_by: string | null
  target: VariableTarget | null
}

const targetSql = `case when t.id is null then null else json_build_object('id', t.id, 'key', t.key, 'value', t.value,
  'mount_path', t.mount_path, 'scope', t.scope, 'variable_type', t.variable_type, 'description', t.description,
  'enable_interpolation_in_file', t.enable_interpolation_in_file) end`

/** Columns of a `VariableRecord` for `variable v left join variable t on t.id = v.target_id`. */
export const recordColumns = `v.id, ${timestampSql('v.created_at')} as created_at,
  ${timestampSql('v.updated_at')} as updated_at, v.organization_id, v.parent_id, v.scope, v.key,
  case when v.variable_type = 'ALIAS' then t.value else v.value end as value, v.is_secret, v.variable_type,
  v.mount_path, v.description, v.enable_interpolation_in_file, v.owned_by, ${targetSql} as target`

const fromTarget = 'from variable v left join variable t on t.id = v.target_id'

/** Rows set at these places (tree rows, ids), in the order of their keys. Built-in ones are not among them. */
export const listVisible = (db: Queryable, parentIds: readonly string[]): Promise<VariableRecord[]> =>
  db.query<VariableRecord>(
    `select ${recordColumns} ${fromTarget} where v.parent_id = any($1) and v.scope <> 'BUILT_IN' order by v.key, v.id`,
    [parentIds],
  )

export const findVariable = async (
  db: Queryable,
  organizationId: string,
  id: string,
): Promise<VariableRecord | null> => {
  const [row] = await db.query<VariableRecord>(
    `select ${recordColumns} ${fromTarget} where v.id = $1 and v.organization_id = $2`,
    [id, organizationId],
  )
  return row ?? null
}

/** Where a place stands in the tree. `parents` holds its own id last, before it the wider ones. */
export interface Place {
  organizationId: string
  scope: string
  id: string
  parents: string[]
  /** RFC 3339; stands for the age of what is built in. */
  createdAt: string
  context: BuiltInContext
}

interface ServiceRow {
  id: string
  name: string
  kind: string
  database_type: string | null
  host: string | null
}

interface PlaceRow {
  organization_id: string
  created_at: string
  kind: string
  is_service: boolean
  project_id: string
  environment_id: string | null
  environment_name: string | null
  environment_mode: string | null
  services: ServiceRow[] | null
}

// `here` is a project, an environment or a service; the places above it are found by walking up at most twice.
const placeSql = `
  with here as (
    select n.id, n.organization_id, n.kind, ${timestampSql('n.created_at')} as created_at, n.name_scope = 'service' as is_service, n.parent_id,
      case when n.kind = 'environment' then n.id when n.name_scope = 'service' then n.parent_id end as environment_id
    from node n where n.id = $1
  ), place as (
    select here.*, e.name as environment_name, e.spec ->> 'mode' as environment_mode,
      coalesce(e.parent_id, here.id) as project_id
    from here left join node e on e.id = here.environment_id
  ), siblings as (
    select json_agg(json_build_object('id', s.id, 'name', s.name, 'kind', s.kind, 'database_type', s.spec ->> 'type',
      'host', (select min(r.host) from route r where r.service_id = s.id and r.is_default)) order by s.created_at, s.id) as services
    from node s, place where s.parent_id = place.environment_id and s.name_scope = 'service'
  )`

const placeColumns = `place.organization_id, place.created_at, place.kind, place.is_service, place.project_id, place.environment_id,
  place.environment_name, place.environment_mode, siblings.services`

/** The alias that every service has on its environment's network whatever its name is (deployments/workload.ts). */
const internalHost = (serviceId: string): string => `service-${serviceId}`

const toService = (row: ServiceRow): BuiltInService => ({
  id: row.id,
  name: row.name,
  type: row.kind.toUpperCase(),
  ...(row.kind === 'database' && row.database_type !== null ? { keyType: row.database_type } : {}),
  internalHost: internalHost(row.id),
  externalHost: row.host,
})

const toPlace = (id: string, row: PlaceRow): Place => {
  const parents = [row.project_id, row.environment_id, id].filter((each) => each !== null)
  return {
    organizationId: row.organization_id,
    scope: row.kind.toUpperCase(),
    id,
    parents: [...new Set(parents)],
    createdAt: row.created_at,
    context: {
      organizationId: row.organization_id,
      projectId: row.project_id,
      environment:
        row.environment_id === null
          ? null
          : { id: row.environment_id, name: row.environment_name ?? '', mode: row.environment_mode ?? '' },
      services: (row.services ?? []).map(toService),
      serviceId: row.is_service ? id : null,
    },
  }
}

/** The place of a tree row that can hold variables; null when there is no such row. */
export const loadPlace = async (db: Queryable, id: string): Promise<Place | null> => {
  const [row] = await db.query<PlaceRow>(`${placeSql} select ${placeColumns} from place, siblings`, [id])
  return row === undefined ? null : toPlace(id, row)
}

interface StoredVariable extends VisibleVariable {
  sealed: string | null
}

const storedSql = `json_build_object('id', v.id, 'key', v.key, 'value', v.value, 'sealed', v.sealed, 'scope', v.scope,
  'isSecret', v.is_secret, 'variableType', v.variable_type, 'mountPath', v.mount_path,
  'interpolateInFile', coalesce(v.enable_interpolation_in_file, false), 'targetId', v.target_id)`

const loadSql = `${placeSql}
  select ${placeColumns}, (select coalesce(json_agg(${storedSql}), '[]') from variable v
    where v.parent_id in (place.project_id, place.environment_id, place.id) and v.scope <> 'BUILT_IN') as variables
  from place, siblings`

const asVisible = (one: BuiltInVariable): VisibleVariable => ({
  id: one.id,
  key: one.key,
  value: one.value,
  scope: 'BUILT_IN',
  isSecret: one.isSecret,
  variableType: 'BUILT_IN',
  mountPath: null,
  interpolateInFile: false,
  targetId: null,
})

const openRow = async (
  sealer: Sealer,
  organizationId: string,
  { sealed, ...row }: StoredVariable,
): Promise<VisibleVariable> => {
  if (sealed === null) return row
  const opened = await sealer.open(organizationId, { table: 'variable', row: row.id, column: 'value' }, sealed)
  return { ...row, value: opened.reveal() }
}

/** Every row that a service sees, secrets opened: the input of `resolveVariables`. Keep it in memory only. */
export const loadForService = async (db: Queryable, sealer: Sealer, serviceId: string): Promise<VisibleVariable[]> => {
  const [row] = await db.query<PlaceRow & { variables: StoredVariable[] }>(loadSql, [serviceId])
  if (row === undefined) return []
  const { context, organizationId } = toPlace(serviceId, row)
  const own = await Promise.all(row.variables.map((one) => openRow(sealer, organizationId, one)))
  return [...builtInVariables(context).map(asVisible), ...own]
}

/** The environment of a service as a deployment would use it now. One statement. */
export const loadEffectiveVariables = async (
  db: Queryable,
  sealer: Sealer,
  serviceId: string,
): Promise<ResolvedVariables> => resolveVariables(await loadForService(db, sealer, serviceId))
