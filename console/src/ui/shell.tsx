/** The frame around every page: the path to it, search, and notices for all pages. */
import { Kbd, Menu, useMantineColorScheme } from '@mantine/core'
import { useHotkeys } from '@mantine/hooks'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, Outlet, useNavigate } from '@tanstack/react-router'
import { lazy, type ReactNode, Suspense, useEffect, useRef, useState } from 'react'
import { useLiveOrganization } from '../api/live.ts'
import * as read from '../api/queries.ts'
import { signOut } from '../api/session.ts'
import { useIsOffline } from '../api/stream.ts'
import icon from '../icon.svg'
import { Crumbs } from './crumbs.tsx'
import { Icon } from './icons.tsx'
import { part } from './part.ts'
import { nameOf, usePlace } from './place.ts'
import { StateMark, toneOf, wordOf } from './state.tsx'
import { tell, tellFailure } from './toasts.tsx'

type Active = NonNullable<
  Awaited<ReturnType<NonNullable<ReturnType<typeof read.activeDeployments>['queryFn']>>>
>[number]

const addressOf = ({ environment_id, execution_id }: Active): string =>
  `/e/${environment_id}/deployments/${execution_id}`

/** If more end at once, the lists show them. */
const mostTold = 3

const useEnds = (active: readonly Active[] | undefined): void => {
  const queries = useQueryClient()
  const before = useRef<readonly Active[]>([])
  useEffect(() => {
    if (active === undefined) return
    const running = new Set(active.map(({ execution_id: id }) => id))
    const ended = before.current.filter(({ execution_id: id }) => !running.has(id))
    before.current = active
    const tellEnd = async (one: Active): Promise<void> => {
      if (location.pathname === addressOf(one)) return
      const rows = await queries.fetchQuery({ ...read.history(one.environment_id), staleTime: 0 })
      const row = rows.find(({ identifier }) => identifier.execution_id === one.execution_id)
      if (row === undefined) return
      const words = `${one.project_name} / ${one.environment_name}: ${wordOf(row.status).toLowerCase()}`
      const link = { to: addressOf(one), text: 'See the deployment' }
      if (toneOf(row.status) === 'bad') tellFailure(words, link)
      else tell(words, link)
    }
    // A deleted environment gets no notice.
    for (const one of ended.slice(0, mostTold)) tellEnd(one).catch(() => undefined)
  }, [active, queries])
}

/** Current deployments, anywhere in the organization; a notice with a link shows how one ended. */
const Deploying = ({ organizationId }: { organizationId: string }) => {
  const { data: active } = useQuery(read.activeDeployments(organizationId))
  useEnds(active)
  if (active === undefined || active.length === 0) return null
  return (
    <Menu position="bottom-end" width={320}>
      <Menu.Target>
        <button type="button" className="deploying" aria-label={`${active.length} deploying now`}>
          <span className="state busy">
            <i aria-hidden="true" />
            {active.length} <span className="optional">deploying</span>
          </span>
        </button>
      </Menu.Target>
      <Menu.Dropdown mah={360} style={{ overflowY: 'auto' }}>
        <Menu.Label>Deploying now</Menu.Label>
        {active.map((one) => (
          <Menu.Item key={one.execution_id} component={Link} to={addressOf(one)}>
            <span className="stack tight" style={{ gap: 2 }}>
              <span className="clip strong">
                {one.project_name} / {one.environment_name}
              </span>
              <span className="row small dim">
                <StateMark state={one.status} /> <span className="clip">by {one.triggered_by}</span>
              </span>
            </span>
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  )
}

const Palette = lazy(part(() => import('./palette.tsx').then(({ Palette: component }) => ({ default: component }))))
const Help = lazy(part(() => import('./help.tsx').then(({ Help: component }) => ({ default: component }))))

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
