/** `/docs` in a browser: it shows the API, and has no access to its origin. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startApi } from './support/api.ts'
import { browserIsMissing, openBrowser, openPage } from './support/browser.ts'

test('the description is shown in a sandbox without our origin', { skip: browserIsMissing }, async (t) => {
  const api = await startApi({ idle: true })
  const browser = await openBrowser()
  t.after(() => browser.close())
  const context = await browser.newContext()
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => message.type() === 'error' && complaints.push(message.text()))
  page.on('pageerror', (error) => complaints.push(String(error)))
  const strangers: string[] = []
  page.on('request', (asked) => {
    if (!asked.url().startsWith(api.url) && !asked.url().startsWith('data:')) strangers.push(asked.url())
  })
  await context.addCookies([{ name: 'slipway_console', value: 'secret', url: api.url }])
  await openPage(page, `${api.url}/docs`)
  await page.getByText('Create an organization').first().waitFor({ timeout: 120_000 })
  const reached = await page.evaluate(`(async () => ({
    origin: globalThis.origin,
    cookies: await Promise.resolve().then(() => document.cookie).catch(() => 'refused'),
    api: await fetch('/console/ways').then(() => 'read', () => 'refused'),
    inline: document.querySelectorAll('script:not([src])').length,
  }))()`)
  assert.deepEqual(reached, { origin: 'null', cookies: 'refused', api: 'refused', inline: 0 })
  assert.deepEqual(strangers, [])
  // The last one is what this test has tried itself.
  assert.deepEqual(
    complaints.filter((each) => !/console\/ways|ERR_FAILED/.test(each)),
    [],
  )
})
