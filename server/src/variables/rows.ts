/**
 * Reading what a place of the tree is, and what a service's environment is. One statement each, however many variables
 * there are. Promises that a secret's value leaves only inside the result of `loadEffectiveVariables`.
 */
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/seal.ts'
import { timestampSql } from '../store/tree.ts'
import { type BuiltInContext, type BuiltInService, type BuiltInVariable, builtInVariables } from './built-in.ts'
import { type ResolvedVariables, resolveVariables, type VisibleVariable } from './resolve.ts'

/** Where a place stands in the tree. `parents` holds its own id last, before it the wider ones. */
export interface Place {
  organizationId: string
  scope: string
  id: string
  parents: string[]
  /** RFC 3339; stands for the age of what is built in. */
  createdAt: string
  context: BuiltInContext
  /** Names of the rows in `parents`, by id. */
  names: Record<string, string>
}

interface ServiceRow {
  id: string
  name: string
  kind: string
  database_type: string | null
  host: string | null
  built_in: Told | null
  sealed: Record<string, string> | null
}

/** What a service tells its neighbours beside its host: as it is, or sealed in this field of its row. */
type Told = Record<string, { value?: string; sealed?: string }>

interface PlaceRow {
  organization_id: string
  created_at: string
  kind: string
  name: string
  is_service: boolean
  project_id: string
  project_name: string | null
  environment_id: string | null
  environment_name: string | null
  environment_mode: string | null
  services: ServiceRow[] | null
}

// `here` is a project, an environment or a service; the places above it are found by walking up at most twice.
const placeSql = `
  with here as (
    select n.id, n.organization_id, n.kind, coalesce(n.name, '') as name, ${timestampSql('n.created_at')} as created_at,
      n.name_scope = 'service' as is_service, n.parent_id,
      case when n.kind = 'environment' then n.id when n.name_scope = 'service' then n.parent_id end as environment_id
    from node n where n.id = $1
  ), place as (
    select here.*, e.name as environment_name, e.spec ->> 'mode' as environment_mode,
      coalesce(e.parent_id, here.id) as project_id, p.name as project_name
    from here left join node e on e.id = here.environment_id left join node p on p.id = coalesce(e.parent_id, here.id)
  ), siblings as (
    select json_agg(json_build_object('id', s.id, 'name', s.name, 'kind', s.kind, 'database_type', s.spec ->> 'type',
      'host', (select min(r.host) from route r where r.service_id = s.id and r.is_default), 'built_in', s.spec -> 'built_in',
      'sealed', case when s.spec ? 'built_in' then s.sealed end) order by s.created_at, s.id) as services
    from node s, place where s.parent_id = place.environment_id and s.name_scope = 'service'
      and s.kind <> 'argocd_app'
  )`

const placeColumns = `place.organization_id, place.created_at, place.kind, place.name, place.is_service, place.project_id,
  place.project_name, place.environment_id, place.environment_name, place.environment_mode, siblings.services`

/** The alias that every service has on its environment's network whatever its name is (deployments/workload.ts). */
const internalHost = (serviceId: string): string => `service-${serviceId}`

const toldBy = ({ built_in: told }: ServiceRow, opened: Record<string, string>): BuiltInService['more'] =>
  Object.fromEntries(
    Object.entries(told ?? {}).map(([name, { value = '', sealed }]) => [
      name,
      sealed === undefined ? { value } : { value: opened[sealed] ?? '', isSecret: true },
    ]),
  )

const toService = (row: ServiceRow, opened: Record<string, string> = {}): BuiltInService => ({
  id: row.id,
  name: row.name,
  type: row.kind.toUpperCase(),
  ...(row.kind === 'database' && row.database_type !== null ? { keyType: row.database_type } : {}),
  internalHost: internalHost(row.id),
  externalHost: row.host,
  more: toldBy(row, opened),
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
      services: (row.services ?? []).map((service) => toService(service)),
      serviceId: row.is_service ? id : null,
    },
    names: {
      [row.project_id]: row.project_name ?? '',
      ...(row.environment_id === null ? {} : { [row.environment_id]: row.environment_name ?? '' }),
      [id]: row.name,
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

/** A neighbour with the secrets that it tells, opened. */
const openService = async (sealer: Sealer, organizationId: string, row: ServiceRow): Promise<BuiltInService> => {
  const fields = Object.values(row.built_in ?? {}).flatMap(({ sealed }) => (sealed === undefined ? [] : [sealed]))
  const open = async (column: string) => {
    const text = await sealer.open(organizationId, { table: 'node', row: row.id, column }, row.sealed![column]!)
    return [column, text.reveal()]
  }
  return toService(row, Object.fromEntries(await Promise.all([...new Set(fields)].map(open))))
}

/** Every row that a service sees, secrets opened: the input of `resolveVariables`. Keep it in memory only. */
export const loadForService = async (db: Queryable, sealer: Sealer, serviceId: string): Promise<VisibleVariable[]> => {
  const [row] = await db.query<PlaceRow & { variables: StoredVariable[] }>(loadSql, [serviceId])
  if (row === undefined) return []
  const { context, organizationId } = toPlace(serviceId, row)
  const own = await Promise.all(row.variables.map((one) => openRow(sealer, organizationId, one)))
  const open = (service: ServiceRow) => openService(sealer, organizationId, service)
  const services = await Promise.all((row.services ?? []).map(open))
  return [...builtInVariables({ ...context, services }).map(asVisible), ...own]
}

/** The environment of a service as a deployment would use it now. One statement. */
export const loadEffectiveVariables = async (
  db: Queryable,
  sealer: Sealer,
  serviceId: string,
): Promise<ResolvedVariables> => resolveVariables(await loadForService(db, sealer, serviceId))
