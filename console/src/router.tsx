/** The addresses of the console. None is one of the API: the server tells them apart by the first part. */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
} from '@tanstack/react-router'
import { Problem, toProblem } from './api/client.ts'
import { beginOverview, queryClient, session } from './api/queries.ts'
import { readKey } from './api/session-key.ts'
import { SignIn } from './pages/sign-in.tsx'
import { Empty, Failure } from './ui/notices.tsx'
import { part } from './ui/part.ts'
import { Shell } from './ui/shell.tsx'
import { Toasts } from './ui/toasts.tsx'

const text = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined)

/** Notices have links, so they are inside the router. */
const Root = () => (
  <>
    <Outlet />
    <Toasts />
  </>
)

const Nowhere = () => (
  <main className="center-page">
    <Failure error={new Problem(404, {})} />
  </main>
)

/** A part that could not be loaded is only asked for again by a new page. */
const Failed = ({ error, reset }: { error: unknown; reset(): void }) => (
  <Failure error={error} retry={toProblem(error).status === 0 ? () => location.reload() : reset} />
)

const loadedLater: typeof lazyRouteComponent = (load, name) => lazyRouteComponent(part(load), name)

const root = createRootRoute({ component: Root, notFoundComponent: Nowhere })

const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: (search): { to?: string | undefined } => ({ to: text(search.to) }),
  component: SignIn,
})

const frame = createRoute({
  getParentRoute: () => root,
  id: 'frame',
  beforeLoad({ location }) {
    if (readKey() === null)
      throw redirect({ to: '/sign-in', search: { to: location.href === '/' ? undefined : location.href } })
  },
  component: Shell,
  errorComponent: Failed,
})

const home = createRoute({
  getParentRoute: () => frame,
  path: '/',
  async beforeLoad() {
    const { memberships } = await queryClient.ensureQueryData(session())
    const [first] = memberships
    if (first !== undefined)
      throw redirect({ to: '/o/$organizationId', params: { organizationId: first.organization_id } })
  },
  component: () => (
    <Empty title="You are in no organization yet">
      <p>Ask an administrator of one for an invitation, and open its link.</p>
    </Empty>
  ),
})

const overview = createRoute({
  getParentRoute: () => frame,
  path: '/o/$organizationId',
  validateSearch: (search): { q?: string | undefined } => ({ q: text(search.q) }),
  loader: ({ params: { organizationId } }) => beginOverview(organizationId),
  component: loadedLater(() => import('./pages/overview.tsx'), 'Overview'),
})

type OrganizationSearch = Partial<
  Record<'cluster' | 'event' | 'target' | 'origin' | 'by' | 'from' | 'until', string | undefined>
>

const organization = createRoute({
  getParentRoute: () => frame,
  path: '/o/$organizationId/$section',
  validateSearch: ({ cluster, event, target, origin, by, from, until }): OrganizationSearch => ({
    cluster: text(cluster),
    event: text(event),
    target: text(target),
    origin: text(origin),
    by: text(by),
    from: text(from),
    until: text(until),
  }),
  component: loadedLater(() => import('./pages/organization/index.tsx'), 'Organization'),
})

const project = createRoute({
  getParentRoute: () => frame,
  path: '/p/$projectId/$section',
  component: loadedLater(() => import('./pages/project.tsx'), 'Project'),
})

const environment = createRoute({
  getParentRoute: () => frame,
  path: '/e/$environmentId/$section',
  validateSearch: (search): { q?: string | undefined; kind?: string | undefined } => ({
    q: text(search.q),
    kind: text(search.kind),
  }),
  component: loadedLater(() => import('./pages/environment/index.tsx'), 'Environment'),
})

const deployment = createRoute({
  getParentRoute: () => frame,
  path: '/e/$environmentId/deployments/$executionId',
  validateSearch: (search): { service?: string | undefined } => ({ service: text(search.service) }),
  component: loadedLater(() => import('./pages/deployment.tsx'), 'Deployment'),
})

const create = createRoute({
  getParentRoute: () => frame,
  path: '/e/$environmentId/new/$kind',
  validateSearch: (search): { template?: string | undefined } => ({ template: text(search.template) }),
  component: loadedLater(() => import('./pages/create/index.tsx'), 'Create'),
})

interface ServiceSearch {
  q?: string | undefined
  /** In the log: a line that is linked to, and the part that is shown. */
  line?: string | undefined
  level?: 'error' | undefined
  from?: string | undefined
  range?: string | undefined
  deployments?: 'on' | undefined
}

const service = createRoute({
  getParentRoute: () => frame,
  path: '/s/$kind/$serviceId/$section',
  validateSearch: (search): ServiceSearch => ({
    q: text(search.q),
    line: text(search.line),
    level: search.level === 'error' ? 'error' : undefined,
    from: text(search.from),
    range: text(search.range),
    deployments: search.deployments === 'on' ? 'on' : undefined,
  }),
  component: loadedLater(() => import('./pages/service/index.tsx'), 'Service'),
})

const tree = root.addChildren([
  signIn,
  frame.addChildren([home, overview, organization, project, environment, deployment, create, service]),
])

export const router = createRouter({
  routeTree: tree,
  defaultErrorComponent: Failed,
  defaultPreload: 'intent',
  scrollRestoration: true,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
