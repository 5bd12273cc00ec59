/**
 * What a place of the tree is: where it belongs, and which variables the services beside it provide to each other. One
 * statement for any number of places; the variables of services are read once for each environment.
 */
import { isKind, type Kind, kinds, kindsWith, typeOf } from '../kinds.ts'
import { isRoutedSql } from '../store/cluster-rows.ts'
import type { Queryable } from '../store/database.ts'
import { clusterDomainSql, publishedHostSql } from '../store/installation.ts'
import { timestampSql } from '../store/tree.ts'
import type { BuiltInContext, BuiltInService } from './built-in.ts'

/** A place's position in the tree. `parents` ends with its own id, the wider ones before it. */
export interface VariablePlace {
  organizationId: string
  scope: string
  id: string
  parents: string[]
  /** RFC 3339; the age of the place's built-in variables. */
  createdAt: string
  /** Itself, when it is a service. */
  service: { id: string; name: string; type: string } | null
  /** Names of the rows in `parents`, by id. */
  names: Record<string, string>
}

/** A place with its built-in variables; values of secrets are left out. */
export interface PlaceInContext extends VariablePlace {
  context: BuiltInContext
}

/** A service as the others of its environment see it; secrets are sealed. */
export interface ServiceRow {
  id: string
  name: string
  kind: Kind
  type: string | null
  host: string | null
  port: string | null
  branch: string | null
  commit: string | null
  outside: PublishedPort[] | null
  built_in: BuiltInValues | null
  sealed: Record<string, string> | null
  outputs: OutputRow[] | null
  /** Its public ports are ports of this machine. */
  is_routed: boolean
}

/** An output of a run, for the other services of the environment; a secret one is sealed. */
export interface OutputRow {
  id: string
  name: string
  value: string | null
  sealed: string | null
}

interface PublishedPort {
  inside: number
  outside: number
  protocol: string
}

/**
 * What a service provides to the others of its environment besides its hosts: a plain value; or a value sealed in this
 * field of its row, with the text before and after it; or the output of its last run with this name, empty before the
 * first run. `{outside}` is replaced with the name by which users reach this machine; on a Kubernetes cluster it is
 * replaced, together with a port after it, with the address of the service inside the cluster.
 */
type BuiltInValues = Record<
  string,
  { value?: string; sealed?: string; before?: string; after?: string; output?: string; isSecret?: boolean }
>

export interface PlaceRow {
  id: string
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
  cluster: { name: string; provider: string; region: string; domain: string } | null
}

/** Services of an environment, by its id. */
export type Siblings = Record<string, ServiceRow[]>

// Places are projects, environments or services; what is above them is found by walking up at most twice.
export const placeSql = `
  here as (
    select n.id, n.organization_id, n.kind, coalesce(n.name, '') as name, ${timestampSql('n.created_at')} as created_at,
      n.name_scope = 'service' as is_service, n.parent_id,
      case when n.kind = 'environment' then n.id when n.name_scope = 'service' then n.parent_id end as environment_id
    from node n where n.id = any($1::uuid[])
  ), place as (
    select here.*, e.name as environment_name, e.spec ->> 'mode' as environment_mode,
      coalesce(e.parent_id, here.id) as project_id, p.name as project_name,
      case when c.id is not null then json_build_object('name', c.name, 'provider', c.spec ->> 'cloud_provider',
        'region', coalesce(c.spec ->> 'region', ''), 'domain', ${clusterDomainSql('c')}) end as cluster
    from here left join node e on e.id = here.environment_id left join node p on p.id = coalesce(e.parent_id, here.id)
      left join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster'
  )`

/** Where configurations of all kinds have their repository. */
const branchPaths = [
  'git_repository',
  'source,docker,git_repository',
  'terraform_files_source,git_repository',
  'source,git_repository',
]

