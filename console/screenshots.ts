/**
 * `npm run screenshots`: pictures of every page and state of the console, in both themes and three widths, in
 * console/screenshots, for a person to look at. Words choose some: `npm run screenshots -- clusters roles dark phone`.
 * Needs no engine: deployments are simulated.
 */
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { browserIsMissing, buildConsole, openBrowser } from '../server/test/support/browser.ts'
import { adminToken, prepareSlipway } from '../server/test/support/slipway/slipway.ts'
import type { Shot, Shots } from './screenshot.ts'
import { writeClusterModules } from './screenshots-of-clusters.ts'
import { shotsOfEnvironments, shotsOfOrganizations, shotsOfPages, shotsWhileDeploying } from './screenshots-of-pages.ts'
import { furnish, type Place } from './screenshots-of-places.ts'
import { previewSettings } from './screenshots-of-previews.ts'
import { shotsOfStates } from './screenshots-of-states.ts'

const folder = fileURLToPath(new URL('screenshots/', import.meta.url))
/** The narrowest first: what is scrolled to there is seen on the others too. */
const widths = { phone: 390, middle: 1024, wide: 1440 }
const atOnce = 3
/** The theme follows the system's, as it does for a person. */
const take = async (page: Page, name: string, size: string): Promise<void> => {
  for (const theme of themes.filter((each) => isAsked(each, themes))) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' })
    await page.waitForTimeout(120)
    await page.screenshot({ path: join(folder, `${name}.${size}.${theme}.png`), animations: 'disabled' })
  }
}

/** What makes a page wider than its window is a fault that a picture does not show. */
const complainOfWidth = async (page: Page, name: string, size: string): Promise<void> => {
  const [outer, inner] = await page.evaluate<[number, number]>(
    '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
  )
  if (outer > inner) process.stderr.write(`${name}.${size} is ${outer} px wide\n`)
}

const signIn = async (page: Page, url: string, token: string): Promise<void> => {
  await page.goto(`${url}/sign-in`)
  await page.getByRole('textbox', { name: 'Token' }).fill(token)
  await page.getByRole('button', { name: 'Sign in', exact: true }).click()
  await page.waitForURL('**/o/*')
}

const words = process.argv.slice(2)
const themes = ['light', 'dark'] as const
const places: readonly string[] = [...themes, ...Object.keys(widths)]
const wanted = words.filter((word) => !places.includes(word))
const isAsked = (word: string, all: readonly string[]): boolean =>
  !all.some((each) => words.includes(each)) || words.includes(word)
/** A name, or a part of one with a dash: `reader-` are all that a reader sees, `-empty` all pages without content. */
const isWanted = (name: string): boolean =>
  wanted.length === 0 ||
  wanted.some(
    (word) =>
      word === name || (word.endsWith('-') && name.startsWith(word)) || (word.startsWith('-') && name.endsWith(word)),
  )

/** What is asked for by a page that is refused is no fault of it. */
const isExpected = (text: string): boolean => text.startsWith('Failed to load resource')

/** Where a browser lost what it had asked for: it does when a network of Docker's comes or goes beside it. */
const disturbed = new WeakSet<Page>()
const isDisturbance = (text: string | undefined): boolean => text?.includes('ERR_NETWORK_') === true

const openPage = async (context: BrowserContext): Promise<Page> => {
  const page = await context.newPage()
  page.setDefaultTimeout(60_000)
  page.on('requestfailed', (request) => {
    if (isDisturbance(request.failure()?.errorText)) disturbed.add(page)
  })
  page.on('pageerror', (error) => process.stderr.write(`${page.url()}: ${error.stack}\n`))
  page.on('console', (message) => {
    if (message.type() === 'error' && !isExpected(message.text()))
      process.stderr.write(`${page.url()}: ${message.text()}\n`)
  })
  return page
}

type Pages = Record<NonNullable<Shot['as']> | 'admin', Page>

const sizes = (Object.keys(widths) as (keyof typeof widths)[]).filter((each) => isAsked(each, Object.keys(widths)))

const resize = (page: Page, size: keyof typeof widths): Promise<void> =>
  page.setViewportSize({ width: widths[size], height: 900 })

const toSettleMs = 10_000

/** Waits until the page waits for nothing more. */
const settle = async (page: Page, { settleMs }: Shot): Promise<void> => {
  await page.locator('main, .center-page').first().waitFor({ timeout: toSettleMs })
  await page.waitForTimeout(settleMs ?? 300)
  if (settleMs !== undefined) return
  const busy = page.locator('main [aria-busy=true]')
  await busy
    .first()
    .waitFor({ state: 'detached', timeout: toSettleMs })
    .catch(() => undefined)
  await page.waitForTimeout(200)
}

const mostTries = 5

/** Again, if it was disturbed. */
const open = async (page: Page, url: string, shot: Shot, tries = 1): Promise<void> => {
  disturbed.delete(page)
  await page.unrouteAll()
  await shot.before?.(page)
  try {
    await page.goto(url + shot.path)
    await settle(page, shot)
  } catch (error) {
    if (isDisturbance(String(error))) disturbed.add(page)
    if (!disturbed.has(page)) throw error
  }
  if (disturbed.has(page) && tries < mostTries) await open(page, url, shot, tries + 1)
}

/** A page that nothing is done on is opened once, and shown at each width in turn. */
const takeOne = async (pages: Pages, url: string, name: string, shot: Shot): Promise<void> => {
  const page = pages[shot.as ?? 'admin']
  for (const size of sizes) {
    await resize(page, size)
    if (shot.act !== undefined || size === sizes[0]) await open(page, url, shot)
    await shot.act?.(page)
    await page.waitForTimeout(250)
    await complainOfWidth(page, name, size)
    await take(page, name, size)
  }
}

const openPages = async (browser: Browser, url: string, readerToken: string): Promise<Pages> => {
  const [admin, reader, nobody, cutOff] = await Promise.all(
    [adminToken, readerToken, null, adminToken].map(async (token) => {
      const page = await openPage(await browser.newContext({ reducedMotion: 'reduce' }))
      if (token !== null) await signIn(page, url, token)
      return page
    }),
  )
  await cutOff!.routeWebSocket(/.*/, (socket) => socket.close({ code: 1011 }))
  return { admin: admin!, reader: reader!, nobody: nobody!, cutOff: cutOff! }
}

/** Several at once. One that fails is said, and does not keep back the others. */
const takeAll = async (browser: Browser, url: string, readerToken: string, shots: Shots): Promise<void> => {
  const waiting = Object.entries(shots).filter(([name]) => isWanted(name))
  const work = async (): Promise<void> => {
    if (waiting.length === 0) return
    const pages = await openPages(browser, url, readerToken)
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [name, shot] = next
      await takeOne(pages, url, name, shot).catch((error: unknown) => {
        process.exitCode = 1
        process.stderr.write(`${name}: ${String(error)}\n`)
      })
    }
    for (const page of Object.values(pages)) await page.context().close()
  }
  await Promise.all(Array.from({ length: atOnce }, work))
}

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
    const { readerToken } = place
    const still = {
      ...{ ...shotsOfPages(place), ...shotsOfEnvironments(place), ...shotsOfOrganizations(place) },
      ...shotsOfStates(place),
    }
    await takeAll(browser, slipway.url, readerToken, still)
    // Last: while something deploys, every page says so.
    await takeAll(browser, slipway.url, readerToken, shotsWhileDeploying(place, slipway.api))
  } finally {
    await browser.close()
    await slipway.remove()
    await place?.previewed.close()
  }
}

await main()
