/**
 * Finds the queries that a change concerns. A key is a name and the ids of the data it reads; a change has the ids of
 * the changed record and of its parents.
 */
export interface Change {
  /** Terms of the audit log. */
  kind: string
  part: string | null
  verb: string
  id: string | null
  project_id: string | null
  environment_id: string | null
}

/** Queries that no change of the organization concerns. */
const apart = new Set<unknown>(['credentials', 'plan', 'ways to sign in'])
/** Queries that a change of a state may affect, besides the state itself. */
const ofStates = new Set<unknown>(['live', 'history', 'services', 'links', 'releases'])
const rights = new Set(['API_TOKEN', 'CUSTOM_ROLE', 'MEMBER_ROLE'])

/** A query, by its key and its data. */
interface Asked {
  queryKey: readonly unknown[]
  state: { data: unknown }
}

/** True if no change of an organization concerns it. */
export const isApart = ({ queryKey: [name] }: Pick<Asked, 'queryKey'>): boolean => apart.has(name)

const ofState = ({ environment_id: environmentId, project_id: projectId }: Change, organizationId: string) => {
  return ({ queryKey: [name, ...ids], state }: Asked): boolean => {
    if (name === 'environments') return ids.includes(projectId)
    if (name === 'active deployments') return ids.includes(organizationId)
    if (name === 'service')
      return (state.data as { environmentId?: string } | undefined)?.environmentId === environmentId
    return ofStates.has(name) && ids.includes(environmentId)
  }
}

const ofWrite = (change: Change, organizationId: string) => {
  const { kind, part, id, environment_id: environmentId, project_id: projectId } = change
  const ids = new Set<unknown>([id, environmentId, projectId].filter((each) => each !== null))
  // Its lists belong to the organization.
  if (environmentId === null || kind === 'ENVIRONMENT') ids.add(organizationId)
  const isVariable = part === 'VARIABLE' || part === 'SECRET'
  return ({ queryKey: [name, ...rest] }: Asked): boolean => {
    if (apart.has(name)) return false
    if (name === 'session') return kind === 'MEMBERS_AND_ROLES' || rights.has(part ?? '')
    if (name === 'organizations') return kind === 'ORGANIZATION' && part === null
    if (name === 'audit') return rest.includes(organizationId)
    // Changes of a project or an environment also concern everything below it.
    if (isVariable && name === 'variables') return true
    return rest.some((each) => ids.has(each))
  }
}

export const concerns = (change: Change, organizationId: string): ((query: Asked) => boolean) =>
  change.part === 'STATUS' ? ofState(change, organizationId) : ofWrite(change, organizationId)