export const siblingsSql = `
  sibling as (
    select s.parent_id as environment_id, json_agg(json_build_object('id', s.id, 'name', s.name, 'kind', s.kind,
      'type', s.spec ->> 'type', 'port', s.spec #>> '{ports,0,internal_port}',
      'branch', coalesce(${branchPaths.map((path) => `s.spec #>> '{${path},branch}'`).join(', ')}),
      'commit', (select r.commit ->> 'git_commit_id' from service_state t join release r on r.id = t.current_release_id
        where t.service_id = s.id),
      'host', (select min(r.host) from route r where r.service_id = s.id and r.is_default),
      'built_in', s.spec -> 'built_in', 'is_routed', ${isRoutedSql('s.id')},
      'outside', (select json_agg(json_build_object('inside', p -> 'internal_port', 'outside', p -> 'external_port',
          'protocol', p -> 'protocol') order by at)
        from jsonb_array_elements(s.spec -> 'ports') with ordinality as ports (p, at)
        where p -> 'publicly_accessible' = 'true' and p ->> 'protocol' in ('TCP', 'UDP')),
      'sealed', case when s.spec ? 'built_in' then s.sealed end,
      'outputs', (select json_agg(json_build_object('id', o.id, 'name', o.name, 'value', o.value, 'sealed', o.sealed)
        order by o.name) from service_output o where o.service_id = s.id)) order by s.created_at, s.id) as services
    from node s where s.parent_id = any(array(select distinct environment_id from place)) and s.name_scope = 'service'
      and s.kind <> all('{${kindsWith(({ builtIns }) => builtIns === 'none')}}')
    group by s.parent_id
  )`

export const placesColumn = `(select coalesce(json_agg(place), '[]') from place) as places`

export const siblingsColumns = `
  (select coalesce(json_object_agg(environment_id, services), '{}') from sibling) as siblings,
  ${publishedHostSql} as outside_host`

/** The alias that every service has on its environment's network whatever its name is (deployments/desired/workload.ts). */
const internalHost = (serviceId: string): string => `service-${serviceId}`

const outputOf = ({ outputs }: ServiceRow, name: string, opened: Record<string, string>): string => {
  const found = (outputs ?? []).find((each) => each.name === name)
  return found === undefined ? '' : (found.value ?? opened[found.id] ?? '')
}

const builtInValuesOf = (row: ServiceRow, outsideHost: string, opened: Record<string, string>) => {
  const { built_in: told, is_routed: isRouted, outside } = row
  // The load balancer of a Kubernetes cluster gets its own address later: other services of the environment do not
  // need it.
  const fill = (text = ''): string =>
    isRouted
      ? text.replaceAll('{outside}', outsideHost)
      : text.replace(
          /\{outside\}(:\d+)?/g,
          (_, port) => internalHost(row.id) + (port === undefined ? '' : `:${row.port}`),
        )
  const isInside = !isRouted && outside !== null
  return Object.fromEntries(
    Object.entries(told ?? {})
      .filter(([name, { output }]) => !isInside || name !== 'PORT' || output !== undefined)
      .map(([name, { value, sealed, before, after, output, isSecret }]) => {
        if (output !== undefined) return [name, { value: outputOf(row, output, opened), isSecret: isSecret === true }]
        if (sealed === undefined) return [name, { value: fill(value) }]
        return [name, { value: fill(before) + (opened[sealed] ?? '') + fill(after), isSecret: true }]
      }),
  )
}

/** True if run outputs replace the service's own variables. */
const isMade = ({ built_in: told }: ServiceRow): boolean =>
  Object.values(told ?? {}).some(({ output }) => output !== undefined)

/** Where each public TCP and UDP port is reached; PORT_EXTERNAL is the first one's. */
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

/** A service as the others of its environment see it; `opened` has its secrets, by their field or their output's id. */
export const toService = (
  row: ServiceRow,
  outsideHost: string,
  opened: Record<string, string> = {},
): BuiltInService => ({
  id: row.id,
  name: row.name,
  type: typeOf(row.kind),
  ...(kinds[row.kind].builtIns === 'type' && row.type !== null ? { keyType: row.type } : {}),
  internalHost: isMade(row) ? outputOf(row, 'HOST', opened) : internalHost(row.id),
  externalHost: row.host ?? (row.outside === null || !row.is_routed ? null : outsideHost),
  gitBranch: row.branch,
  gitCommitId: row.commit,
  more: {
    ...(row.port === null ? {} : { PORT: { value: row.port } }),
    ...builtInValuesOf(row, outsideHost, opened),
    ...outsideOf(row),
  },
  outputs: isMade(row) ? {} : outputsOf(row, opened),
})

const tellsOfItself = (row: PlaceRow): row is PlaceRow & { kind: Kind } =>
  row.is_service && isKind(row.kind) && kinds[row.kind].builtIns !== 'none'

const toPlace = (row: PlaceRow): VariablePlace => ({
  organizationId: row.organization_id,
  scope: row.kind.toUpperCase(),
  id: row.id,
  parents: parentsOf(row),
  createdAt: row.created_at,
  service: tellsOfItself(row) ? { id: row.id, name: row.name, type: typeOf(row.kind) } : null,
  names: {
    [row.project_id]: row.project_name ?? '',
    ...(row.environment_id === null ? {} : { [row.environment_id]: row.environment_name ?? '' }),
    [row.id]: row.name,
  },
})

/** Ids of the places whose variables are visible at this one, itself last. */
export const parentsOf = (row: PlaceRow): string[] => [
  ...new Set([row.project_id, row.environment_id, row.id].filter((id) => id !== null)),
]

/** The data from which built-in variables are made at a place. */
export const toContext = (row: PlaceRow, services: readonly BuiltInService[]): BuiltInContext => ({
  organizationId: row.organization_id,
  projectId: row.project_id,
  environment:
    row.environment_id === null
      ? null
      : {
          id: row.environment_id,
          name: row.environment_name ?? '',
          mode: row.environment_mode ?? '',
          cluster: row.cluster,
        },
  services,
  serviceId: row.is_service ? row.id : null,
})

/** The place of a tree row that can hold variables; null when there is no such row. */
export const loadPlace = async (db: Queryable, id: string): Promise<VariablePlace | null> => {
  const [row] = await db.query<PlaceRow>(`with ${placeSql} select place.* from place`, [[id]])
  return row === undefined ? null : toPlace(row)
}

/** The same with its built-in variables, which reads every service of the environment. */
export const loadPlaceInContext = async (db: Queryable, id: string): Promise<PlaceInContext | null> => {
  const [found] = await db.query<{ places: PlaceRow[]; siblings: Siblings; outside_host: string }>(
    `with ${placeSql}, ${siblingsSql} select ${placesColumn}, ${siblingsColumns}`,
    [[id]],
  )
  const row = found?.places[0]
  if (found === undefined || row === undefined) return null
  const services = found.siblings[row.environment_id ?? ''] ?? []
  const context = toContext(
    row,
    services.map((service) => toService(service, found.outside_host)),
  )
  return { ...toPlace(row), context }
}
