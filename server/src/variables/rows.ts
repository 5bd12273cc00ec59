/**
 * Reads the variables of services: one statement, however many services and variables there are. Promises that a
 * secret's value leaves only inside the result of `loadAllVariables`.
 */
import { setImmediate } from 'node:timers/promises'
import type { Queryable } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { type BuiltInService, type BuiltInVariable, builtInVariables } from './built-in.ts'
import {
  type OutputRow,
  type PlaceRow,
  parentsOf,
  placeSql,
  placesColumn,
  type ServiceRow,
  type Siblings,
  siblingsColumns,
  siblingsSql,
  toContext,
  toService,
} from './places.ts'
import { type ExternalReference, type ResolvedVariables, resolveVariables, type VisibleVariable } from './resolve.ts'

interface StoredVariable extends VisibleVariable {
  parentId: string
  organizationId: string
  sealed: string | null
  /** It refers to a secret manager access that the organization does not have. */
  dangling: boolean
}

const storedSql = `json_build_object('id', v.id, 'parentId', v.parent_id, 'organizationId', v.organization_id, 'key', v.key,
  'value', v.value, 'sealed', v.sealed, 'scope', v.scope,
  'isSecret', v.is_secret, 'variableType', v.variable_type, 'mountPath', v.mount_path,
  'interpolateInFile', coalesce(v.enable_interpolation_in_file, false), 'targetId', v.target_id,
  'accessId', v.secret_manager_access_id,
  'dangling', v.secret_manager_access_id is not null and not exists (select from node a
    where a.id = v.secret_manager_access_id and a.organization_id = v.organization_id and a.kind = 'secret_manager_access'))`

const loadSql = `with ${placeSql}, ${siblingsSql}
  select ${placesColumn}, ${siblingsColumns}, (select coalesce(json_agg(${storedSql}), '[]') from variable v
    where v.parent_id = any(array(select unnest(array[project_id, environment_id, id]) from place))
      and v.scope <> 'BUILT_IN') as variables`

interface Loaded {
  places: PlaceRow[]
  siblings: Siblings
  outside_host: string
  variables: StoredVariable[]
}

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

/** A row with the value that its readers may see. */
interface OpenedVariable {
  parentId: string
  dangling: boolean
  row: VisibleVariable
}

const openRow = async (
  sealer: Sealer,
  { parentId, organizationId, sealed, dangling, ...row }: StoredVariable,
): Promise<OpenedVariable> => {
  // A variable that never has a value is not decrypted.
  if (sealed === null || dangling) return { parentId, dangling, row }
  const opened = await sealer.open(organizationId, { table: 'variable', row: row.id, column: 'value' }, sealed)
  return { parentId, dangling, row: { ...row, value: opened.reveal() } }
}

/** Another service with the secrets that it provides, opened. */
const openService = async (
  sealer: Sealer,
  organizationId: string,
  outsideHost: string,
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

/** Commits that are being deployed, by service: a service sees its new commit, not that of the former version. */
type Commits = Readonly<Record<string, string>>

/** Services by their environment, secrets opened: once for all services of the environment. */
const openSiblings = async (sealer: Sealer, { places, siblings, outside_host }: Loaded, commits: Commits) => {
  const organizations = new Map(places.map((place) => [place.environment_id, place.organization_id]))
  const open = async ([id, services]: [string, ServiceRow[]]) => {
    const all = services.map((service) => {
      const now = { ...service, commit: commits[service.id] ?? service.commit }
      return openService(sealer, organizations.get(id)!, outside_host, now)
    })
    return [id, await Promise.all(all)] as const
  }
  return new Map(await Promise.all(Object.entries(siblings).map(open)))
}

/** The variables that a deployment uses, and the keys that it lacks. */
export interface LoadedVariables extends ResolvedVariables {
  leftOut: string[]
  /** The same with the values of external secrets, by the ids of their variables. */
  fill(values: ReadonlyMap<string, string>): FilledVariables
}

/** With values in place of references. */
interface FilledVariables extends ResolvedVariables {
  leftOut: string[]
  external: (ExternalReference & { value: string })[]
  /** As it is stored: with the references. */
  asWritten: ResolvedVariables
}

const resolve = (builtIn: readonly VisibleVariable[], seen: readonly OpenedVariable[]): LoadedVariables => {
  const rows = [...builtIn, ...seen.filter(({ dangling }) => !dangling).map(({ row }) => row)]
  const asWritten = resolveVariables(rows)
  const without = seen.filter(({ dangling, row }) => dangling && !Object.hasOwn(asWritten.env, row.key))
  const leftOut = [...new Set(without.map(({ row }) => row.key))].sort()
  const fill = (values: ReadonlyMap<string, string>): FilledVariables => {
    const filled = resolveVariables(rows.map((row) => ({ ...row, value: values.get(row.id) ?? row.value })))
    const external = asWritten.external.map((one) => ({ ...one, value: values.get(one.variableId) ?? '' }))
    return { ...filled, leftOut, external, asWritten }
  }
  return { ...asWritten, leftOut, fill }
}

/** The environments of services as deployments would use them now, by service; keep them in memory only. One statement. */
export const loadAllVariables = async (
  db: Queryable,
  sealer: Sealer,
  serviceIds: readonly string[],
  commits: Commits = {},
): Promise<Map<string, LoadedVariables>> => {
  const [loaded] = await db.query<Loaded>(loadSql, [serviceIds])
  const { places, variables } = loaded!
  const [services, rows] = await Promise.all([
    openSiblings(sealer, loaded!, commits),
    Promise.all(variables.map((one) => openRow(sealer, one))),
  ])
  const all = new Map(serviceIds.map((id) => [id, resolve([], [])]))
  for (const place of places) {
    const parents = new Set(parentsOf(place))
    const context = toContext(place, services.get(place.environment_id ?? '') ?? [])
    const seen = rows.filter(({ parentId }) => parents.has(parentId))
    all.set(place.id, resolve(builtInVariables(context).map(asVisible), seen))
    // Many services of large environments take time: other work gets a turn between them.
    if (places.length > 1) await setImmediate()
  }
  return all
}
