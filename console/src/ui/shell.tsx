/** The frame around every page: where one is and what stands beside it, search, and what is true everywhere. */
import { Kbd, Menu, useMantineColorScheme } from '@mantine/core'
import { useHotkeys } from '@mantine/hooks'
import { useQuery } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import { lazy, type ReactNode, Suspense, useState } from 'react'
import { useLiveOrganization } from '../api/live.ts'
import * as read from '../api/queries.ts'
import { signOut } from '../api/session.ts'
import { useIsOffline } from '../api/stream.ts'
import icon from '../icon.svg'
import { Crumbs } from './crumbs.tsx'
import { Deploying } from './deploying.tsx'
import { Icon } from './icons.tsx'
import { nameOf, usePlace } from './place.ts'

const Palette = lazy(() => import('./palette.tsx').then(({ Palette: component }) => ({ default: component })))
const Help = lazy(() => import('./help.tsx').then(({ Help: component }) => ({ default: component })))

const Version = () => {
  const { data } = useQuery(read.version())
  return <Menu.Label>Slipway {data}</Menu.Label>
}

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
        <Menu.Divider />
        <Version />
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
  useLiveOrganization(place.organizationId)
  const [shown, show] = useState<'palette' | 'help' | null>(null)
  // From within a field too.
  useHotkeys([['mod+K', () => show('palette')]], [])
  useHotkeys([
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
        {place.organizationId === undefined ? null : <Deploying organizationId={place.organizationId} />}
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
