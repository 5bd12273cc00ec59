/**
 * Pages of the console that are open while things change: by another client, in another tab, and while the server is
 * away. Nothing is reloaded, and nothing that is not there blinks.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { browserIsMissing, buildConsole, openBrowser } from './support/browser.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { until } from './support/until.ts'

const skip = browserIsMissing
let slipway: Slipway
let browser: Browser
let context: BrowserContext
let projectId = ''
let environmentId = ''
let registryId = ''

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newContainer = (name: string): Promise<Json> =>
  send('POST', `/environment/${environmentId}/container`, {
    name,
    image_name: 'fake/serve',
    tag: '1',
    registry_id: registryId,
    ports: [],
  })

before(async () => {
  if (skip !== false) return
  await buildConsole()
  slipway = await prepareSlipway({ fake: true })
  await slipway.start()
  const organizationId = (await send('GET', '/organization')).results[0].id
  const registries = `/organization/${organizationId}/containerRegistry`
  registryId = (
    await send('POST', registries, { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} })
  ).id
  projectId = (await send('POST', `/organization/${organizationId}/project`, { name: 'shop' })).id
  environmentId = (await send('POST', `/project/${projectId}/environment`, { name: 'live', mode: 'PRODUCTION' })).id
  browser = await openBrowser()
  context = await browser.newContext()
})

after(async () => {
  await browser?.close()
  await slipway?.remove()
})

/** A page that counts what it reads, and notices when it was loaded again. */
const open = async (path: string, page?: Page): Promise<Page> => {
  page ??= await context.newPage()
  page.setDefaultTimeout(20_000)
  await page.goto(slipway.url + path)
  const field = page.getByRole('textbox', { name: 'Token' })
  await page.locator('main h1').or(field).first().waitFor()
  if (await field.isVisible()) {
    await field.fill(adminToken)
    await page.keyboard.press('Enter')
    await page.locator('main h1').waitFor()
  }
  await page.evaluate('window.notReloaded = true')
  return page
}

const isSame = async (page: Page): Promise<boolean> => (await page.evaluate('window.notReloaded')) === true

const rowOf = (page: Page, name: string) => page.locator('table.services tr', { hasText: name })

test('what another client changes is there, in every tab, and nothing blinks', { skip }, async () => {
  const services = await open(`/e/${environmentId}/services`)
  const second = await open(`/e/${environmentId}/services`)
  const overview = await open(`/p/${projectId}/environments`)
  const made = await newContainer('web')
  for (const page of [services, second]) await rowOf(page, 'web').waitFor()
  await overview.locator('.tile', { hasText: '1 service' }).waitFor()
  // What was there stays the same element while it is read again.
  const row = await rowOf(services, 'web').elementHandle()
  await services.evaluate(
    'new MutationObserver(() => { if (!document.querySelector("table.services")) window.hasBlinked = true })' +
      '.observe(document.body, { childList: true, subtree: true })',
  )
  await send('POST', `/container/${made.id}/deploy`)
  for (const page of [services, second]) await rowOf(page, 'web').locator('.state', { hasText: 'Running' }).waitFor()
  await overview.locator('.tile .state', { hasText: 'Deployed' }).waitFor()
  // However that ended, it is told with a link to it, on pages of anything in the organization.
  await overview.locator('.toast', { hasText: 'deployed' }).getByRole('link', { name: 'See the deployment' }).waitFor()
  await send('PUT', `/container/${made.id}`, { name: 'front' })
  for (const page of [services, second]) await rowOf(page, 'front').waitFor()
  assert.equal(await row?.evaluate((element: { isConnected: boolean }) => element.isConnected), true)
  assert.notEqual(await services.evaluate('window.hasBlinked'), true)
  await send('DELETE', `/container/${made.id}`)
  for (const page of [services, second]) await rowOf(page, 'front').waitFor({ state: 'detached' })
  for (const page of [services, second, overview]) {
    assert.ok(await isSame(page))
    await page.close()
  }
})

test('a page that nothing changes for asks for nothing', { skip }, async () => {
  const fresh = await context.newPage()
  await fresh.clock.install()
  const page = await open(`/e/${environmentId}/services`, fresh)
  await newContainer('quiet')
  await rowOf(page, 'quiet').waitFor()
  await page.waitForLoadState('networkidle')
  let asked = 0
  page.on('request', () => {
    asked += 1
  })
  // As if an hour went by: whatever asks from time to time does now.
  await page.clock.runFor('30:00')
  assert.equal(asked, 0)
  await page.close()
})

test('a restart of the server is survived without a reload, and what changed meanwhile is there', {
  skip,
}, async () => {
  const page = await open(`/e/${environmentId}/services`)
  const second = await open(`/e/${environmentId}/variables`)
  await rowOf(page, 'quiet').waitFor()
  await slipway.kill('SIGKILL')
  for (const each of [page, second]) await each.locator('.banner', { hasText: 'The connection is lost' }).waitFor()
  await rowOf(page, 'quiet').waitFor()
  await slipway.start()
  await newContainer('after')
  for (const each of [page, second]) await each.locator('.banner').waitFor({ state: 'detached' })
  await rowOf(page, 'after').waitFor()
  await send('POST', '/variable', {
    ...{ key: 'LATER', value: 'x', is_secret: false },
    ...{ variable_scope: 'ENVIRONMENT', variable_parent_id: environmentId },
  })
  await second.locator('td', { hasText: 'LATER' }).first().waitFor()
  await until(async () => (await isSame(page)) && (await isSame(second)), { what: 'both pages to be as they were' })
})
