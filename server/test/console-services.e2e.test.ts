/**
 * The console's pages of services of every kind and their creation forms, in a real browser. Each visited page has no
 * serious problem for axe, and none throws. Deployments are simulated.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { writeClusterModules } from '../../console/screenshots-of-clusters.ts'
import { furnishPreviews, type Previewed, previewSettings } from '../../console/screenshots-of-previews.ts'
import { furnishOthers, type Others, shotsOfServices } from '../../console/screenshots-of-services.ts'
import { browserIsMissing, buildConsole, openBrowser, openPage } from './support/browser.ts'
import { type GitServer, startGitServer } from './support/peers/git-server.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { patience, until } from './support/until.ts'

const skip = browserIsMissing
const axeFile = createRequire(import.meta.url).resolve('axe-core/axe.min.js')

let slipway: Slipway
let git: GitServer
let browser: Browser
let page: Page
let environmentId = ''
let emptyId = ''
let containerId = ''
let databaseId = ''
let others: Others
let previewed: Previewed
let projectId = ''
let organizationId = ''
/** Two services that were deployed. */
let steadyId = ''
let shakyId = ''
const complaints: string[] = []

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const settle = (): Promise<unknown> =>
  until(async () => /^(DEPLOYED|.*_ERROR)$/.test((await send('GET', `/environment/${environmentId}/status`)).state), {
    what: 'the deployment to end',
  })

const furnish = async (): Promise<void> => {
  organizationId = (await send('GET', '/organization')).results[0].id
  const registries = `/organization/${organizationId}/containerRegistry`
  const hub = { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} }
  const registryId = (await send('POST', registries, hub)).id
  projectId = (await send('POST', `/organization/${organizationId}/project`, { name: 'shop' })).id
  const environments = `/project/${projectId}/environment`
  environmentId = (await send('POST', environments, { name: 'live', mode: 'PRODUCTION' })).id
  emptyId = (await send('POST', environments, { name: 'empty', mode: 'DEVELOPMENT' })).id
  containerId = (
    await send('POST', `/environment/${environmentId}/container`, {
      ...{ name: 'web', image_name: 'fake/serve', tag: '1', registry_id: registryId },
      ports: [{ internal_port: 8080, external_port: 443, protocol: 'HTTP', publicly_accessible: true }],
    })
  ).id
  databaseId = (
    await send('POST', `/environment/${environmentId}/database`, {
      ...{ name: 'main', type: 'POSTGRESQL', version: '16', mode: 'CONTAINER' },
    })
  ).id
  await send('POST', `/container/${containerId}/customDomain`, { domain: 'shop.example.org' })
  others = await furnishOthers(send, { environmentId, registryId }, settle)
  previewed = await furnishPreviews(send, { organizationId, projectId })
}

