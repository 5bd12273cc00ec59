/** The pages of the console as the administrator of a furnished installation sees them. */
import type { Page } from 'playwright-core'
import type { Slipway } from '../server/test/support/slipway/slipway.ts'
import { press, type Shot, type Shots } from './screenshot.ts'
import type { Place } from './screenshots-of-places.ts'
import { shotsOfServices } from './screenshots-of-services.ts'

/** Somebody who has signed in and is invited nowhere. */
const withoutMemberships = (page: Page): Promise<unknown> =>
  page.route('**/console/session', async (route) => {
    const response = await route.fetch()
    await route.fulfill({ response, json: { ...(await response.json()), is_operator: false, memberships: [] } })
  })

const roleId = (place: number): string => `00000000-0000-4000-8000-00000000000${place}`

/** People come from a provider of identities, which is not there. */
const withPeople = async (page: Page): Promise<void> => {
  const at = new Date(Date.now() - 7_200_000).toISOString()
  const times = { created_at: at, updated_at: at }
  const person = (name: string, role: string, place: number) => ({
    ...{
      id: crypto.randomUUID(),
      ...times,
      name,
      nickname: name,
      email: `${name.split(' ')[0]!.toLowerCase()}@example.org`,
    },
    ...{ last_activity_at: at, role, role_name: role.toLowerCase(), role_id: roleId(place) },
  })
  const results = [person('Ada Lovelace', 'OWNER', 1), person('Grace Hopper', 'ADMIN', 2), person('Linus', 'VIEWER', 5)]
  await page.route('**/member', (route) => route.fulfill({ json: { results } }))
  const invitation = (email: string, state: string) => ({
    ...{ id: crypto.randomUUID(), ...times, email, role: 'VIEWER', role_name: 'viewer', invitation_status: state },
    ...{ invitation_link: 'https://slipway.example.org/invitation/8c6b', inviter: 'ada@example.org' },
  })
  await page.route('**/inviteMember', (route) =>
    route.fulfill({
      json: { results: [invitation('alan@example.org', 'PENDING'), invitation('edsger@example.org', 'EXPIRED')] },
    }),
  )
}

const deployDialog = (page: Page): Promise<unknown> =>
  page.getByRole('button', { name: 'Deploy', exact: true }).first().click()

