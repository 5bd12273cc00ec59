/** The place of the page: from its address to the organization, for the frame and for rights. */
import { useQuery } from '@tanstack/react-query'
import { useParams } from '@tanstack/react-router'
import * as read from '../api/queries.ts'
import { may, type Right, type Session } from '../api/session.ts'

const none = '00000000-0000-0000-0000-000000000000'

export interface Place {
  organizationId: string | undefined
  projectId: string | undefined
  environmentId: string | undefined
  serviceId: string | undefined
  kind: read.Kind | undefined
}

const optional = (id: string | undefined): string => id ?? none

export const usePlace = (): Place => {
  const params = useParams({ strict: false }) as Record<string, string | undefined>
  const kind = params.serviceId === undefined ? undefined : (params.kind as read.Kind)
  const service = useQuery({
    ...read.service(kind ?? 'application', optional(params.serviceId)),
    enabled: kind !== undefined,
  })
  const environmentId = params.environmentId ?? service.data?.environmentId
  const environment = useQuery({ ...read.environment(optional(environmentId)), enabled: environmentId !== undefined })
  const projectId = params.projectId ?? environment.data?.project.id
  const project = useQuery({ ...read.project(optional(projectId)), enabled: projectId !== undefined })
  return {
    organizationId: params.organizationId ?? environment.data?.organization.id ?? project.data?.organization.id,
    projectId,
    environmentId,
    serviceId: params.serviceId,
    kind,
  }
}

/** True if the caller may do something here; false until it is known. */
export const useMay = (): ((right: Right) => boolean) => {
  const { organizationId, projectId, environmentId } = usePlace()
  const session = useQuery(read.session())
  const environment = useQuery({ ...read.environment(optional(environmentId)), enabled: environmentId !== undefined })
  return (right) =>
    session.data !== undefined &&
    organizationId !== undefined &&
    may(session.data, right, { organizationId, projectId, mode: environment.data?.mode })
}

export const nameOf = ({ name, email }: Session): string => email ?? name
