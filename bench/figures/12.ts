import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { request } from 'undici'
import { browserIsMissing, buildConsole, openBrowser } from '../../server/test/support/browser.ts'
import type { Bench } from '../bench.ts'
import { memoryMb, signedIn, throttle, traced } from '../browser.ts'
import type { Figure, Sample, Side } from '../figure.ts'
import { timed } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { deploy, hostOf, makeApplication, untilRouted } from '../ours-deploy.ts'
import { seedLargeEnvironment } from '../seed.ts'

const services = 500
const variables = 5000
const lines = 50_000
const perTenth = 100
/** Lines of an hour at that rate, given to the page as fast as it takes them. */
const linesOfAnHour = 3_600_000
const atOnce = 500

const open = async (bench: Bench): Promise<Browser> => {
  if (browserIsMissing !== false) throw new Error(browserIsMissing)
  const browser = await openBrowser()
  bench.onClose(() => browser.close())
  return browser
}

/** On a throttled connection, until what is meant by `isUsable` is there. */
const firstPage = async (context: BrowserContext, url: string, isUsable: (page: Page) => Promise<unknown>) => {
  const page = await context.newPage()
  try {
    await throttle(await context.newCDPSession(page))
    return await timed(async () => {
      await page.goto(url, { waitUntil: 'commit' })
      await isUsable(page)
    })
  } finally {
    await page.close()
  }
}