export const shotsOfPages = ({
  organizationId,
  projectId,
  environmentId,
  emptyId,
  containerId,
  databaseId,
  executionId,
  others,
}: Place): Shots => ({
  'sign-in': { path: '/sign-in', as: 'nobody' },
  'sign-in-wrong': {
    path: '/sign-in',
    as: 'nobody',
    async act(page) {
      await page.getByRole('textbox', { name: 'Token' }).fill('not a token')
      await page.keyboard.press('Enter')
    },
  },
  'sign-in-provider': {
    path: '/sign-in',
    as: 'nobody',
    before: (page) => page.route('**/console/ways', (route) => route.fulfill({ json: { oidc: true } })),
  },
  overview: { path: `/o/${organizationId}` },
  'overview-menu': { path: `/o/${organizationId}`, act: press('Account and appearance') },
  'overview-offline': {
    path: `/o/${organizationId}`,
    as: 'cutOff',
    settleMs: 4000,
  },
  'project-new': { path: `/o/${organizationId}`, act: press('New project') },
  'no-organization': { path: '/', before: withoutMemberships },
  'overview-palette': { path: `/o/${organizationId}`, act: (page) => page.keyboard.press('Control+k') },
  help: { path: `/o/${organizationId}`, act: (page) => page.keyboard.press('Shift+?') },
  project: { path: `/p/${projectId}/environments` },
  'project-rules': { path: `/p/${projectId}/rules` },
  'project-rule-new': {
    path: `/p/${projectId}/rules`,
    act: (page) => page.getByRole('button', { name: 'New deployment rule' }).click(),
  },
  'project-variables': { path: `/p/${projectId}/variables` },
  'environment-new': { path: `/p/${projectId}/environments`, act: press('New environment') },
  'project-settings': { path: `/p/${projectId}/settings` },
  environment: { path: `/e/${environmentId}/services` },
  'environment-plan': { path: `/e/${environmentId}/services`, act: deployDialog },
  'environment-delete': {
    path: `/e/${environmentId}/services`,
    async act(page) {
      await page.getByRole('button', { name: 'More actions' }).click()
      await page.getByRole('menuitem', { name: 'Delete' }).click()
    },
  },
  'environment-empty': { path: `/e/${emptyId}/services` },
  'environment-deployments': { path: `/e/${environmentId}/deployments` },
  'environment-variables': { path: `/e/${environmentId}/variables` },
  'environment-settings': { path: `/e/${environmentId}/settings` },
  deployment: { path: `/e/${environmentId}/deployments/${executionId}` },
  'create-image': { path: `/e/${emptyId}/new/image` },
  'create-git': { path: `/e/${emptyId}/new/git` },
  'create-database': { path: `/e/${emptyId}/new/database` },
  'create-refused': {
    path: `/e/${environmentId}/new/image`,
    async act(page) {
      await page.getByRole('textbox', { name: 'Image' }).fill('nginx:1.29')
      await page.getByRole('textbox', { name: 'Name' }).fill('web')
      await page.getByRole('button', { name: 'Create only' }).click()
      await page.waitForTimeout(500)
    },
  },
  service: { path: `/s/container/${containerId}/overview` },
  'service-deployments': { path: `/s/container/${containerId}/deployments` },
  'service-logs': { path: `/s/container/${containerId}/logs` },
  'service-variables': { path: `/s/container/${containerId}/variables` },
  'service-variable-new': {
    path: `/s/container/${containerId}/variables`,
    act: (page) => page.getByRole('button', { name: 'New variable' }).click(),
  },
  'service-domains': { path: `/s/container/${containerId}/domains` },
  'service-more': { path: `/s/container/${containerId}/overview`, act: press('More actions') },
  'service-domains-new': {
    path: `/s/container/${containerId}/domains`,
    act: (page) => page.getByRole('textbox').first().fill('not a domain'),
  },
  'service-log-empty': { path: `/s/container/${containerId}/logs?q=nothing` },
  'service-settings': { path: `/s/container/${containerId}/settings` },
  database: { path: `/s/database/${databaseId}/overview` },
  ...shotsOfServices(others, { containerId, databaseId, emptyId }),
  members: { path: `/o/${organizationId}/members` },
  roles: { path: `/o/${organizationId}/roles` },
  tokens: { path: `/o/${organizationId}/tokens` },
  webhooks: { path: `/o/${organizationId}/webhooks` },
  clusters: { path: `/o/${organizationId}/clusters` },
  audit: { path: `/o/${organizationId}/audit` },
  missing: { path: '/e/00000000-0000-4000-8000-000000000000/services' },
  unknown: { path: '/nowhere' },
})

