/**
 * Every page while it waits, after a failure and where the server refuses it; with nothing in it, and as whoever may only
 * read sees it.
 */
import type { Page } from 'playwright-core'
import { press, type Shot, type Shots } from './screenshot.ts'
import type { Bare } from './screenshots-of-bare.ts'
import type { Place } from './screenshots-of-places.ts'

/** What the frame around a page and its head ask for. */
const ofFrame =
  /^\/(console\/|organization$|(project|environment|application|container|database|job|helm|terraform|argocdApp)\/[0-9a-f-]{36}$)/
const ofSession = /^\/(console\/|organization$)/

const messages: Record<number, string> = {
  403: 'Your role does not allow this.',
  500: 'The server failed. Its log has more under this request id.',
}

/** What a page asks for is answered late, or so; without `isWhole`, what stands around it is there. */
const answering =
  (status: number | null, isWhole: boolean) =>
  (page: Page): Promise<unknown> =>
    page.route(
      ({ pathname }) => !(isWhole ? ofSession : ofFrame).test(pathname),
      (route) => {
        if (route.request().resourceType() !== 'fetch') return route.fallback()
        if (status === null) return undefined
        return route.fulfill({ status, json: { message: messages[status], request_id: '01j9-7f3a-4be2' } })
      },
    )

const states: Record<string, number | null> = { loading: null, error: 500, forbidden: 403 }

/** Late enough for a page to say that it waits. */
const lateMs = 1300

const inStates = (pages: Record<string, string>, isWhole = false): Shots =>
  Object.fromEntries(
    Object.entries(pages).flatMap(([name, path]) =>
      Object.entries(states).map(([state, status]): [string, Shot] => [
        `${name}-${state}`,
        { path, before: answering(status, isWhole), settleMs: lateMs },
      ]),
    ),
  )

const organizationSections = [
  ...['members', 'roles', 'tokens', 'clusters', 'credentials', 'registries', 'charts', 'git', 'pushes', 'webhooks'],
  ...['labels', 'audit', 'usage', 'general', 'system'],
]
const environmentSections = ['services', 'deployments', 'stages', 'previews', 'variables', 'settings']
const serviceSections = ['overview', 'deployments', 'logs', 'variables', 'domains', 'settings', 'advanced']

const pagesUnder = (name: string, base: string, sections: readonly string[]): Record<string, string> =>
  Object.fromEntries(sections.map((section) => [`${name}-${section}`, `${base}/${section}`]))

/** Every page of the console, by a name of its own. */
const pagesOf = ({ organizationId, projectId, environmentId, containerId, databaseId, emptyId, others }: Place) => ({
  overview: `/o/${organizationId}`,
  ...pagesUnder('organization', `/o/${organizationId}`, organizationSections),
  ...pagesUnder('project', `/p/${projectId}`, ['environments', 'variables', 'rules', 'settings']),
  ...pagesUnder('environment', `/e/${environmentId}`, environmentSections),
  ...pagesUnder('create', `/e/${emptyId}/new`, ['image', 'git', 'database', 'job', 'helm', 'terraform', 'template']),
  ...pagesUnder('service', `/s/container/${containerId}`, serviceSections),
  database: `/s/database/${databaseId}/overview`,
  ...pagesUnder('job', `/s/job/${others.cronId}`, ['overview', 'runs']),
  ...pagesUnder('terraform', `/s/terraform/${others.terraformId}`, ['overview', 'state']),
  helm: `/s/helm/${others.helmId}/overview`,
  argocd: `/s/argocdApp/${others.argoId}/overview`,
})

/** Pages whose content is what stands around it show only their whole as late or refused. */
const wholesOf = ({ projectId, environmentId, containerId }: Place): Record<string, string> => ({
  'whole-project': `/p/${projectId}/environments`,
  'whole-environment': `/e/${environmentId}/services`,
  'whole-service': `/s/container/${containerId}/overview`,
  'whole-create': `/e/${environmentId}/new/image`,
})

const readerShots = (place: Place): Shots => ({
  ...Object.fromEntries(
    Object.entries({
      ...pagesOf(place),
      deployment: `/e/${place.environmentId}/deployments/${place.executionId}`,
      'environment-empty': `/e/${place.emptyId}/services`,
    }).map(([name, path]): [string, Shot] => [`reader-${name}`, { path, as: 'reader' }]),
  ),
  'reader-cluster': { path: `/o/${place.organizationId}/clusters`, as: 'reader', act: press(/^Details/) },
})

const setHere = (page: Page): Promise<unknown> => page.getByText('Set here', { exact: true }).click()

const emptyShots = ({
  unusedId,
  organizationId,
  plannedId,
  projectId,
  environmentId,
  containerId,
  cronId,
  terraformId,
  databaseId,
}: Bare) => {
  const pages = {
    overview: `/o/${unusedId}`,
    'overview-projects': `/o/${organizationId}`,
    ...pagesUnder('organization', `/o/${organizationId}`, organizationSections),
    'project-environments': `/p/${plannedId}/environments`,
    ...pagesUnder('project', `/p/${projectId}`, ['variables', 'rules']),
    ...pagesUnder('environment', `/e/${environmentId}`, environmentSections.slice(0, -1)),
    ...pagesUnder('service', `/s/container/${containerId}`, [
      'overview',
      'deployments',
      'logs',
      'variables',
      'domains',
    ]),
    ...pagesUnder('job', `/s/job/${cronId}`, ['overview', 'deployments', 'logs']),
    ...pagesUnder('terraform', `/s/terraform/${terraformId}`, ['overview', 'state', 'deployments', 'logs']),
    database: `/s/database/${databaseId}/overview`,
  }
  return {
    ...Object.fromEntries(
      Object.entries(pages).map(([name, path]): [string, Shot] => [
        `${name}-empty`,
        // What is built in is in effect everywhere.
        { path, ...(path.endsWith('/variables') ? { act: setHere } : {}) },
      ]),
    ),
    'audit-none-fits': { path: `/o/${organizationId}/audit?event=CLONE` },
    'overview-none-fits': { path: `/o/${organizationId}?q=nothing` },
  }
}

export const shotsOfStates = (place: Place): Shots => ({
  ...emptyShots(place.bare),
  'services-none-fits': { path: `/e/${place.environmentId}/services?q=nothing` },
  ...readerShots(place),
  ...inStates(pagesOf(place)),
  ...inStates(wholesOf(place), true),
  ...inStates({ deployment: `/e/${place.environmentId}/deployments/${place.executionId}` }),
})
