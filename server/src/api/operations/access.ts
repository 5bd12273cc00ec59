/**
 * Which organization owns the row of a request, and whether the caller may act on it: the single gate of every
 * operation. A caller with one organization costs no query beyond the one for the row; only custom roles need to know
 * the row's parents.
 */
import { forbidden, notFound } from '../../lib/errors.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import type { Node } from '../../store/tree.ts'
import {
  type Area,
  decide,
  type Grants,
  type Mode,
  type Place,
  type Role,
  scopesOfRole,
  sees,
} from '../auth/permissions.ts'
import { admits, type Operation, type Owner, type Principal, type Scope } from './operation.ts'

/** The caller as a member of another of its organizations; null if it is not a member. */
const inOrganization = (principal: Principal, organizationId: string): Principal | null => {
  if (principal.organizationId === organizationId) return principal
  const found = principal.memberships.find((each) => each.organizationId === organizationId)
  if (found !== undefined) return { ...principal, organizationId, role: found.role, scopes: scopesOfRole(found.role) }
  return principal.isOperator ? { ...principal, organizationId } : null
}

/** Only an invited person can find a row of an organization they do not belong to. */
const asGuest = (principal: Principal, organizationId: string): Principal =>
  inOrganization(principal, organizationId) ?? { ...principal, organizationId, role: null, scopes: new Set() }

const organizationOfRow = `select organization_id as id from node where id = $1
  union all select organization_id from variable where id = $1
  union all select organization_id from deployment where id = $1
  union all select organization_id from deployment_stage where id = $1 limit 1`

const seesOthers = ({ isOperator, memberships }: Principal): boolean => isOperator || memberships.length > 1

/** The caller as a member of the organization that owns this row; null if it is not a member. */
const whereRowIs = async (db: Queryable, principal: Principal, id: string | undefined): Promise<Principal | null> => {
  if (!seesOthers(principal) || id === undefined || !isUuid(id)) return null
  const [row] = await db.query<{ id: string }>(organizationOfRow, [id])
  return row === undefined ? null : inOrganization(principal, row.id)
}

const nowhere: Place = { projectId: null, mode: null, clusterId: null }

export interface Found {
  principal: Principal
  node: Node
}

/** If the path names no row: the caller in the first of its organizations that allows this. */
const whereAllowed = (principal: Principal, operation: Operation): Principal => {
  if (operation.owner.param !== null || principal.memberships.length < 2) return principal
  const found = principal.memberships.find(({ role }) => decide(role, operation, nowhere) === 'allowed')
  return found === undefined ? principal : inOrganization(principal, found.organizationId)!
}

/** The row that a request names, and the caller in that row's organization. */
export const findRow = async (
  db: Queryable,
  operation: Operation,
  owner: Owner,
  named: Record<string, string>,
  caller: Principal,
): Promise<Found | null> => {
  const principal = whereAllowed(caller, operation)
  const node = await owner.find(db, named, principal)
  if (node !== null) {
    const isOwn = node.organizationId === principal.organizationId
    return { node, principal: isOwn ? principal : asGuest(principal, node.organizationId) }
  }
  // An execution of an environment is identified by the environment's id and a number.
  const there = owner.param === null ? null : await whereRowIs(db, principal, named[owner.param]?.slice(0, 36))
  if (there === null || there === principal) return null
  const elsewhere = await owner.find(db, named, there)
  return elsewhere === null ? null : { node: elsewhere, principal: there }
}

const placesOfRows = `with recursive up as (
    select id as row, id, kind, parent_id, spec from node where id = any($1)
    union all select up.row, p.id, p.kind, p.parent_id, p.spec from up join node p on p.id = up.parent_id
  )
  select row, max(id::text) filter (where kind = 'project') as "projectId",
    max(spec ->> 'mode') filter (where kind = 'environment') as mode,
    coalesce(max(spec ->> 'cluster_id') filter (where kind = 'environment'),
      max(id::text) filter (where kind = 'cluster')) as "clusterId"
  from up group by row`

const placesOf = async (db: Queryable, ids: readonly string[]): Promise<Map<string, Place>> => {
  const rows = await db.query<Place & { row: string }>(placesOfRows, [ids])
  return new Map(rows.map(({ row, ...place }) => [row, { ...place, mode: place.mode as Mode | null }]))
}

