import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import os from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { request } from 'undici'
import { browserIsMissing, buildConsole, openBrowser } from '../../server/test/support/browser.ts'
import type { Bench } from '../bench.ts'
import { browserSeconds, heldMb, memoryMb, patienceMs, signedIn, throttle, traced } from '../browser.ts'
import { openServices, scroll, type, useLog, useTables } from '../console.ts'
import type { Figure, Sample, Side } from '../figure.ts'
import { lastLine, startHour } from '../hour.ts'
import { cpuMicros, median, timed } from '../measure.ts'
import type { Ours } from '../ours.ts'
import { deploy, hostOf, makeApplication, untilRouted } from '../ours-deploy.ts'
import { seedLargeEnvironment } from '../seed.ts'

const services = 500
/** In the environment and in its project each: the built-in ones of the services come to these. */
const variables = 2000
const allVariables = 5000
const lines = 50_000
const perTenth = 100
const openings = 5
const viewport = { width: 1440, height: 900 }

const open = async (bench: Bench): Promise<Browser> => {
  if (browserIsMissing !== false) throw new Error(browserIsMissing)
  const browser = await openBrowser()
  bench.onClose(() => browser.close())
  return browser
}

/**
 * On a throttled connection, until an expression is true, asked every 10 ms: locators look at longer and longer
 * intervals, up to half a second. The median of several openings.
 */
const firstPage = async (context: BrowserContext, url: string, isThere: string) => {
  const took: number[] = []
  for (let opening = 0; opening < openings; opening += 1) {
    const page = await context.newPage()
    page.setDefaultTimeout(patienceMs)
    await throttle(await context.newCDPSession(page))
    took.push(
      await timed(async () => {
        await page.goto(url, { waitUntil: 'commit' })
        for (const deadline = performance.now() + patienceMs; (await page.evaluate(isThere)) !== true; await pause(10))
          if (performance.now() > deadline) throw new Error(`${url} was not usable within ${patienceMs / 1000} s`)
      }),
    )
    await page.close()
  }
  return median(took)
}

const emptyPage = '<!doctype html><title>Empty</title><p>Empty</p>'

/** A table of as many rows, whole, and a field that nothing listens to: what this browser needs for itself. */
const plainPage = (): string => {
  const cells = ['name', 'state', 'kind', 'version', 'address'].map((word) => `<td>${word} of a service</td>`).join('')
  const row = `<tr>${cells}</tr>`
  return `<!doctype html><title>Plain</title><label>Filter <input></label><table>${row.repeat(services)}</table>`
}