/** A page with one word and no script. */
const floor = async (bench: Bench): Promise<Side> => {
  const browser = await open(bench)
  const server = createServer((_request, response) => {
    response.setHeader('content-type', 'text/html')
    response.end('<!doctype html><title>Empty</title><p>Empty</p>')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  bench.onClose(async () => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
  const context = await browser.newContext()
  return {
    measure: async () => ({ firstMs: await firstPage(context, url, (page) => page.getByText('Empty').waitFor()) }),
  }
}

interface Place {
  ours: Ours
  url: string
  environmentId: string
  serviceId: string
}

const prepare = async (bench: Bench): Promise<Place> => {
  await buildConsole()
  const ours = await bench.ours()
  const { url: git } = await bench.sources()
  const environmentId = await seedLargeEnvironment(ours.database, ours.templates, services, variables)
  const own = await ours.makeEnvironment('figure-12')
  const serviceId = await makeApplication(ours, own, 'talker', git)
  await deploy(ours, serviceId)
  await untilRouted(ours, serviceId)
  return { ours, url: ours.target('GET', '/').origin, environmentId, serviceId }
}

const type = async (page: Page, label: string, text: string): Promise<void> => {
  const field = page.getByLabel(label)
  await field.click()
  await field.pressSequentially(text, { delay: 90 })
  for (const _ of text) await field.press('Backspace', { delay: 30 })
}

const scroll = async (page: Page, times: number): Promise<void> => {
  for (let turn = 0; turn < times; turn += 1) {
    await page.mouse.wheel(0, turn % 20 < 14 ? 700 : -700)
    await pause(40)
  }
}

const open500 = async (page: Page, { url, environmentId }: Place): Promise<void> => {
  await page.goto(`${url}/e/${environmentId}/services`)
  await page.locator('table.services tbody tr').nth(5).waitFor()
}

/** Typing, scrolling and going from tab to tab with everything that there is. */
const useTables = async (page: Page): Promise<void> => {
  await type(page, 'Filter services', 'copy-12')
  await page.mouse.move(700, 500)
  await scroll(page, 60)
  for (let turn = 0; turn < 3; turn += 1) {
    await page.evaluate('scrollTo(0, 0)')
    await page.locator('.tabs').getByRole('link', { name: 'Variables', exact: true }).click()
    await page.locator('table tbody tr').nth(5).waitFor()
    if (turn === 0) {
      await type(page, 'Filter variables', 'environment_4')
      await page.mouse.move(700, 500)
      await scroll(page, 60)
      await page.evaluate('scrollTo(0, 0)')
    }
    await page.locator('.tabs').getByRole('link', { name: 'Services', exact: true }).click()
    await page.locator('table.services tbody tr').nth(5).waitFor()
  }
}

/** The program prints; meanwhile somebody searches, holds and scrolls. */
const useLog = async (page: Page, { ours, serviceId }: Place, from: number): Promise<void> => {
  const host = await hostOf(ours, serviceId)
  let isOver = false
  const printing = request(
    `http://127.0.0.1:${ours.routerPort}/cgi-bin/print?${from},${from + lines - 1},${perTenth}`,
    { headers: { host: `${host}:${ours.routerPort}` }, headersTimeout: 300_000, bodyTimeout: 300_000 },
  ).then(({ body }) => body.text())
  void printing.finally(() => {
    isOver = true
  })
  await page.locator('.log-line').nth(10).waitFor()
  while (!isOver) {
    await type(page, 'Search the log', '77')
    await page.getByText('Errors', { exact: true }).click()
    await page.getByText('All', { exact: true }).first().click()
    await page.getByRole('button', { name: 'Pause' }).click()
    await page.mouse.move(700, 500)
    await scroll(page, 10)
    await page.getByRole('button', { name: /Go on/ }).click()
    await page.getByText('Wrap', { exact: true }).click()
    await page.getByText('Wrap', { exact: true }).click()
    await pause(400)
    if (!(await page.getByLabel('Follow', { exact: true }).isChecked()))
      await page.getByText('Follow', { exact: true }).click()
  }
  await printing
}

/** What is held after the lines of an hour came, in the place of the server's. */
const anHour = async (context: BrowserContext, browser: Browser, { url, serviceId }: Place): Promise<number> => {
  const page = await context.newPage()
  let sent = 0
  await page.routeWebSocket(/\/service\/logs/, (socket) => {
    const send = async (): Promise<void> => {
      while (sent < linesOfAnHour) {
        const frame = Array.from({ length: atOnce }, (_, at) => ({
          created_at: 1_700_000_000_000 + sent + at,
          message: `line ${sent + at} of a program that says something of ordinary length each time`,
          pod_name: `instance-${at % 3}`,
          severity_text: at % 50 === 0 ? 'ERROR' : 'INFO',
        }))
        socket.send(JSON.stringify(frame))
        sent += atOnce
        // The page is asked now and then: otherwise all would wait in its queue.
        if (sent % (100 * atOnce) === 0) await page.evaluate('1')
      }
    }
    void send()
  })
  await page.goto(`${url}/s/application/${serviceId}/logs`)
  const last = page.locator('.log-line', { hasText: `line ${linesOfAnHour - 1} ` })
  await last.waitFor({ timeout: 600_000 })
  const mb = await memoryMb(browser, await context.newCDPSession(page))
  await page.close()
  return mb
}

const ours = async (bench: Bench): Promise<Side> => {
  const browser = await open(bench)
  const place = await prepare(bench)
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } })
  const page = await signedIn(context, place.url)
  const overview = page.url()
  let next = 1
  return {
    async measure(round): Promise<Sample> {
      const firstMs = await firstPage(context, overview, (fresh) => fresh.locator('.tile').first().waitFor())
      await open500(page, place)
      const tables = await traced(browser, () => useTables(page))
      await page.goto(`${place.url}/s/application/${place.serviceId}/logs`)
      const log = await traced(browser, () => useLog(page, place, next))
      next += lines
      const memory = await memoryMb(browser, await context.newCDPSession(page))
      return {
        firstMs,
        tablesMs: tables.p95Ms,
        logMs: log.p95Ms,
        droppedTables: tables.droppedPercent,
        droppedLog: log.droppedPercent,
        memory,
        ...(round === 0 ? { hourMemory: await anHour(context, browser, place) } : {}),
      }
    },
  }
}

const ownRow = (id: string, what: string, unit: string, value: number, key: string) => ({
  ...{ id: `12-${id}`, what, unit, goal: { kind: 'atMost', value } as const, key, floorKey: null },
})

/** The console in a browser, with 500 services and 5,000 variables, and a log of 1,000 lines a second. */
export const figure: Figure<Bench> = {
  id: '12',
  warmups: 0,
  rows: [
    { ...ownRow('first', 'first page at 10 Mbit/s, empty page', 'ms', 1000, 'firstMs'), floorKey: 'firstMs' },
    ownRow('tables', 'p95 of interactions, tables', 'ms', 100, 'tablesMs'),
    ownRow('log', 'p95 of interactions, log', 'ms', 100, 'logMs'),
    ownRow('drop', 'dropped frames, tables', '%', 5, 'droppedTables'),
    ownRow('drop-log', 'dropped frames, log', '%', 5, 'droppedLog'),
    ownRow('memory', 'memory of the page after 50,000 lines', 'MB', 300, 'memory'),
    ownRow('hour', 'the same after 3,600,000 lines', 'MB', 300, 'hourMemory'),
  ],
  floor,
  ours,
}
