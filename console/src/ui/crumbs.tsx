/** The path to the page, from the organization down, with the siblings of each part. */
import { Menu } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import * as read from '../api/queries.ts'
import { Icon } from './icons.tsx'
import type { Place } from './place.ts'

interface Beside {
  to: string
  name: string
}

/** More are found by the search. */
const most = 100

const Others = ({ all }: { all: readonly Beside[] | undefined }) => {
  if (all === undefined) return <Menu.Label>Waiting for the server …</Menu.Label>
  return (
    <>
      {all.slice(0, most).map((each) => (
        <Menu.Item key={each.to} component={Link} to={each.to} maw={300}>
          <span className="clip">{each.name}</span>
        </Menu.Item>
      ))}
      {all.length > most ? <Menu.Label>{all.length - most} more: search with Ctrl K</Menu.Label> : null}
    </>
  )
}

interface CrumbProps {
  to: string
  name: string | undefined
  what: string
  /** Read and shown when the menu is opened. */
  children: ReactNode
}

const Crumb = ({ to, name, what, children }: CrumbProps) => (
  <li>
    <Link to={to} className="crumb clip">
      {name ?? '…'}
    </Link>
    <Menu>
      <Menu.Target>
        <button type="button" className="crumb-menu" aria-label={`Other ${what}`}>
          <Icon name="chevrons" size={14} />
        </button>
      </Menu.Target>
      <Menu.Dropdown mah={360} style={{ overflowY: 'auto' }}>
        {children}
      </Menu.Dropdown>
    </Menu>
  </li>
)

const OrganizationCrumb = ({ id }: { id: string }) => {
  const { data } = useQuery(read.organizations())
  return (
    <Crumb to={`/o/${id}`} name={data?.find((each) => each.id === id)?.name} what="organizations">
      <Others all={data?.map((each) => ({ to: `/o/${each.id}`, name: each.name }))} />
    </Crumb>
  )
}

const Projects = ({ organizationId }: { organizationId: string }) => {
  const { data } = useQuery(read.projects(organizationId))
  return <Others all={data?.map(({ id, name }) => ({ to: `/p/${id}/environments`, name }))} />
}

const ProjectCrumb = ({ id, organizationId }: { id: string; organizationId: string }) => (
  <Crumb to={`/p/${id}/environments`} name={useQuery(read.project(id)).data?.name} what="projects">
    <Projects organizationId={organizationId} />
  </Crumb>
)

const Environments = ({ projectId }: { projectId: string }) => {
  const { data } = useQuery(read.environmentsOf(projectId))
  return <Others all={data?.map(({ id, name }) => ({ to: `/e/${id}/services`, name }))} />
}

const EnvironmentCrumb = ({ id, projectId }: { id: string; projectId: string }) => (
  <Crumb to={`/e/${id}/services`} name={useQuery(read.environment(id)).data?.name} what="environments">
    <Environments projectId={projectId} />
  </Crumb>
)

export const addressOf = ({ kind, id }: { kind: read.Kind; id: string }, section = 'overview'): string =>
  `/s/${kind}/${id}/${section}`

const Services = ({ environmentId }: { environmentId: string }) => {
  const { data } = useQuery(read.services(environmentId))
  return <Others all={data?.map((each) => ({ to: addressOf(each), name: each.name }))} />
}

const ServiceCrumb = ({ id, kind, environmentId }: { id: string; kind: read.Kind; environmentId: string }) => (
  <Crumb to={addressOf({ kind, id })} name={useQuery(read.service(kind, id)).data?.name} what="services">
    <Services environmentId={environmentId} />
  </Crumb>
)

export const Crumbs = ({ organizationId, projectId, environmentId, serviceId, kind }: Place) => (
  <nav aria-label="Where you are" className="grow">
    <ol className="crumbs">
      {organizationId === undefined ? null : <OrganizationCrumb id={organizationId} />}
      {organizationId === undefined || projectId === undefined ? null : (
        <ProjectCrumb id={projectId} organizationId={organizationId} />
      )}
      {environmentId === undefined || projectId === undefined ? null : (
        <EnvironmentCrumb id={environmentId} projectId={projectId} />
      )}
      {serviceId === undefined || kind === undefined || environmentId === undefined ? null : (
        <ServiceCrumb id={serviceId} kind={kind} environmentId={environmentId} />
      )}
    </ol>
  </nav>
)
