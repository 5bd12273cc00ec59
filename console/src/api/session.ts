/** The signed-in user, and their rights. */
import { Problem } from './client.ts'
import { forgetKey, keepKey, keyHeader, readKey } from './session-key.ts'

export type Mode = 'DEVELOPMENT' | 'PREVIEW' | 'STAGING' | 'PRODUCTION'

interface Grants {
  clusters: Record<string, string>
  projects: Record<string, { isAdmin: boolean; modes: Partial<Record<Mode, string>> }>
}

interface Membership {
  organization_id: string
  scopes: readonly string[]
  role: { id: string; name: string } | null
  grants: Grants | null
}

export interface Session {
  name: string
  email: string | null
  is_person: boolean
  is_operator: boolean
  memberships: readonly Membership[]
}

const path = '/console/session'

const ask = async (method: string, body?: object): Promise<Response> => {
  const key = readKey()
  const answer = await fetch(path, {
    method,
    headers: {
      ...(key === null ? {} : { [keyHeader]: key }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  }).catch(() => {
    throw new Problem(0, {})
  })
  if (answer.ok) return answer
  if (answer.status === 401 && method !== 'POST') forgetKey()
  throw new Problem(answer.status, await answer.json().catch(() => ({})))
}

/** By a token, or by the code of a link. */
export const signIn = async (proof: { token: string } | { code: string }): Promise<void> => {
  const { key } = (await (await ask('POST', proof)).json()) as { key: string }
  keepKey(key)
}

export const signOut = async (): Promise<void> => {
  await ask('DELETE').catch(() => undefined)
  forgetKey()
}

export const readSession = async (): Promise<Session> => (await (await ask('GET')).json()) as Session

export type Right = 'deploy' | 'write' | 'delete' | 'administer' | 'members'

/** The place of a record; a custom role has rights in some places only. */
interface Where {
  organizationId: string
  projectId?: string | undefined
  mode?: Mode | undefined
}

const membershipIn = ({ memberships, is_operator }: Session, id: string): Membership | undefined =>
  memberships.find((each) => each.organization_id === id) ?? (is_operator ? memberships[0] : undefined)

const levels = ['NO_ACCESS', 'VIEWER', 'DEPLOYER', 'MANAGER']

const reaches = (grants: Grants, right: Right, { projectId, mode }: Where): boolean => {
  const project = projectId === undefined ? undefined : grants.projects[projectId]
  if (project === undefined || right === 'administer' || right === 'members') return false
  if (project.isAdmin) return true
  if (mode === undefined) return false
  const level = levels.indexOf(project.modes[mode] ?? 'NO_ACCESS')
  return level >= (right === 'deploy' ? 2 : 3)
}

/** True if the API would allow it: a button that would fail is not shown. */
export const may = (session: Session, right: Right, where: Where): boolean => {
  const found = membershipIn(session, where.organizationId)
  if (found === undefined) return false
  if (found.grants !== null && !reaches(found.grants, right, where)) return false
  const { scopes, role } = found
  if (right === 'members') return scopes.includes('Admin') && (role === null || ['owner', 'admin'].includes(role.name))
  if (scopes.includes('Admin')) return true
  if (right === 'deploy') return scopes.includes('Deploy')
  if (right === 'write') return scopes.includes('Write')
  return found.grants !== null && right === 'delete'
}
