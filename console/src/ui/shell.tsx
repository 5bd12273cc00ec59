/** The frame around every page: where one is and what stands beside it, search, and what is true everywhere. */
import { Kbd, Menu, useMantineColorScheme } from '@mantine/core'
import { useHotkeys } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import { lazy, type ReactNode, Suspense, useState } from 'react'
import * as read from '../api/queries.ts'
import { signOut } from '../api/session.ts'
import { useIsOffline } from '../api/stream.ts'
import icon from '../icon.svg'
import { Icon } from './icons.tsx'
import { nameOf, type Place, usePlace } from './place.ts'

const Palette = lazy(() => import('./palette.tsx').then(({ Palette: component }) => ({ default: component })))
const Help = lazy(() => import('./help.tsx').then(({ Help: component }) => ({ default: component })))

interface Beside {
  to: string
  name: string
}

const Crumb = ({
  to,
  name,
  beside,
  what,
}: {
  to: string
  name: string | undefined
  beside: readonly Beside[]
  what: string
}) => (
  <li>
    <Link to={to} className="crumb clip">
      {name ?? '…'}
    </Link>
    {beside.length < 2 ? null : (
      <Menu>
        <Menu.Target>
          <button type="button" className="crumb-menu" aria-label={`Other ${what}`}>
            <Icon name="chevrons" size={14} />
          </button>
        </Menu.Target>
        <Menu.Dropdown mah={360} style={{ overflowY: 'auto' }}>
          {beside.map((each) => (
            <Menu.Item key={each.to} component={Link} to={each.to} maw={300}>
              <span className="clip">{each.name}</span>
            </Menu.Item>
          ))}
        </Menu.Dropdown>
      </Menu>
    )}
  </li>
)

const OrganizationCrumb = ({ id }: { id: string }) => {
  const { data = [] } = useQuery(read.organizations())
  const beside = data.map((each) => ({ to: `/o/${each.id}`, name: each.name }))
  return <Crumb to={`/o/${id}`} name={data.find((each) => each.id === id)?.name} beside={beside} what="organizations" />
}

const ProjectCrumb = ({ id, organizationId }: { id: string; organizationId: string }) => {
  const { data: all = [] } = useQuery(read.projects(organizationId))
  const { data } = useQuery(read.project(id))
  const beside = all.map((each) => ({ to: `/p/${each.id}/environments`, name: each.name }))
  return <Crumb to={`/p/${id}/environments`} name={data?.name} beside={beside} what="projects" />
}

const EnvironmentCrumb = ({ id, projectId }: { id: string; projectId: string }) => {
  const { data: all = [] } = useQuery(read.environmentsOf(projectId))
  const { data } = useQuery(read.environment(id))
  const beside = all.map((each) => ({ to: `/e/${each.id}/services`, name: each.name }))
  return <Crumb to={`/e/${id}/services`} name={data?.name} beside={beside} what="environments" />
}

export const addressOf = ({ kind, id }: { kind: read.Kind; id: string }, section = 'overview'): string =>
  `/s/${kind}/${id}/${section}`

const ServiceCrumb = ({ id, environmentId }: { id: string; environmentId: string }) => {
  const { data: all = [] } = useQuery(read.services(environmentId))
  const found = all.find((each) => each.id === id)
  const beside = all
    .filter(({ kind }) => read.fullKinds.includes(kind))
    .map((each) => ({ to: addressOf(each), name: each.name }))
  return <Crumb to={found === undefined ? '.' : addressOf(found)} name={found?.name} beside={beside} what="services" />
}

const Crumbs = ({ organizationId, projectId, environmentId, serviceId }: Place) => (
  <nav aria-label="Where you are" className="grow">
    <ol className="crumbs">
      {organizationId === undefined ? null : <OrganizationCrumb id={organizationId} />}
      {organizationId === undefined || projectId === undefined ? null : (
        <ProjectCrumb id={projectId} organizationId={organizationId} />
      )}
      {environmentId === undefined || projectId === undefined ? null : (
        <EnvironmentCrumb id={environmentId} projectId={projectId} />
      )}
      {serviceId === undefined || environmentId === undefined ? null : (
        <ServiceCrumb id={serviceId} environmentId={environmentId} />
      )}
    </ol>
  </nav>
)

const Account = ({ organizationId, onHelp }: { organizationId: string | undefined; onHelp(): void }) => {
  const { data } = useQuery(read.session())
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  const scheme = (name: 'light' | 'dark' | 'auto', word: string) => (
    <Menu.Item onClick={() => setColorScheme(name)} rightSection={colorScheme === name ? '✓' : null}>
      {word}
    </Menu.Item>
  )
  return (
    <Menu position="bottom-end" width={250}>
      <Menu.Target>
        <button type="button" className="crumb-menu" aria-label="Account and appearance">
          <Icon name="user" size={20} />
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          <span className="wrap">{data === undefined ? '' : `Signed in as ${nameOf(data)}`}</span>
        </Menu.Label>
        {organizationId === undefined ? null : (
          <Menu.Item component={Link} to={`/o/${organizationId}/members`}>
            Organization settings
          </Menu.Item>
        )}
        <Menu.Item onClick={onHelp}>Keyboard shortcuts</Menu.Item>
        <Menu.Item component="a" href="/docs/">
          API reference
        </Menu.Item>
        <Menu.Divider />
        <Menu.Label>Appearance</Menu.Label>
        {scheme('light', 'Light')}
        {scheme('dark', 'Dark')}
        {scheme('auto', 'As the system')}
        <Menu.Divider />
        <Menu.Item onClick={() => void signOut()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}

const Offline = () => {
  const isOffline = useIsOffline()
  return isOffline ? (
    <div className="banner" role="status">
      The connection is lost; what you see may be old. Connecting again …
    </div>
  ) : null
}

export const Shell = (): ReactNode => {
  const place = usePlace()
  const navigate = useNavigate()
  const [shown, show] = useState<'palette' | 'help' | null>(null)
  useHotkeys([
    ['mod+K', () => show('palette')],
    ['/', () => show('palette')],
    ['shift+?', () => show('help')],
    ['g', () => place.organizationId !== undefined && void navigate({ to: `/o/${place.organizationId}` })],
    ['e', () => place.environmentId !== undefined && void navigate({ to: `/e/${place.environmentId}/services` })],
    ['d', () => place.environmentId !== undefined && void navigate({ to: `/e/${place.environmentId}/deployments` })],
  ])
  return (
    <div className="frame">
      <a className="skip" href="#content">
        Skip to the content
      </a>
      <header className="bar">
        <Link to="/" className="logo" aria-label="Slipway: overview">
          <img src={icon} alt="" />
        </Link>
        <Crumbs {...place} />
        <button type="button" className="find" onClick={() => show('palette')}>
          <Icon name="search" size={14} />
          <span>Search</span>
          <Kbd size="xs" aria-hidden="true">
            Ctrl K
          </Kbd>
        </button>
        <Account organizationId={place.organizationId} onHelp={() => show('help')} />
      </header>
      <Offline />
      <main id="content" tabIndex={-1}>
        <Outlet />
      </main>
      <Suspense>
        {shown === 'palette' ? <Palette place={place} onClose={() => show(null)} onHelp={() => show('help')} /> : null}
        {shown === 'help' ? <Help onClose={() => show(null)} /> : null}
      </Suspense>
    </div>
  )
}
