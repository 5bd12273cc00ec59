/** Where the page is, from the organization down, and what stands beside each place. */
import { Menu } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import * as read from '../api/queries.ts'
import { Icon } from './icons.tsx'
import type { Place } from './place.ts'

interface Beside {
  to: string
  name: string
}

/** More are found by the search. */
const most = 100

/** Asked for when the menu is opened. */
const Others = ({ useBeside }: { useBeside(): readonly Beside[] | undefined }) => {
  const all = useBeside()
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
  useBeside(): readonly Beside[] | undefined
}

const Crumb = ({ to, name, what, useBeside }: CrumbProps) => (
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
        <Others useBeside={useBeside} />
      </Menu.Dropdown>
    </Menu>
  </li>
)

const OrganizationCrumb = ({ id }: { id: string }) => {
  const { data } = useQuery(read.organizations())
  return (
    <Crumb
      to={`/o/${id}`}
      name={data?.find((each) => each.id === id)?.name}
      what="organizations"
      useBeside={() => data?.map((each) => ({ to: `/o/${each.id}`, name: each.name }))}
    />
  )
}

const ProjectCrumb = ({ id, organizationId }: { id: string; organizationId: string }) => {
  const { data } = useQuery(read.project(id))
  const useBeside = () =>
    useQuery(read.projects(organizationId)).data?.map((each) => ({
      to: `/p/${each.id}/environments`,
      name: each.name,
    }))
  return <Crumb to={`/p/${id}/environments`} name={data?.name} what="projects" useBeside={useBeside} />
}

const EnvironmentCrumb = ({ id, projectId }: { id: string; projectId: string }) => {
  const { data } = useQuery(read.environment(id))
  const useBeside = () =>
    useQuery(read.environmentsOf(projectId)).data?.map((each) => ({ to: `/e/${each.id}/services`, name: each.name }))
  return <Crumb to={`/e/${id}/services`} name={data?.name} what="environments" useBeside={useBeside} />
}

export const addressOf = ({ kind, id }: { kind: read.Kind; id: string }, section = 'overview'): string =>
  `/s/${kind}/${id}/${section}`

const ServiceCrumb = ({ id, kind, environmentId }: { id: string; kind: read.Kind; environmentId: string }) => {
  const { data } = useQuery(read.service(kind, id))
  const useBeside = () =>
    useQuery(read.services(environmentId))
      .data?.filter((each) => read.fullKinds.includes(each.kind))
      .map((each) => ({ to: addressOf(each), name: each.name }))
  return <Crumb to={addressOf({ kind, id })} name={data?.name} what="services" useBeside={useBeside} />
}

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