before(async () => {
  if (skip !== false) return
  await buildConsole()
  git = await startGitServer()
  await git.createRepository('shop')
  await git.commit('shop', { 'deploy/Dockerfile': 'FROM busybox:1\nEXPOSE 8080\n' }, 'First')
  slipway = await prepareSlipway({ fake: true, env: previewSettings })
  writeClusterModules(slipway.dataDir)
  await slipway.start()
  await furnish()
  browser = await openBrowser()
  page = await (await browser.newContext({ reducedMotion: 'reduce' })).newPage()
  page.setDefaultTimeout(20_000 * patience)
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.stack}`))
  page.on('console', (message) => {
    if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(`${page.url()}: ${message.text()}`)
  })
  await openPage(page, slipway.url)
  await page.getByRole('textbox', { name: 'Token' }).fill(adminToken)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/o/*')
})

after(async () => {
  await browser?.close()
  await slipway?.remove()
  await git?.close()
  await previewed?.close()
})

const goTo = async (path: string): Promise<void> => {
  await openPage(page, slipway.url + path)
  await page.locator('main h1').first().waitFor()
}

/** Checks again: content that is just appearing has little contrast for a moment. */
const hasNoBarriers = async (name: string): Promise<void> => {
  await page.evaluate(readFileSync(axeFile, 'utf8'))
  let found: string[] = []
  const isFree = async (): Promise<boolean> => {
    const { violations } = await page.evaluate<Json>('axe.run({ resultTypes: ["violations"] })')
    found = violations
      .filter(({ impact }: Json) => impact === 'serious' || impact === 'critical')
      .map(({ id, nodes }: Json) => `${id}: ${nodes.map(({ html }: Json) => html).slice(0, 3)}`)
    return found.length === 0
  }
  await until(isFree, { timeoutMs: 5000, what: `${name} without barriers` }).catch(() => {})
  assert.deepEqual(found, [], name)
}

const isWide = (): Promise<boolean> =>
  page.evaluate<boolean>('document.documentElement.scrollWidth > document.documentElement.clientWidth')

test('every page of every kind of service is complete, for axe and on a phone', { skip }, async () => {
  const shots = shotsOfServices(others, { containerId, databaseId, emptyId })
  for (const [name, { path, act }] of Object.entries(shots)) {
    await page.setViewportSize({ width: 390, height: 800 })
    await goTo(path)
    await act?.(page)
    await hasNoBarriers(name)
    assert.equal(await isWide(), false, `${name} is wider than a phone`)
    await page.setViewportSize({ width: 1280, height: 800 })
  }
  assert.deepEqual(complaints, [])
})

test('previews show which run where, which wait and which requests get none, with the reasons', { skip }, async () => {
  await goTo(`/e/${previewed.environmentId}/previews`)
  const row = (branch: string) => page.getByRole('table', { name: 'Previews' }).locator('tr', { hasText: branch })
  await row('basket').getByText('Active').waitFor()
  const address = await row('basket').getByRole('link', { name: /^http/ }).getAttribute('href')
  await row('basket').getByText('in 7 days').waitFor()
  await row('search').getByText('The limit is 1 previews').waitFor()
  await row('theirs').getByText('Refused').waitFor()
  await hasNoBarriers('previews')
  await row('basket').getByRole('link', { name: 'Open its services' }).click()
  await page
    .getByRole('link', { name: new URL(address!).host })
    .first()
    .waitFor()
  await goTo(`/e/${emptyId}/previews`)
  await page.getByRole('link', { name: 'Settings of this environment' }).click()
  await page.waitForURL('**/settings')
})

const dialogButton = (name: string) => page.getByRole('dialog').getByRole('button', { name, exact: true })

test('rules of a project are made, ordered and followed by a new environment', { skip }, async () => {
  await goTo(`/p/${projectId}/rules`)
  const make = async (name: string, pattern: string, mode: string): Promise<void> => {
    await page.getByRole('button', { name: 'New deployment rule' }).click()
    await page.getByRole('textbox', { name: 'Name', exact: true }).fill(name)
    await page.getByRole('textbox', { name: /^For environments with a name like/ }).fill(pattern)
    await page.getByRole('combobox', { name: 'Mode' }).click()
    await page.getByRole('option', { name: mode }).click()
    await dialogButton('Create').click()
    await page.locator('td', { hasText: name }).first().waitFor()
  }
  await make('all', '*', 'Staging')
  await make('features', 'feature-*', 'Production')
  await hasNoBarriers('rules')
  await page.getByRole('button', { name: 'Try features earlier' }).click()
  await page.locator('tbody tr').first().getByText('features').waitFor()
  await page.getByRole('button', { name: 'Edit features' }).click()
  await page.getByRole('checkbox', { name: /Runs only at certain hours/ }).click()
  await page.getByRole('textbox', { name: 'Stops at' }).fill('25:00')
  await dialogButton('Save').click()
  await page.locator('.mantine-InputWrapper-error').first().waitFor()
  await page.getByRole('textbox', { name: 'Stops at' }).fill('18:30')
  await dialogButton('Save').click()
  await page.getByText(/08:00 to 18:30/).waitFor()
  await page.locator('.tabs').getByRole('link', { name: 'Environments' }).click()
  await page.getByRole('button', { name: 'New environment' }).click()
  await page.getByRole('textbox', { name: 'Name' }).fill('feature-7')
  await dialogButton('Create').click()
  await page.waitForURL('**/services')
  const id = /\/e\/([^/]+)/.exec(page.url())![1]
  assert.equal((await send('GET', `/environment/${id}`)).mode, 'PRODUCTION')
  assert.equal((await send('GET', `/environment/${id}/deploymentRule`)).auto_stop, true)
  await goTo(`/p/${projectId}/rules`)
  await page.getByRole('button', { name: 'Delete features' }).click()
  await dialogButton('Delete').click()
  await page.getByText('feature-*').waitFor({ state: 'detached' })
})

test('a cluster at a cloud provider is registered, planned, changed, locked, deployed and destroyed', {
  skip,
}, async () => {
  await goTo(`/o/${organizationId}/clusters`)
  await page.getByRole('button', { name: 'Cluster at a cloud provider' }).click()
  await page.getByRole('textbox', { name: 'Name' }).fill('paris')
  await page.getByRole('combobox', { name: 'AWS region' }).click()
  await page.getByRole('option', { name: /^eu-west-3/ }).click()
  await page.getByRole('textbox', { name: 'Access key id' }).fill('AKIATEST')
  await page.getByLabel('Secret access key').fill('a secret')
  await hasNoBarriers('a new cluster')
  await dialogButton('Create').click()
  const about = page.getByRole('region', { name: 'About paris' })
  await about.getByText('It does not exist yet').waitFor()
  await about.getByRole('button', { name: 'Plan' }).click()
  await about.getByText('The tool has ended well.').waitFor()
  await about.getByRole('button', { name: 'Edit' }).click()
  await page.getByRole('textbox', { name: 'Description' }).fill('for Europe')
  await dialogButton('Save').click()
  await page.locator('td', { hasText: 'for Europe' }).waitFor()
  await about.getByRole('button', { name: 'Login' }).click()
  await page.getByLabel('Secret access key').fill('another secret')
  await dialogButton('Save').click()
  await page.getByRole('dialog').waitFor({ state: 'hidden' })
  await about.getByRole('button', { name: 'Lock' }).click()
  await page.getByRole('textbox', { name: 'Why' }).fill('audit')
  await dialogButton('Lock').click()
  await about.getByText('Locked by').waitFor()
  await hasNoBarriers('a cluster')
  await about.getByRole('button', { name: 'Unlock' }).click()
  await about.getByRole('button', { name: 'Deploy' }).click()
  await dialogButton('Deploy').click()
  // The module of this test outputs no credentials.
  await page.locator('tr', { hasText: 'paris' }).getByText('Deployment failed').waitFor()
  await about.getByRole('button', { name: 'Delete' }).click()
  await page.getByText(/^Everything that its module made at AWS in eu-west-3 is destroyed/).waitFor()
  await page.getByRole('textbox', { name: 'Type paris to delete it' }).fill('paris')
  await dialogButton('Delete').click()
  await page.locator('tr', { hasText: 'paris' }).waitFor({ state: 'detached' })
})

test('a repository shows its branches, Dockerfiles and ports, and becomes an application', { skip }, async () => {
  await goTo(`/e/${emptyId}/new/git`)
  await page.getByRole('textbox', { name: 'Repository' }).fill(git.url('shop'))
  await page.keyboard.press('Tab')
  await page.getByText(/Found one branch, on main one Dockerfile, port 8080/).waitFor()
  assert.equal(await page.getByRole('combobox', { name: 'Dockerfile' }).inputValue(), 'deploy/Dockerfile')
  assert.equal(await page.getByRole('textbox', { name: 'Port' }).inputValue(), '8080')
  await page.getByRole('button', { name: 'Create only' }).click()
  await page.waitForURL('**/s/application/*/overview')
  await page.getByText('deploy/Dockerfile').waitFor()
})

test('a template becomes its services, and is deployed; the application gets the address of the database', {
  skip,
}, async () => {
  await goTo(`/e/${emptyId}/new/template`)
  await page.getByRole('textbox', { name: 'Search the templates' }).fill('wordp')
  await page.getByRole('link', { name: /WordPress/ }).click()
  await page.getByRole('textbox', { name: 'Name' }).fill('blog')
  await page.getByRole('button', { name: 'Create and deploy' }).click()
  await page.waitForURL('**/s/container/*/overview')
  await page.locator('.head .state', { hasText: 'Running' }).waitFor()
  const { results } = await send('GET', `/environment/${emptyId}/services`)
  const names = results.map(({ name }: Json) => name)
  assert.deepEqual(names.filter((name: string) => name.startsWith('blog')).sort(), ['blog', 'blog-db'])
})

test('a job runs at once, and its output is shown; a wrong schedule is reported at its field', { skip }, async () => {
  // A user types faster than the registries are read.
  const hasty = await page.context().newPage()
  hasty.setDefaultTimeout(20_000 * patience)
  const typed = Promise.withResolvers<void>()
  await hasty.route('**/containerRegistry', (route) => typed.promise.then(() => route.continue()))
  await openPage(hasty, `${slipway.url}/e/${emptyId}/new/job`)
  await hasty.getByRole('textbox', { name: 'Image' }).fill('fake/task:1')
  const read = hasty.waitForResponse('**/containerRegistry')
  typed.resolve()
  await read
  await hasty.getByRole('textbox', { name: 'Schedule' }).fill('every day')
  await hasty.getByRole('button', { name: 'Create only' }).click()
  await hasty.locator('.mantine-InputWrapper-error').first().waitFor()
  await hasty.getByRole('textbox', { name: 'Schedule' }).fill('0 3 * * *')
  await hasty.getByRole('button', { name: 'Create only' }).click()
  await hasty.waitForURL('**/s/job/*/overview')
  await hasty.close()
  await goTo(`/s/job/${others.cronId}/runs`)
  const logs = page.getByRole('button', { name: 'Log', exact: true })
  await logs.nth(2).waitFor()
  await page.getByRole('button', { name: 'Run now' }).click()
  await logs.nth(3).waitFor()
  await logs.first().click()
  await page.locator('.log-line', { hasText: 'collecting' }).waitFor()
  await page.locator('.tabs').getByRole('link', { name: 'Overview' }).click()
  await page.locator('td', { hasText: 'reports-7' }).first().waitFor()
})

test('an advanced setting is found, changed, refused at its field and set back to its default', { skip }, async () => {
  await goTo(`/s/container/${containerId}/advanced`)
  const affinity = page.locator('.setting', { hasText: 'deployment.affinity.node.required' })
  await affinity.getByText('Only on Kubernetes', { exact: true }).waitFor()
  await page.getByRole('textbox', { name: 'Search the advanced settings' }).fill('body_size')
  await page.waitForURL('**/advanced?q=body_size')
  const field = page.locator('.setting input')
  assert.equal(await field.count(), 1)
  await field.fill('-5')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.locator('.mantine-InputWrapper-error').waitFor()
  await field.fill('7')
  await page.getByRole('button', { name: 'Save' }).click()
  await page.getByText('Saved. The next deployment applies it.').waitFor()
  const now = await send('GET', `/container/${containerId}/advancedSettings`)
  assert.equal(now['network.ingress.proxy_body_size_mb'], 7)
  await page.getByRole('button', { name: 'Reset' }).click()
  assert.equal(await field.inputValue(), '100')
  // Unsaved changes are not lost by accident.
  const asked = page.waitForEvent('dialog')
  const left = page.locator('.tabs').getByRole('link', { name: 'Overview' }).click()
  await (await asked).dismiss()
  await left
  assert.match(page.url(), /advanced/)
  await page.getByRole('button', { name: 'Discard' }).click()
})

test('a domain is checked, and an invalid certificate is refused at its field', { skip }, async () => {
  await goTo(`/s/container/${containerId}/domains`)
  await page.getByRole('button', { name: 'Check the DNS records' }).click()
  await page.locator('td .state').first().waitFor()
  await page.getByRole('button', { name: 'Certificate', exact: true }).click()
  await page.getByRole('textbox', { name: 'Certificate (PEM)' }).fill('none')
  await page.getByRole('textbox', { name: 'Private key (PEM)' }).fill('none')
  await page.getByRole('button', { name: 'Upload' }).click()
  await page.getByRole('dialog').locator('.mantine-InputWrapper-error, .note.bad').first().waitFor()
})

test('a rollback is offered in the notice of a failure, on its deployment and on its service, and asks with its plan', {
  skip,
}, async () => {
  const registryId = (await send('GET', `/container/${containerId}`)).registry.id
  shakyId = (await send('POST', `/project/${projectId}/environment`, { name: 'shaky', mode: 'DEVELOPMENT' })).id
  const make = async (name: string, image_name: string, tag: string, id?: string): Promise<string> => {
    const body = { name, image_name, tag, registry_id: registryId, healthchecks: {} }
    if (id !== undefined) await send('PUT', `/container/${id}`, body)
    return id ?? (await send('POST', `/environment/${shakyId}/container`, body)).id
  }
  const deploy = async (ends: RegExp): Promise<void> => {
    await send('POST', `/environment/${shakyId}/deploy`)
    const hasEnded = async () => ends.test((await send('GET', `/environment/${shakyId}/status`)).state)
    await until(hasEnded, { what: 'the deployment to end' })
  }
  const ids = [await make('steady', 'fake/serve', '1'), await make('brittle', 'fake/serve', '1')] as const
  steadyId = ids[0]
  await deploy(/^DEPLOYED$/)
  for (const [index, name] of ['steady', 'brittle'].entries()) await make(name, 'fake/serve', '2', ids[index])
  await deploy(/^DEPLOYED$/)
  await make('steady', 'fake/serve', '3', ids[0])
  await make('brittle', 'fake/crash', '3', ids[1])
  await deploy(/ERROR$/)
  const note = page.locator('.note.bad')
  const back = note.getByRole('button', { name: /^Roll back/ })
  await goTo(`/e/${shakyId}/deployments`)
  await page.locator('table a.main').first().click()
  await back.click()
  await page.getByRole('dialog').getByText('steady', { exact: true }).waitFor()
  await page.keyboard.press('Escape')
  await page.setViewportSize({ width: 390, height: 800 })
  await goTo(`/s/container/${ids[1]}/overview`)
  await note.getByText('The previous version is still running').waitFor()
  await note.getByRole('button', { name: /^Roll back to .*serve:1$/ }).waitFor()
  await hasNoBarriers('a failed service')
  assert.equal(await isWide(), false, 'a failed service is wider than a phone')
  await page.setViewportSize({ width: 1280, height: 800 })
  await back.click()
  await dialogButton('Roll back').click()
  await page.locator('.head .state', { hasText: 'Running' }).waitFor()
  await note.waitFor({ state: 'detached' })
  const { results } = await send('GET', `/container/${ids[1]}/release`)
  assert.equal(results.find(({ is_current: is }: Json) => is).tag, '1')
})

test('a change of variables names the services that get it', { skip }, async () => {
  const told = (what: string) => page.locator('.toast', { hasText: what }).waitFor()
  const reach = '(steady and brittle|brittle and steady) get the change with their next deployment.'
  const isTold = (what: string) => page.getByText(new RegExp(`^${what} ${reach}$`)).waitFor()
  const add = async (key: string): Promise<void> => {
    await page.getByRole('button', { name: 'New variable' }).click()
    await page.getByRole('textbox', { name: 'Key' }).fill(key)
    await dialogButton('Save').click()
  }
  await goTo(`/e/${shakyId}/variables`)
  await add('FLAG')
  await isTold('FLAG was saved.')
  await page.getByRole('button', { name: 'Import .env' }).click()
  await page.getByRole('textbox', { name: 'Variables', exact: true }).fill('FIRST=1\nSECOND=2')
  // The second is written once the page has read the first.
  await page.route('**/variable', async (route) => {
    if (route.request().postDataJSON().key === 'SECOND') await dialogButton('Import 1').waitFor({ state: 'attached' })
    await route.continue()
  })
  await dialogButton('Import 2').click()
  await isTold('2 variables were imported.')
  await page.unroute('**/variable')
  await page.getByRole('button', { name: 'Actions for FLAG' }).click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  await dialogButton('Delete').click()
  await isTold('FLAG was deleted.')
  await goTo(`/p/${projectId}/variables`)
  await add('EVERYWHERE')
  await told('Services of')
  await goTo(`/s/container/${steadyId}/variables`)
  await add('HERE')
  await told('HERE was saved. steady gets the change with its next deployment.')
})

test('a stop is undone in one click: the stopped version starts again, not the current configuration', {
  skip,
}, async () => {
  const { name, registry } = await send('GET', `/container/${steadyId}`)
  await send('PUT', `/container/${steadyId}`, { name, registry_id: registry.id, image_name: 'fake/serve', tag: '4' })
  await goTo(`/s/container/${steadyId}/overview`)
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Stop' }).click()
  await dialogButton('Stop').click()
  await page.locator('.head .state', { hasText: 'Stopped' }).waitFor()
  await hasNoBarriers('what was stopped')
  await page.locator('.toast').getByRole('button', { name: 'Start again' }).click()
  await page.locator('.head .state', { hasText: 'Running' }).waitFor()
  const { results } = await send('GET', `/container/${steadyId}/release`)
  assert.equal(results.find(({ is_current: is }: Json) => is).tag, '3')
})

test('a read-only user sees every kind, and no button that would fail', { skip }, async () => {
  const { token } = await send('POST', `/organization/${organizationId}/apiToken`, { name: 'reader', scopes: ['Read'] })
  const context = await browser.newContext()
  const reader = await context.newPage()
  reader.setDefaultTimeout(20_000 * patience)
  const { cronId, helmId, terraformId, argoId } = others
  await openPage(reader, `${slipway.url}/s/job/${cronId}/runs`)
  await reader.getByRole('textbox', { name: 'Token' }).fill(token)
  await reader.getByRole('button', { name: 'Sign in' }).click()
  // The address of the sign-in ends with that of the page.
  await reader.locator('.tabs').waitFor()
  const forbidden =
    /^(Deploy|Run now|Plan only|Unlock the state|Move the state|More actions|Save|Add|Certificate|Remove|Reset|Create)/
  const kinds = { job: cronId, helm: helmId, terraform: terraformId, argocdApp: argoId, container: containerId }
  for (const [kind, id] of Object.entries(kinds))
    for (const section of ['overview', 'settings', ...(kind === 'argocdApp' ? [] : ['advanced'])]) {
      await openPage(reader, `${slipway.url}/s/${kind}/${id}/${section}`)
      await reader.locator('main h1').waitFor()
      await reader.locator('main form, main .split').first().waitFor()
      const buttons = reader.locator('main').getByRole('button', { name: forbidden })
      assert.equal(await buttons.count(), 0, `${kind} ${section}`)
    }
  await context.close()
  assert.deepEqual(complaints, [])
})
