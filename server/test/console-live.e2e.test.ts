/**
 * Pages of the console that are open while things change: by another client, in another tab, and while the server is
 * down. No page is reloaded, and nothing flashes that does not exist.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core'
import { browserIsMissing, buildConsole, openBrowser, openPage } from './support/browser.ts'
import { adminToken, type Json, prepareSlipway, type Slipway } from './support/slipway/slipway.ts'
import { patience, until } from './support/until.ts'

const skip = browserIsMissing
let slipway: Slipway
let browser: Browser
let context: BrowserContext
let organizationId = ''
let projectId = ''
let environmentId = ''
let registryId = ''

const send = async (method: string, path: string, body?: unknown): Promise<Json> => {
  const answer = await slipway.api(method, path, body)
  assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${JSON.stringify(answer.body)}`)
  return answer.body
}

const newContainer = (name: string, image = 'fake/serve', tag = '1'): Promise<Json> =>
  send('POST', `/environment/${environmentId}/container`, {
    name,
    image_name: image,
    tag,
    registry_id: registryId,
    ports: [],
  })

/** All pages of the context share the session. */
const signIn = async (): Promise<void> => {
  const page = await context.newPage()
  page.setDefaultTimeout(20_000 * patience)
  await openPage(page, `${slipway.url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(adminToken)
  await page.keyboard.press('Enter')
  await page.waitForURL('**/o/*')
  await page.close()
}

before(async () => {
  if (skip !== false) return
  await buildConsole()
  slipway = await prepareSlipway({ fake: true })
  await slipway.start()
  organizationId = (await send('GET', '/organization')).results[0].id
  const registries = `/organization/${organizationId}/containerRegistry`
  registryId = (
    await send('POST', registries, { name: 'hub', kind: 'DOCKER_HUB', url: 'https://docker.io', config: {} })
  ).id
  projectId = (await send('POST', `/organization/${organizationId}/project`, { name: 'shop' })).id
  environmentId = (await send('POST', `/project/${projectId}/environment`, { name: 'live', mode: 'PRODUCTION' })).id
  browser = await openBrowser()
  context = await browser.newContext()
  await signIn()
})

after(async () => {
  await browser?.close()
  await slipway?.remove()
})

/** A page that counts its requests, and notices a reload. */
const open = async (path: string, page?: Page): Promise<Page> => {
  page ??= await context.newPage()
  page.setDefaultTimeout(20_000 * patience)
  await openPage(page, slipway.url + path)
  await page.locator('main h1').waitFor()
  await page.evaluate('window.notReloaded = true')
  return page
}

const isSame = async (page: Page): Promise<boolean> => (await page.evaluate('window.notReloaded')) === true

const rowOf = (page: Page, name: string) => page.locator('table.services tr', { hasText: name })

test('changes of another client appear in every tab, and nothing flashes', { skip }, async () => {
  const services = await open(`/e/${environmentId}/services`)
  const second = await open(`/e/${environmentId}/services`)
  const overview = await open(`/p/${projectId}/environments`)
  const made = await newContainer('web', 'fake/slow', '1500')
  for (const page of [services, second]) await rowOf(page, 'web').waitFor()
  await overview.locator('.tile', { hasText: '1 service' }).waitFor()
  // Existing content keeps its element while it is read again.
  const row = await rowOf(services, 'web').elementHandle()
  await services.evaluate(
    'new MutationObserver(() => { if (!document.querySelector("table.services")) window.hasBlinked = true })' +
      '.observe(document.body, { childList: true, subtree: true })',
  )
  await send('POST', `/container/${made.id}/deploy`)
  await overview.getByRole('button', { name: '1 deploying now' }).waitFor()
  for (const page of [services, second]) await rowOf(page, 'web').locator('.state', { hasText: 'Running' }).waitFor()
  await overview.locator('.tile .state', { hasText: 'Deployed' }).waitFor()
  // Its end is announced with a link, whatever the result, on every page of the organization.
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

/** From the request of another client until all pages show it, in ms. */
const shownAfter = async (work: () => Promise<unknown>, shown: Locator[]): Promise<number> => {
  const begunMs = performance.now()
  await Promise.all([...shown.map((each) => each.waitFor()), work()])
  return performance.now() - begunMs
}

test('changes of another client appear within a second, on pages of every kind', { skip }, async () => {
  const made = await newContainer('quick-0')
  const [services, own, variables] = await Promise.all([
    open(`/e/${environmentId}/services`),
    open(`/s/container/${made.id}/overview`),
    open(`/e/${environmentId}/variables`),
  ])
  const names: number[] = []
  const keys: number[] = []
  for (let turn = 1; turn <= 5; turn += 1) {
    const name = `quick-${turn}`
    const heading = own.locator('main h1', { hasText: name })
    names.push(await shownAfter(() => send('PUT', `/container/${made.id}`, { name }), [rowOf(services, name), heading]))
    const key = `QUICK_${turn}`
    const variable = { key, value: 'x', is_secret: false, variable_scope: 'PROJECT', variable_parent_id: projectId }
    keys.push(await shownAfter(() => send('POST', '/variable', variable), [variables.locator('td', { hasText: key })]))
  }
  // The third of five: a single delay of a busy machine does not count.
  for (const [what, took] of Object.entries({ names, keys }))
    assert.ok(took.toSorted((a, b) => a - b)[2]! < 1000, `${what}: ${took.map(Math.round)} ms`)
  await send('DELETE', `/container/${made.id}`)
  for (const page of [services, own, variables]) await page.close()
})

test('a page has one stream, and sends no request while nothing changes', { skip }, async () => {
  const fresh = await context.newPage()
  await fresh.clock.install()
  const streams: string[] = []
  fresh.on('websocket', (socket) => streams.push(new URL(socket.url()).pathname))
  const page = await open(`/e/${environmentId}/services`, fresh)
  await newContainer('quiet')
  await rowOf(page, 'quiet').waitFor()
  await page.waitForLoadState('networkidle')
  let asked = 0
  page.on('request', () => {
    asked += 1
  })
  // As if an hour went by: code that polls would do so now.
  await page.clock.runFor('01:00:00')
  assert.equal(asked, 0)
  assert.deepEqual(streams, [`/organization/${organizationId}/changes`])
  await page.close()
})

test('a page survives a restart of the server without a reload, and shows the changes made meanwhile', {
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

test('a part of the console whose connection breaks is loaded again, and by "Try again" when it lasts', {
  skip,
}, async () => {
  const page = await context.newPage()
  page.setDefaultTimeout(20_000 * patience)
  let loads = 0
  page.on('load', () => (loads += 1))
  let refused = 0
  let mostRefused = 2
  await page.route(/\/assets\/environment-/, (route) => {
    if (refused === mostRefused) return route.continue()
    refused += 1
    return route.abort('connectionreset')
  })
  await page.goto(`${slipway.url}/e/${environmentId}/services`)
  await rowOf(page, 'after').waitFor()
  assert.deepEqual([refused, loads], [2, 1])
  mostRefused = Number.POSITIVE_INFINITY
  await page.goto(`${slipway.url}/e/${environmentId}/services`)
  await page.getByRole('heading', { name: 'The server cannot be reached' }).waitFor()
  mostRefused = refused
  await page.getByRole('button', { name: 'Try again' }).click()
  await rowOf(page, 'after').waitFor()
  await page.close()
})