export const shotsOfOrganizations = ({ organizationId }: Place): Shots => {
  const at = (section: string, act?: Shot['act']): Shot => ({
    path: `/o/${organizationId}/${section}`,
    ...(act === undefined ? {} : { act }),
  })
  return {
    credentials: at('credentials', press('New credentials')),
    registries: at('registries'),
    'credentials-list': at('credentials'),
    'webhook-deliveries': at('webhooks', press('Deliveries')),
    'registry-new': at('registries', press('New registry')),
    charts: at('charts'),
    'git-tokens': at('git'),
    'push-hooks': at('pushes'),
    labels: at('labels'),
    'role-new': at('roles', press('New role')),
    'token-new': at('tokens', press('New token')),
    'webhook-new': at('webhooks', press('New webhook')),
    deliveries: at('webhooks', press('Deliveries')),
    'cluster-details': at('clusters', press(/^Details/)),
    'cluster-docker': at('clusters', press('Docker engine')),
    'cluster-kubernetes': at('clusters', press('Kubernetes cluster')),
    'cluster-cloud': at('clusters', press('Cluster at a cloud provider')),
    'cluster-cloud-details': at('clusters', press('Details of eu-production')),
    'cluster-edit': at('clusters', async (page) => {
      await press('Details of eu-production')(page)
      await press('Edit')(page)
    }),
    'cluster-delete': at('clusters', async (page) => {
      await press('Details of eu-production')(page)
      await press('Delete')(page)
    }),
    'audit-change': at('audit', press('Change')),
    usage: at('usage'),
    system: at('system'),
    'organization-settings': at('general'),
    'members-full': { ...at('members'), before: withPeople },
    'member-invite': at('members', press('Invite')),
    'labels-new': at('labels', press('New group of labels')),
    'git-token-new': at('git', press('New git token')),
    'chart-repository-new': at('charts', press('New chart repository')),
    'push-hook-new': at('pushes', press('New push hook')),
    'role-edit': at('roles', press('Edit')),
    // The column is left out on a phone.
    'registry-used': at('registries', async (page) => {
      const button = page.locator('main table').getByRole('button', { name: /^\d+$/ }).first()
      if (await button.isVisible()) await button.click()
    }),
  }
}

export const shotsOfEnvironments = ({ environmentId, previewed }: Place): Shots => {
  const at = (section: string, act?: Shot['act']): Shot => ({
    path: `/e/${environmentId}/${section}`,
    ...(act === undefined ? {} : { act }),
  })
  const choose = async (page: Page): Promise<void> => {
    for (const name of ['web', 'prices']) await page.getByRole('checkbox', { name: `Choose ${name}` }).click()
  }
  return {
    'environment-chosen': at('services', choose),
    'environment-delete-several': at('services', async (page) => {
      await choose(page)
      await page.getByLabel('Chosen services').getByRole('button', { name: 'Delete' }).click()
    }),
    'environment-clone': at('services', press('Clone')),
    'environment-compare': at('deployments', async (page) => {
      const rows = page.getByRole('checkbox', { name: /^Compare/ })
      for (const index of [0, 1]) await rows.nth(index).click()
      await page.getByRole('button', { name: 'Compare' }).click()
    }),
    'environment-stages': at('stages'),
    'environment-previews': { path: `/e/${previewed.environmentId}/previews` },
    'environment-previews-none': at('previews'),
    'environment-variables-text': at('variables', async (page) => {
      await page.getByRole('button', { name: 'Edit as text' }).click()
      await page
        .getByRole('textbox', { name: 'Variables', exact: true })
        .fill('PAYMENT_URL=https://pay.example.com\nDEBUG="a b"')
    }),
    'environment-rule': at('settings', press('Edit the rule')),
  }
}

/** A deployment that goes on while its pictures are taken. */
export const shotsWhileDeploying = ({ slow, projectId }: Place, api: Slipway['api']): Shots => {
  let asked: Promise<unknown> | undefined
  const before = () => {
    asked ??= api('POST', `/container/${slow.containerId}/deploy`)
    return asked
  }
  const pages: Record<string, string> = {
    project: `/p/${projectId}/environments`,
    environment: `/e/${slow.environmentId}/services`,
    deployments: `/e/${slow.environmentId}/deployments`,
    service: `/s/container/${slow.containerId}/overview`,
    log: `/s/container/${slow.containerId}/logs`,
  }
  return {
    ...Object.fromEntries(
      Object.entries(pages).map(([name, path]): [string, Shot] => [`deploying-${name}`, { path, before }]),
    ),
    'deploying-menu': { path: pages.environment!, before, act: press(/deploying now/) },
    'deploying-deployment': {
      path: pages.deployments!,
      before,
      act: async (page) => {
        await page.locator('table a.main').first().click()
        await page.locator('.log-line').first().waitFor()
      },
    },
  }
}
