/**
 * Whatever changes in the organization that is open, by whomever, is read again: one stream a page, no polling. The key
 * of a query has the ids of what it reads; by them a change finds its queries.
 */
import { type Query, useQueryClient } from '@tanstack/react-query'
import { useMemo } from 'react'
import { createRefresher } from './refresh.ts'
import { useStream } from './stream.ts'

interface Change {
  /** In the words of the audit log. */
  kind: string
  part: string | null
  verb: string
  id: string | null
  project_id: string | null
  environment_id: string | null
}

interface Frame {
  /** What was read before may be old. */
  refetch: boolean
  changes: Change[]
}

/** What no change of the organization concerns. */
const apart = new Set<unknown>(['credentials', 'plan', 'ways to sign in'])
/** What a change of a state may change, besides the state. */
const ofStates = new Set<unknown>(['live', 'history', 'services', 'links', 'releases'])
const rights = new Set(['API_TOKEN', 'CUSTOM_ROLE', 'MEMBER_ROLE'])

type Key = readonly unknown[]

const ofState = ({ environment_id: environmentId, project_id: projectId }: Change, organizationId: string) => {
  return ({ queryKey: [name, ...ids], state }: Query): boolean => {
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
  // Its lists are the organization's.
  if (environmentId === null || kind === 'ENVIRONMENT') ids.add(organizationId)
  const isVariable = part === 'VARIABLE' || part === 'SECRET'
  return ({ queryKey: [name, ...rest] }: { queryKey: Key }): boolean => {
    if (apart.has(name)) return false
    if (name === 'session') return kind === 'MEMBERS_AND_ROLES' || rights.has(part ?? '')
    if (name === 'organizations') return kind === 'ORGANIZATION' && part === null
    if (name === 'audit') return rest.includes(organizationId)
    // Those of a project or an environment count further down too.
    if (isVariable && name === 'variables') return true
    return rest.some((each) => ids.has(each))
  }
}

/** Follows an organization while a page of it is shown. */
export const useLiveOrganization = (organizationId: string | undefined): void => {
  const queries = useQueryClient()
  const refresher = useMemo(() => createRefresher(queries), [queries])
  useStream<Frame>(organizationId === undefined ? null : `/organization/${organizationId}/changes`, {
    onMessage({ refetch, changes }) {
      if (refetch) refresher.refresh(({ queryKey: [name] }) => !apart.has(name))
      for (const change of changes) {
        const concerns = change.part === 'STATUS' ? ofState : ofWrite
        refresher.refresh(concerns(change, organizationId!))
      }
    },
  })
}
