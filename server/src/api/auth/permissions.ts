/**
 * What a role may do, as one pure function of the operation and its place. Scopes of tokens are checked elsewhere
 * (`admits`). Knows no tables: `operations/access.ts` finds the caller's role and a row's parents.
 */
export const scopes = ['Admin', 'Read', 'Deploy', 'Write'] as const
export type Scope = (typeof scopes)[number]
type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

export const modes = ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'] as const
export const clusterLevels = ['VIEWER', 'ENV_CREATOR', 'ADMIN'] as const
export const projectLevels = ['NO_ACCESS', 'VIEWER', 'DEPLOYER', 'MANAGER'] as const
export type Mode = (typeof modes)[number]
export type ClusterLevel = (typeof clusterLevels)[number]
export type ProjectLevel = (typeof projectLevels)[number]

/** The roles of every organization, with the same ids everywhere. */
export const builtInRoles = {
  owner: '00000000-0000-4000-8000-000000000001',
  admin: '00000000-0000-4000-8000-000000000002',
  devops: '00000000-0000-4000-8000-000000000003',
  billing: '00000000-0000-4000-8000-000000000004',
  viewer: '00000000-0000-4000-8000-000000000005',
} as const
type BuiltIn = keyof typeof builtInRoles

export interface ProjectGrant {
  isAdmin: boolean
  modes: Readonly<Partial<Record<Mode, ProjectLevel>>>
}

/** The levels that a custom role grants; anything it does not name has the lowest level. */
export interface Grants {
  clusters: Readonly<Record<string, ClusterLevel>>
  projects: Readonly<Record<string, ProjectGrant>>
}

export interface Role {
  id: string
  name: string
  /** Null for a built-in role. */
  grants: Grants | null
}

const names = new Map<string, BuiltIn>(Object.entries(builtInRoles).map(([name, id]) => [id, name as BuiltIn]))

export const builtInRole = (id: string): Role | null => {
  const name = names.get(id)
  return name === undefined ? null : { id, name, grants: null }
}

/** Where something is: in a project, in one of its environments, on a cluster, or in the organization itself. */
export interface Place {
  projectId: string | null
  /** The environment's; null for rows of the whole project. */
  mode: Mode | null
  /** The cluster itself, or the one that the environment runs on. */
  clusterId: string | null
}

type Decision = 'allowed' | 'forbidden' | 'hidden'

export const areas = [
  /** The caller's own account and list of organizations. */
  'self',
  /** Reading and accepting an invitation, for people who are not members yet. */
  'invitation',
  'ownership',
  'settings',
  'members',
  'tokens',
  'audit',
  'webhooks',
  'clusters',
  /** Credentials, registries, git tokens and all else that belongs to an organization. */
  'resources',
  'projects',
] as const
export type Area = (typeof areas)[number]

export interface Need {
  method: Method
  /** `Read` admits every scope; see `reads`. */
  scope: Scope
  /** `sensitive`: a read that may show data that a deployer need not see. Deploy alone is not enough. */
  reads?: 'sensitive'
  area: Area
  /** The level that a custom role must have on the cluster it is about, or that its environment runs on. */
  cluster?: ClusterLevel
  /** The mode is in the body: callers that manage any mode pass here and are checked again once the body is read. */
  modeInBody?: true
}

interface Asked extends Need {
  owner: { param: string | null }
}

/**
 * Whether an operation is about a cluster, or only runs something on one: then it declares the level it needs on it, as
 * may one that changes something and runs it.
 */
export const usesCluster = ({ area, scope }: Need): boolean => area === 'clusters' || scope === 'Deploy'

const readableByAll: readonly Area[] = ['members', 'tokens', 'audit', 'settings', 'webhooks']

/** A read that reveals no secret. */
const isRead = ({ method, scope, area }: Need): boolean =>
  scope === 'Read' || (method === 'GET' && readableByAll.includes(area))

type Rule = (area: Area, read: boolean) => boolean

const devopsAreas: readonly Area[] = ['tokens', 'webhooks', 'clusters', 'resources', 'projects']

const builtInRules: Record<BuiltIn, Rule> = {
  owner: () => true,
  admin: (area) => area !== 'ownership',
  devops: (area, read) => read || devopsAreas.includes(area),
  billing: (area, read) => read && (area === 'settings' || area === 'clusters'),
  viewer: (_, read) => read,
}

const reaches = <T extends string>(levels: readonly T[], held: T, needed: T): boolean =>
  levels.indexOf(held) >= levels.indexOf(needed)

