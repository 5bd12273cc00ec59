/**
 * `npm run screenshots`: pictures of every page and state of the console, in both themes and three widths, in
 * console/screenshots, for a person to look at. Words choose some: `npm run screenshots -- clusters roles dark phone`.
 * Needs no engine: deployments are simulated.
 */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { BrowserContext, Page } from 'playwright-core'
import { browserIsMissing, buildConsole, openBrowser } from '../server/test/support/browser.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from '../server/test/support/slipway/slipway.ts'
import { until } from '../server/test/support/until.ts'
import { writeClusterModules } from './screenshots-of-clusters.ts'
import { furnishPreviews, type Previewed, previewSettings } from './screenshots-of-previews.ts'
import { furnishOthers, type Others, shotsOfServices } from './screenshots-of-services.ts'

const folder = fileURLToPath(new URL('screenshots/', import.meta.url))
const widths = { wide: 1440, middle: 1024, phone: 390 }
const hostile = `<script>alert(1)</script> \u202egnp.exe ${'long'.repeat(40)}`

interface Place {
  organizationId: string
  projectId: string
  environmentId: string
  emptyId: string
  containerId: string
  databaseId: string
  executionId: string
  others: Others
  previewed: Previewed
}

const send = async (slipway: Slipway, method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const settle = (slipway: Slipway, environmentId: string): Promise<unknown> =>
  until(
    async () => {
      const { state } = await send(slipway, 'GET', `/environment/${environmentId}/status`)
      return /^(DEPLOYED|.*_ERROR|READY|STOPPED|CANCELED)$/.test(state)
    },
    { what: 'the deployment to end', timeoutMs: 60_000 },
  )

type Call = (method: string, path: string, body?: unknown) => Promise<Json>

/** Rules by which environments are placed, and a cluster that nobody has made yet. */
const furnishPlaces = async (call: Call, inOrganization: string, projectId: string): Promise<void> => {
  const [cluster] = (await call('GET', `${inOrganization}/cluster`)).results
  for (const [name, wildcard, mode] of [
    ['Features', 'feature-*', 'DEVELOPMENT'],
    ['Everything else', '*', 'STAGING'],
  ])
    await call('POST', `/project/${projectId}/deploymentRule`, {
      ...{ name, wildcard, mode, cluster_id: cluster.id, auto_stop: wildcard !== '*', timezone: 'Europe/Paris' },
      ...{ start_time: '1970-01-01T08:00:00Z', stop_time: '1970-01-01T19:00:00Z', weekdays: ['MONDAY', 'TUESDAY'] },
    })
  const keys = { name: 'keys', type: 'AWS_STATIC', access_key_id: 'AKIAEXAMPLE', secret_access_key: 'a secret' }
  const { id: keysId } = await call('POST', `${inOrganization}/aws/credentials`, keys)
  const { id: cloudId } = await call('POST', `${inOrganization}/cluster`, {
    ...{ name: 'eu-production', region: 'eu-west-3', cloud_provider: 'AWS', kubernetes: 'MANAGED' },
    cloud_provider_credentials: { credentials: { id: keysId }, region: 'eu-west-3' },
  })
  await call('POST', `${inOrganization}/cluster/${cloudId}/deploy?dry_run=true`)
}

/** An installation with something of everything. */
const furnish = async (slipway: Slipway): Promise<Place> => {
  const call = (method: string, path: string, body?: unknown) => send(slipway, method, path, body)
  const organizationId = (await call('GET', '/organization')).results[0].id
  const registries = (await call('GET', `/organization/${organizationId}/containerRegistry`)).results
  const registryId =
    registries[0]?.id ??
    (
      await call('POST', `/organization/${organizationId}/containerRegistry`, {
        name: 'Docker Hub',
        kind: 'DOCKER_HUB',
        url: 'https://docker.io',
        config: {},
      })
    ).id
  const project = await call('POST', `/organization/${organizationId}/project`, { name: 'Shop' })
  const other = await call('POST', `/organization/${organizationId}/project`, { name: hostile })
  const environment = await call('POST', `/project/${project.id}/environment`, {
    name: 'production',
    mode: 'PRODUCTION',
  })
  const empty = await call('POST', `/project/${project.id}/environment`, {
    name: 'feature-checkout',
    mode: 'DEVELOPMENT',
  })
  await call('POST', `/project/${other.id}/environment`, { name: hostile, mode: 'STAGING' })
  const container = (name: string, image: string, more: object = {}) =>
    call('POST', `/environment/${environment.id}/container`, {
      name,
      image_name: image,
      tag: '1.4.2',
      registry_id: registryId,
      memory: 256,
      ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
      ...more,
    })
  const web = await container('web', 'fake/serve')
  await container('prices', 'fake/serve', { ports: [] })
  const database = await call('POST', `/environment/${environment.id}/database`, {
    name: 'main',
    type: 'POSTGRESQL',
    version: '16',
    mode: 'CONTAINER',
  })
  await call('POST', '/variable', {
    key: 'PAYMENT_URL',
    value: 'https://pay.example.org',
    is_secret: false,
    variable_scope: 'ENVIRONMENT',
    variable_parent_id: environment.id,
  })
  await call('POST', '/variable', {
    key: 'PAYMENT_KEY',
    value: 'secret',
    is_secret: true,
    variable_scope: 'CONTAINER',
    variable_parent_id: web.id,
  })
  await call('POST', `/environment/${environment.id}/deploy`)
  await settle(slipway, environment.id)
  await call('POST', `/container/${web.id}/customDomain`, { domain: 'shop.example.org', generate_certificate: true })
  const others = await furnishOthers(call, { environmentId: environment.id, registryId }, () =>
    settle(slipway, environment.id),
  )
  const broken = await container('reviews', 'fake/crash')
  await call('POST', `/container/${broken.id}/deploy`)
  await settle(slipway, environment.id)
  await call('PUT', `/container/${web.id}`, { memory: 300 })
  const inOrganization = `/organization/${organizationId}`
  await call('POST', `${inOrganization}/labelsGroups`, { name: 'team', labels: [{ key: 'team', value: 'shop' }] })
  await call('POST', `${inOrganization}/gitToken`, { name: 'forge', type: 'GITHUB', token: 'x' })
  await call('POST', `${inOrganization}/gitWebhook`, { description: 'our git host' })
  await call('POST', `${inOrganization}/customRole`, {
    name: 'Shop team',
    description: 'Deploys the shop everywhere but in production',
    project_permissions: [
      {
        project_id: project.id,
        permissions: ['DEVELOPMENT', 'PREVIEW', 'STAGING', 'PRODUCTION'].map((mode) => ({
          environment_type: mode,
          permission: mode === 'PRODUCTION' ? 'VIEWER' : 'DEPLOYER',
        })),
      },
    ],
  })
  await call('POST', `/organization/${organizationId}/webhook`, {
    kind: 'STANDARD',
    target_url: 'http://127.0.0.1:9/hook',
    events: ['DEPLOYMENT_FAILURE'],
    target_secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  }).catch(() => undefined)
  await furnishPlaces(call, inOrganization, project.id)
  const previewed = await furnishPreviews(call, { organizationId, projectId: project.id })
  const { results } = await call('GET', `/environment/${environment.id}/deploymentHistoryV2`)
  return {
    organizationId,
    projectId: project.id,
    environmentId: environment.id,
    emptyId: empty.id,
    containerId: web.id,
    databaseId: database.id,
    executionId: results[0].identifier.execution_id,
    others,
    previewed,
  }
}

interface Shot {
  path: string
  /** What is done before the picture. */
  act?(page: Page): Promise<unknown>
}

const deployDialog = (page: Page): Promise<unknown> =>
  page.getByRole('button', { name: 'Deploy', exact: true }).first().click()

export const shotsOf = ({
  organizationId,
  projectId,
  environmentId,
  emptyId,
  containerId,
  databaseId,
  executionId,
  others,
}: Place): Record<string, Shot> => ({
  overview: { path: `/o/${organizationId}` },
  'overview-palette': { path: `/o/${organizationId}`, act: (page) => page.keyboard.press('Control+k') },
  help: { path: `/o/${organizationId}`, act: (page) => page.keyboard.press('Shift+?') },
  project: { path: `/p/${projectId}/environments` },
  'project-rules': { path: `/p/${projectId}/rules` },
  'project-rule-new': {
    path: `/p/${projectId}/rules`,
    act: (page) => page.getByRole('button', { name: 'New deployment rule' }).click(),
  },
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
  service: { path: `/s/container/${containerId}/overview` },
  'service-deployments': { path: `/s/container/${containerId}/deployments` },
  'service-logs': { path: `/s/container/${containerId}/logs` },
  'service-variables': { path: `/s/container/${containerId}/variables` },
  'service-variable-new': {
    path: `/s/container/${containerId}/variables`,
    act: (page) => page.getByRole('button', { name: 'New variable' }).click(),
  },
  'service-domains': { path: `/s/container/${containerId}/domains` },
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

const press =
  (name: string | RegExp) =>
  (page: Page): Promise<unknown> =>
    page.getByRole('button', { name }).first().click()

/** What the page shows while an answer is missing, late or refused. */
const answered =
  (status: number | null) =>
  async (page: Page): Promise<unknown> => {
    const message = status === 403 ? 'Your role does not allow this.' : 'The database is restarting: try again.'
    await page.route('**/member', (route) =>
      status === null ? undefined : route.fulfill({ status, json: { message, request_id: '7f3a' } }),
    )
    await page.reload()
    return page.waitForTimeout(600)
  }

const organizationShots = ({ organizationId }: Place): Record<string, Shot> => {
  const at = (section: string, act?: Shot['act']): Shot => ({
    path: `/o/${organizationId}/${section}`,
    ...(act === undefined ? {} : { act }),
  })
  return {
    credentials: at('credentials', press('New credentials')),
    registries: at('registries'),
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
    'organization-settings': at('general'),
    'members-loading': at('members', answered(null)),
    'members-error': at('members', answered(500)),
    'members-forbidden': at('members', answered(403)),
  }
}

const environmentShots = ({ environmentId, previewed }: Place): Record<string, Shot> => {
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

const take = async (page: Page, name: string, size: string, theme: string): Promise<void> => {
  await page.waitForTimeout(350)
  await page.screenshot({ path: join(folder, `${name}.${size}.${theme}.png`), animations: 'disabled' })
}

const signIn = async (context: BrowserContext, url: string): Promise<Page> => {
  const page = await context.newPage()
  await page.goto(`${url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(adminToken)
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.waitForURL('**/o/*')
  return page
}

const words = process.argv.slice(2)
const themes = ['light', 'dark'] as const
const places: readonly string[] = [...themes, ...Object.keys(widths)]
const wanted = words.filter((word) => !places.includes(word))
const isAsked = (word: string, all: readonly string[]): boolean =>
  !all.some((each) => words.includes(each)) || words.includes(word)

const main = async (): Promise<void> => {
  if (browserIsMissing !== false) throw new Error(browserIsMissing)
  await buildConsole()
  if (words.length === 0) rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  const slipway = await prepareSlipway({ fake: true, env: previewSettings })
  writeClusterModules(slipway.dataDir)
  const browser = await openBrowser()
  let place: Place | undefined
  try {
    await slipway.start()
    place = await furnish(slipway)
    const shots = { ...shotsOf(place), ...environmentShots(place), ...organizationShots(place) }
    for (const theme of themes.filter((each) => isAsked(each, themes)))
      for (const [size, width] of Object.entries(widths)) {
        if (!isAsked(size, Object.keys(widths))) continue
        const context = await browser.newContext({
          viewport: { width, height: 900 },
          colorScheme: theme,
          reducedMotion: 'reduce',
        })
        const first = await context.newPage()
        await first.goto(`${slipway.url}/sign-in`)
        await take(first, 'sign-in', size, theme)
        const page = await signIn(context, slipway.url)
        page.on('pageerror', (error) => process.stderr.write(`${page.url()}: ${error.stack}\n`))
        page.on(
          'console',
          (message) => message.type() === 'error' && process.stderr.write(`${page.url()}: ${message.text()}\n`),
        )
        for (const [name, { path, act }] of Object.entries(shots)) {
          if (wanted.length > 0 && !wanted.includes(name)) continue
          await page.unrouteAll()
          await page.goto(slipway.url + path)
          await page.waitForTimeout(500)
          await act?.(page)
          await take(page, name, size, theme)
        }
        await context.close()
      }
  } finally {
    await browser.close()
    await slipway.remove()
    await place?.previewed.close()
  }
}

await main()