const floor = async (bench: Bench): Promise<Side> => {
  const browser = await open(bench)
  const server = createServer(({ url }, response) => {
    response.setHeader('content-type', 'text/html')
    response.end(url === '/plain' ? plainPage() : emptyPage)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  bench.onClose(async () => void server.close())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const context = await browser.newContext({ viewport })
  return {
    async measure() {
      const firstMs = await firstPage(context, url, 'document.querySelector("p") !== null')
      const page = await context.newPage()
      await page.goto(`${url}/plain`)
      const { p95Ms, p95CpuMs, droppedPercent, ownDroppedPercent } = await traced(browser, async () => {
        for (let turn = 0; turn < 3; turn += 1) {
          await type(page, 'Filter', 'environment_4')
          await scroll(page, 60)
          await page.evaluate('scrollTo(0, 0)')
        }
      })
      const memory = await memoryMb(browser, await context.newCDPSession(page))
      await page.close()
      return { firstMs, p95Ms, p95CpuMs, droppedPercent, ownDroppedPercent, memory }
    },
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
  const { startOurs } = await import('../ours.ts')
  // One of its own: the overview has all projects, and those of other figures are ten thousand.
  const ours = await startOurs(bench, 'ours_console')
  bench.onClose(ours.stop)
  const { url: git } = await bench.sources()
  const environmentId = await seedLargeEnvironment(ours.database, ours.templates, services, variables)
  const path = `/variable?parent_id=${environmentId}&scope=ENVIRONMENT`
  const { results } = await ours.call<{ results: object[] }>('GET', path)
  if (results.length < allVariables) throw new Error(`the environment has only ${results.length} variables`)
  const own = await ours.makeEnvironment('figure-12')
  const serviceId = await makeApplication(ours, own, 'talker', git, { cpu: 1000 })
  await deploy(ours, serviceId)
  await untilRouted(ours, serviceId)
  return { ours, url: ours.target('GET', '/').origin, environmentId, serviceId }
}

/** Until all environments are there, the large one too: those of the templates, of the log and the 500 services. */
const isUsable = 'document.querySelectorAll(".tile").length > 2'

const busySeconds = (): number =>
  os.cpus().reduce((sum, { times: { user, nice, sys, irq } }) => sum + user + nice + sys + irq, 0) / 1000

/** Of how many cores each made use during `work`. */
const coresDuring = async (browser: Browser, { ours }: Place, work: () => Promise<unknown>) => {
  const read = async () => ({
    browser: await browserSeconds(browser),
    server: cpuMicros(ours.pids) / 1e6,
    all: busySeconds(),
  })
  const before = await read()
  const seconds = (await timed(work)) / 1000
  const after = await read()
  const cores = (key: keyof typeof before): number => (after[key] - before[key]) / seconds
  return { seconds, coresBrowser: cores('browser'), coresServer: cores('server'), coresAll: cores('all') }
}

/** The program prints, and a user reads. */
const readLog = async (browser: Browser, page: Page, place: Place, from: number) => {
  const { ours, url, serviceId } = place
  await page.goto(`${url}/s/application/${serviceId}/logs`)
  const host = `${await hostOf(ours, serviceId)}:${ours.routerPort}`
  const path = `/cgi-bin/talk?${from},${from + lines - 1},${perTenth}`
  let isOver = false
  let printedMs = 0
  const print = async (): Promise<void> => {
    const options = { headers: { host }, headersTimeout: 300_000, bodyTimeout: 300_000 }
    printedMs = await timed(async () => {
      const { statusCode, body } = await request(`http://127.0.0.1:${ours.routerPort}${path}`, options)
      const text = await body.text()
      if (!text.endsWith('.printed\n')) throw new Error(`the program could not print: ${statusCode} ${text.slice(-80)}`)
    }).finally(() => {
      isOver = true
    })
  }
  const use = () => traced(browser, () => Promise.all([print(), useLog(page, () => isOver)]))
  let log = {} as Awaited<ReturnType<typeof use>>
  const cores = await coresDuring(browser, place, async () => {
    log = await use()
  })
  // The page keeps as many as were printed.
  await page.getByText(new RegExp(`(^|of )${lines} lines`)).waitFor()
  return { ...log, ...cores, linesPerSecond: (1000 * lines) / printedMs }
}

/** What is held when the lines of an hour have come, and the most that was on the way. */
const anHour = async (bench: Bench, browser: Browser, signedInAs: BrowserContext, { url, serviceId }: Place) => {
  const hour = await startHour()
  bench.onClose(hour.close)
  // Its policy would keep the page from another origin.
  const context = await browser.newContext({
    viewport,
    bypassCSP: true,
    storageState: await signedInAs.storageState(),
  })
  await context.addInitScript(`{
    const Real = WebSocket
    window.WebSocket = class extends Real {
      constructor(url, protocols) { super(url.includes('/service/logs') ? '${hour.url}' : url, protocols) }
    }
  }`)
  const page = await context.newPage()
  await page.goto(`${url}/s/application/${serviceId}/logs`)
  let most = 0
  const looking = setInterval(async () => {
    most = Math.max(most, await heldMb(browser).catch(() => 0))
  }, 1000)
  try {
    await page.locator('.log-line', { hasText: lastLine }).waitFor({ timeout: 5 * patienceMs })
  } finally {
    clearInterval(looking)
  }
  const hourMemory = await memoryMb(browser, await context.newCDPSession(page))
  await context.close()
  await hour.close()
  return { hourMemory, hourMost: most }
}

/** What failed, in the one line that the report has. */
const named = async <T>(what: string, work: () => Promise<T>): Promise<T> => {
  try {
    return await work()
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message.replaceAll(/\s+/g, ' ')}`)
  }
}

const ours = async (bench: Bench): Promise<Side> => {
  const browser = await open(bench)
  const place = await prepare(bench)
  const context = await browser.newContext({ viewport })
  const page = await signedIn(context, place.url)
  const overview = page.url()
  let next = 1
  return {
    async measure(): Promise<Sample> {
      const firstMs = await named('first page', () => firstPage(context, overview, isUsable))
      await openServices(page, place.url, place.environmentId)
      const tables = await named('tables', () => traced(browser, () => useTables(page)))
      const log = await named('log', () => readLog(browser, page, place, next))
      next += lines
      const memory = await memoryMb(browser, await context.newCDPSession(page))
      return {
        ...{ firstMs, memory },
        ...{ tablesMs: tables.p95Ms, tablesLongest: tables.longestMs, tablesCpu: tables.p95CpuMs },
        ...{ droppedTables: tables.droppedPercent, ownTables: tables.ownDroppedPercent },
        ...{ logMs: log.p95Ms, logLongest: log.longestMs, logCpu: log.p95CpuMs },
        ...{ droppedLog: log.droppedPercent, ownLog: log.ownDroppedPercent },
        ...{ interactions: tables.interactions + log.interactions, frames: tables.frames + log.frames },
        ...{ coresBrowser: log.coresBrowser, coresServer: log.coresServer, coresAll: log.coresAll },
        linesPerSecond: log.linesPerSecond,
        ...(await named('an hour of lines', () => anHour(bench, browser, context, place))),
      }
    },
  }
}

const atMost = (id: string, what: string, unit: string, value: number, key: string, floorKey: string | null) => ({
  ...{ id: `12-${id}`, what, unit, goal: { kind: 'atMost', value } as const, key, floorKey },
})

const stated = (id: string, what: string, unit: string, key: string, floorKey: string | null = null) => ({
  ...{ id: `12-${id}`, what, unit, goal: null, key, floorKey },
})

/**
 * The console in a browser: an environment with 500 services, of which more than 5,000 variables are seen, and the log
 * of a service that prints 1,000 lines a second.
 *
 * - The first page is the overview, on a connection of 10 Mbit/s with 40 ms, with nothing cached, until all environments
 *   are shown; its floor is a page of one word.
 * - Interactions (keys and clicks, from the input to the frame that answers it) and dropped frames are what the browser
 *   writes into its trace; their floor is a plain table of as many rows without a script, typed into and scrolled as
 *   much.
 * - Others on the machine make both longer: the CPU time of the page's thread during an interaction, and the frames that
 *   this time alone left no room for, are the page's own, however busy the machine is.
 * - The log: 50,000 lines arrive through engine and server while a user searches, filters, pauses and scrolls them.
 * - Memory is that of the page's process (PSS) after a collection; its floor is the plain page. Then it is given the
 *   lines of an hour, 3,600,000, as fast as it takes them, in the server's place; `most` is the largest of the values
 *   read each second meanwhile.
 * - Browser, server, engine and program share the cores of the machine, and the browser draws without a GPU: whose they
 *   are while the log arrives is stated, and with all others of the machine in `all`.
 */
export const figure: Figure<Bench> = {
  id: '12',
  warmups: 0,
  rows: [
    atMost('first', 'first page at 10 Mbit/s, empty page', 'ms', 1000, 'firstMs', 'firstMs'),
    atMost('tables', 'p95 of interactions, tables', 'ms', 100, 'tablesMs', 'p95Ms'),
    stated('tables-longest', 'the longest of them', 'ms', 'tablesLongest'),
    stated('tables-cpu', "p95 of the page's CPU time for them", 'ms', 'tablesCpu', 'p95CpuMs'),
    atMost('log', 'p95 of interactions, log', 'ms', 100, 'logMs', 'p95Ms'),
    stated('log-longest', 'the longest of them', 'ms', 'logLongest'),
    stated('log-cpu', "p95 of the page's CPU time for them", 'ms', 'logCpu', 'p95CpuMs'),
    stated('interactions', 'interactions, tables and log', '', 'interactions'),
    atMost('drop', 'dropped frames, tables', '%', 5, 'droppedTables', 'droppedPercent'),
    stated('drop-own', 'those for which its own CPU time stands', '%', 'ownTables', 'ownDroppedPercent'),
    atMost('drop-log', 'dropped frames, log', '%', 5, 'droppedLog', 'droppedPercent'),
    stated('drop-log-own', 'those for which its own CPU time stands', '%', 'ownLog', 'ownDroppedPercent'),
    stated('frames', 'frames, tables and log', '', 'frames'),
    stated('lines', 'lines of the log', '1/s', 'linesPerSecond'),
    atMost('memory', 'memory of the page after 50,000 lines', 'MB', 300, 'memory', 'memory'),
    atMost('hour', 'the same after 3,600,000 lines', 'MB', 300, 'hourMemory', 'memory'),
    stated('hour-most', 'the most meanwhile', 'MB', 'hourMost'),
    stated('browser', 'cores of the browser, log', '', 'coresBrowser'),
    stated('server', 'cores of server and database, log', '', 'coresServer'),
    stated('all', 'cores of the whole machine, log', '', 'coresAll'),
  ],
  floor,
  ours,
}