const when = (condition: boolean): Decision => (condition ? 'allowed' : 'forbidden')

const clusterLevelOf = (grants: Grants, clusterId: string | null): ClusterLevel =>
  (clusterId === null ? undefined : grants.clusters[clusterId]) ?? 'VIEWER'

const levelOf = (grant: ProjectGrant | undefined, mode: Mode): ProjectLevel =>
  grant?.isAdmin === true ? 'MANAGER' : (grant?.modes[mode] ?? 'NO_ACCESS')

const reachesCluster = (grants: Grants, { cluster }: Asked, clusterId: string | null): boolean =>
  cluster === undefined || reaches(clusterLevels, clusterLevelOf(grants, clusterId), cluster)

const onCluster = (grants: Grants, asked: Asked, { clusterId }: Place): Decision =>
  when(clusterId === null ? asked.scope === 'Read' : reachesCluster(grants, asked, clusterId))

const inEnvironment = (grants: Grants, asked: Asked, level: ProjectLevel, clusterId: string | null): Decision => {
  if (level === 'NO_ACCESS') return 'hidden'
  const needed = asked.scope === 'Read' ? 'VIEWER' : asked.scope === 'Deploy' ? 'DEPLOYER' : 'MANAGER'
  if (!reaches(projectLevels, level, needed)) return 'forbidden'
  return when(reachesCluster(grants, asked, clusterId))
}

/** A project as a whole: visible to callers that see any of its modes, changed only by its admins. */
const inProject = (asked: Asked, grant: ProjectGrant | undefined): Decision => {
  const levels = modes.map((mode) => levelOf(grant, mode))
  if (levels.every((level) => level === 'NO_ACCESS')) return 'hidden'
  if (asked.scope === 'Read' || grant?.isAdmin === true) return 'allowed'
  return when(asked.modeInBody === true && levels.includes('MANAGER'))
}

const inProjects = (grants: Grants, asked: Asked, { projectId, mode, clusterId }: Place): Decision => {
  // If the path names no row, the body does: it is checked again once the body is read.
  if (projectId === null) return when(asked.scope === 'Read' || asked.owner.param === null)
  const grant = grants.projects[projectId]
  return mode === null ? inProject(asked, grant) : inEnvironment(grants, asked, levelOf(grant, mode), clusterId)
}

const byGrants = (grants: Grants, asked: Asked, place: Place): Decision => {
  const { area } = asked
  if (area === 'clusters') return onCluster(grants, asked, place)
  if (area === 'projects') return inProjects(grants, asked, place)
  return when(['settings', 'resources'].includes(area) && isRead(asked))
}

/** Whether a role (null for a non-member) may do this here. Hidden: as if the place did not exist. */
export const decide = (role: Role | null, asked: Asked, place: Place): Decision => {
  const { area } = asked
  if (area === 'self' || area === 'invitation') return 'allowed'
  if (role === null) return 'hidden'
  if (role.grants !== null) return byGrants(role.grants, asked, place)
  return when(builtInRules[role.name as BuiltIn](area, isRead(asked)))
}

/** Whether a custom role sees what is at a place. */
export const sees = (grants: Grants, { projectId, mode }: Place): boolean => {
  if (projectId === null) return true
  const grant = grants.projects[projectId]
  return (mode === null ? modes : [mode]).some((each) => levelOf(grant, each) !== 'NO_ACCESS')
}

const covered: Record<BuiltIn, readonly string[]> = {
  owner: ['owner', 'admin', 'devops', 'billing', 'viewer'],
  admin: ['admin', 'devops', 'billing', 'viewer'],
  devops: ['devops', 'viewer'],
  billing: ['billing'],
  viewer: ['viewer'],
}

/** Whether a role has all the rights of another: only then may its holder grant that one. */
export const covers = (role: Role, other: Role): boolean => {
  if (role.grants !== null) return role.id === other.id
  if (other.grants !== null) return ['owner', 'admin', 'devops'].includes(role.name)
  return covered[role.name as BuiltIn].includes(other.name)
}

const nearest: Record<string, Scope[]> = {
  owner: ['Admin'],
  admin: ['Admin'],
  devops: ['Admin'],
  viewer: ['Read'],
  billing: [],
}

/** The scopes closest to a role. */
export const scopesOfRole = (role: Role | null): ReadonlySet<Scope> =>
  new Set(role === null ? [] : role.grants === null ? nearest[role.name] : (['Read', 'Deploy', 'Write'] as const))