/** For a row outside the tree: the place of the row it belongs to. */
const placeOfNode = async (db: Queryable, { id, parentId }: Node): Promise<Place> => {
  const places = await placesOf(db, parentId === null ? [id] : [id, parentId])
  return places.get(id) ?? places.get(parentId ?? '') ?? nowhere
}

const judge = (role: Role | null, operation: Operation, place: Place): void => {
  const decision = decide(role, operation, place)
  if (decision === 'hidden') throw notFound()
  if (decision === 'forbidden')
    throw forbidden(
      role === null ? 'Only members of this organization may do this.' : `The role ${role.name} does not allow this.`,
    )
}

const requireScope = (scopes: ReadonlySet<Scope>, operation: Operation): void => {
  if (admits(scopes, operation)) return
  const others = operation.scope === 'Admin' ? '' : ' or Admin'
  throw forbidden(`This requires a token with the scope ${operation.scope}${others}.`)
}

/** Throws unless the caller may do this to the row. */
export const authorize = async (db: Queryable, operation: Operation, { principal, node }: Found): Promise<void> => {
  const { role, account, within } = principal
  if (role === null && account === null) return requireScope(principal.scopes, operation)
  const hangs = role !== null && role.grants !== null && operation.owner.param !== null
  const place = hangs ? await placeOfNode(db, node) : nowhere
  // A row that the role cannot see does not exist for it, whatever the token's own scopes are.
  if (decide(role, operation, place) === 'hidden') throw notFound()
  if (within !== null) requireScope(within, operation)
  judge(role, operation, place)
}

export const authorizerOf =
  (db: Queryable, operation: Operation, context: { principal: Principal }) =>
  async (where: string | Place): Promise<void> => {
    if (typeof where === 'string') {
      if (!isUuid(where)) throw notFound()
      const there = await whereRowIs(db, context.principal, where)
      if (there !== null) context.principal = there
    }
    const { role } = context.principal
    if (role === null) return
    if (role.grants === null) return judge(role, operation, nowhere)
    const place = typeof where === 'string' ? (await placesOf(db, [where])).get(where.toLowerCase()) : where
    if (place === undefined) throw notFound()
    judge(role, operation, place)
  }

/** A custom role, which may see only part of a list. */
export const isSelective = ({ role }: Principal): boolean => role !== null && role.grants !== null

export const rightsOf = ({ role, account }: Principal): string => {
  if (role === null) return account === null ? 'token' : 'nobody'
  return JSON.stringify(role.grants ?? role.name)
}

/** Equal for callers that may share a cached answer: same rights, same scopes. */
export const sharesAnswers = (principal: Principal): string =>
  principal.account === null ? `${rightsOf(principal)} ${[...principal.scopes].sort()}` : principal.account.id

/** Whether the caller may read what is at a place, in an operation that is about something else. */
export const mayReadIn = ({ role, account }: Principal, area: Area, place: Place): boolean => {
  if (role === null) return account === null
  const asked = { method: 'GET', scope: 'Read', area, owner: { param: 'id' } } as const
  return decide(role, asked, place) === 'allowed'
}

export const mayReadAt = (principal: Principal, place: Place): boolean => mayReadIn(principal, 'projects', place)

/**
 * The first of these that a record has is its place: a record that is used by something may be used by a whole
 * project.
 */
const placeNames = ['id', 'environment_id', 'project_id', 'cluster_id']

const idOf = (record: Record<string, unknown>): string | null => {
  const ids = placeNames.map((name) => record[name])
  return ids.find((id): id is string => typeof id === 'string' && isUuid(id)) ?? null
}

/** A list without the records that a custom role has no access to; anything else unchanged. */
export const onlyVisible = async (db: Queryable, grants: Grants, answer: unknown): Promise<unknown> => {
  const results = (answer as { results?: unknown } | null)?.results
  if (!Array.isArray(results)) return answer
  const ids = results.map((record) => idOf(record as Record<string, unknown>))
  const known = ids.filter((id) => id !== null)
  const places = await placesOf(db, known)
  const isSeen = (id: string | null): boolean => sees(grants, places.get(id ?? '') ?? nowhere)
  return { ...(answer as object), results: results.filter((_, index) => isSeen(ids[index]!)) }
}
