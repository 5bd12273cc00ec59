/**
 * Reads a place of the tree, and a service's environment. One statement each, however many variables there are.
 * Promises that a secret's value is only ever in the result of `loadEffectiveVariables`.
 */
import { type Kind, kinds, kindsWith, typeOf } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import { outsideHostSql } from '../store/installation.ts'
import type { Sealer } from '../store/seal.ts'
import { timestampSql } from '../store/tree.ts'
import { type BuiltInContext, type BuiltInService, type BuiltInVariable, builtInVariables } from './built-in.ts'
import { type ResolvedVariables, resolveVariables, type VisibleVariable } from './resolve.ts'

/** Where a place is in the tree. `parents` has the wider ids first and its own last. */
export interface Place {
  organizationId: string
  scope: string
  id: string
  parents: string[]
  /** RFC 3339; used as the creation time of built-in variables. */
  createdAt: string
  context: BuiltInContext
  /** Names of the rows in `parents`, by id. */
  names: Record<string, string>
}

interface ServiceRow {
  id: string
  name: string
  kind: Kind
  type: string | null
  host: string | null
  outside: OutsidePort[] | null
  built_in: Told | null
  sealed: Record<string, string> | null
  outputs: OutputRow[] | null
}

/** An output of a run for the other services; sealed if secret. */
interface OutputRow {
  id: string
  name: string
  value: string | null
  sealed: string | null
}

/** A public port that is published on a port of this machine. */
interface OutsidePort {
  inside: number
  outside: number
  protocol: string
}

/**
 * What a service provides to others besides its hosts: plain, or sealed in this field of its row, with a prefix and a
 * suffix. `{outside}` is replaced by the public name of this machine.
 */
type Told = Record<string, { value?: string; sealed?: string; before?: string; after?: string }>

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
  outside_host: string
  services: ServiceRow[] | null
}

// `here` is a project, an environment or a service; its parents are found by walking up at most twice.
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
    select json_agg(json_build_object('id', s.id, 'name', s.name, 'kind', s.kind, 'type', s.spec ->> 'type',
      'host', (select min(r.host) from route r where r.service_id = s.id and r.is_default), 'built_in', s.spec -> 'built_in',
      'outside', (select json_agg(json_build_object('inside', p -> 'internal_port', 'outside', p -> 'external_port',
          'protocol', p -> 'protocol') order by at)
        from jsonb_array_elements(s.spec -> 'ports') with ordinality as ports (p, at)
        where p -> 'publicly_accessible' = 'true' and p ->> 'protocol' in ('TCP', 'UDP')),
      'sealed', case when s.spec ? 'built_in' then s.sealed end,
      'outputs', (select json_agg(json_build_object('id', o.id, 'name', o.name, 'value', o.value, 'sealed', o.sealed)
        order by o.name) from service_output o where o.service_id = s.id)) order by s.created_at, s.id) as services
    from node s, place where s.parent_id = place.environment_id and s.name_scope = 'service'
      and s.kind <> all('{${kindsWith(({ builtIns }) => builtIns === 'none')}}')
  )`

const placeColumns = `place.organization_id, place.created_at, place.kind, place.name, place.is_service, place.project_id,
  place.project_name, place.environment_id, place.environment_name, place.environment_mode, siblings.services, ${outsideHostSql} as outside_host`

/** The alias that every service has on its environment's network whatever its name is (deployments/workload.ts). */
const internalHost = (serviceId: string): string => `service-${serviceId}`

const toldBy = ({ built_in: told }: ServiceRow, outsideHost: string, opened: Record<string, string>) => {
  const fill = (text = ''): string => text.replaceAll('{outside}', outsideHost)
  return Object.fromEntries(
    Object.entries(told ?? {}).map(([name, { value, sealed, before, after }]) => [
      name,
      sealed === undefined
        ? { value: fill(value) }
        : { value: fill(before) + (opened[sealed] ?? '') + fill(after), isSecret: true },
    ]),
  )
}

/** Where each public TCP and UDP port is published; PORT_EXTERNAL is the first one. */
const outsideOf = ({ outside }: ServiceRow): BuiltInService['more'] =>
  Object.fromEntries(
    (outside ?? []).flatMap(({ inside, outside: port, protocol }, index) => {
      const fact = { value: String(port) }
      return [...(index === 0 ? [['PORT_EXTERNAL', fact]] : []), [`PORT_${inside}_${protocol}_EXTERNAL`, fact]]
    }),
  )

const outputsOf = ({ outputs }: ServiceRow, opened: Record<string, string>): BuiltInService['outputs'] =>
  Object.fromEntries(
    (outputs ?? []).map(({ id, name, value, sealed }) => [
      name,
      { value: value ?? opened[id] ?? '', isSecret: sealed !== null },
    ]),
  )

const toService = (row: ServiceRow, outsideHost: string, opened: Record<string, string> = {}): BuiltInService => ({
  id: row.id,
  name: row.name,
  type: typeOf(row.kind),
  ...(kinds[row.kind].builtIns === 'type' && row.type !== null ? { keyType: row.type } : {}),
  internalHost: internalHost(row.id),
  externalHost: row.host ?? (row.outside === null ? null : outsideHost),
  more: { ...toldBy(row, outsideHost, opened), ...outsideOf(row) },
  outputs: outputsOf(row, opened),
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
      services: (row.services ?? []).map((service) => toService(service, row.outside_host)),
      serviceId: row.is_service ? id : null,
    },
    names: {
      [row.project_id]: row.project_name ?? '',
      ...(row.environment_id === null ? {} : { [row.environment_id]: row.environment_name ?? '' }),
      [id]: row.name,
    },
  }
}

/** The place of a tree row that can have variables; null if there is no such row. */
export const loadPlace = async (db: Queryable, id: string): Promise<Place | null> => {
  const [row] = await db.query<PlaceRow>(`${placeSql} select ${placeColumns} from place, siblings`, [id])
  return row === undefined ? null : toPlace(id, row)
}

interface StoredVariable extends VisibleVariable {
  sealed: string | null
  /** It refers to a secret manager access that the organization does not have. */
  dangling: boolean
}

const storedSql = `json_build_object('id', v.id, 'key', v.key, 'value', v.value, 'sealed', v.sealed, 'scope', v.scope,
  'isSecret', v.is_secret, 'variableType', v.variable_type, 'mountPath', v.mount_path,
  'interpolateInFile', coalesce(v.enable_interpolation_in_file, false), 'targetId', v.target_id,
  'dangling', v.secret_manager_access_id is not null and not exists (select from node a
    where a.id = v.secret_manager_access_id and a.organization_id = v.organization_id and a.kind = 'secret_manager_access'))`

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
  { sealed, dangling: _, ...row }: StoredVariable,
): Promise<VisibleVariable> => {
  if (sealed === null) return row
  const opened = await sealer.open(organizationId, { table: 'variable', row: row.id, column: 'value' }, sealed)
  return { ...row, value: opened.reveal() }
}

/** Another service with the secrets that it provides, opened. */
const openService = async (
  sealer: Sealer,
  { organization_id: organizationId, outside_host: outsideHost }: PlaceRow,
  row: ServiceRow,
): Promise<BuiltInService> => {
  const fields = Object.values(row.built_in ?? {}).flatMap(({ sealed }) => (sealed === undefined ? [] : [sealed]))
  const open = async (column: string) => {
    const text = await sealer.open(organizationId, { table: 'node', row: row.id, column }, row.sealed![column]!)
    return [column, text.reveal()]
  }
  const openOutput = async ({ id, sealed }: OutputRow) => {
    const text = await sealer.open(organizationId, { table: 'service_output', row: id, column: 'sealed' }, sealed!)
    return [id, text.reveal()]
  }
  const secrets = (row.outputs ?? []).filter(({ sealed }) => sealed !== null)
  const opened = await Promise.all([...[...new Set(fields)].map(open), ...secrets.map(openOutput)])
  return toService(row, outsideHost, Object.fromEntries(opened))
}

interface Loaded {
  rows: VisibleVariable[]
  /** Keys of rows that can never have a value. */
  dangling: string[]
}

/** Every row that a service sees, with secrets opened: the input of `resolveVariables`. Keep it only in memory. */
const loadForService = async (db: Queryable, sealer: Sealer, serviceId: string): Promise<Loaded> => {
  const [row] = await db.query<PlaceRow & { variables: StoredVariable[] }>(loadSql, [serviceId])
  if (row === undefined) return { rows: [], dangling: [] }
  const { context, organizationId } = toPlace(serviceId, row)
  const { ours = [], dangling = [] } = Object.groupBy(row.variables, (one) => (one.dangling ? 'dangling' : 'ours'))
  const own = await Promise.all(ours.map((one) => openRow(sealer, organizationId, one)))
  const open = (service: ServiceRow) => openService(sealer, row, service)
  const services = await Promise.all((row.services ?? []).map(open))
  const builtIn = builtInVariables({ ...context, services }).map(asVisible)
  return { rows: [...builtIn, ...own], dangling: dangling.map(({ key }) => key) }
}

/** What a deployment uses, and the keys that it lacks. */
export interface LoadedVariables extends ResolvedVariables {
  leftOut: string[]
}

/** The environment of a service as a deployment would use it now. One statement. */
export const loadEffectiveVariables = async (
  db: Queryable,
  sealer: Sealer,
  serviceId: string,
): Promise<LoadedVariables> => {
  const { rows, dangling } = await loadForService(db, sealer, serviceId)
  const resolved = resolveVariables(rows)
  return { ...resolved, leftOut: [...new Set(dangling)].filter((key) => !Object.hasOwn(resolved.env, key)).sort() }
}
