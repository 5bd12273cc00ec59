/** Debian's Chromium, driven as a person drives it, on a console that was built from these sources. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { type Browser, chromium, type Page, type Request } from 'playwright-core'
import { exec } from '../../src/lib/exec.ts'
import type { Json } from './slipway/slipway.ts'
import { until } from './until.ts'

const axeFile = createRequire(import.meta.url).resolve('axe-core/axe.min.js')
const executablePath = '/usr/bin/chromium'

/** Why tests in a browser are skipped; false where they run. */
export const browserIsMissing: string | false = existsSync(executablePath)
  ? false
  : 'there is no Chromium: install the Debian package chromium'

const ready = fileURLToPath(new URL('../../../bin/ready.sh', import.meta.url))

/** Builds the console unless it was, as `npm start` does. */
export const buildConsole = async (): Promise<void> => {
  const env = { PATH: process.env.PATH ?? '' }
  const { code, stderr } = await exec('bash', ['-c', '. "$0"; ready_console', ready], { env, timeoutMs: 120_000 })
  if (code !== 0 || stderr.includes('could not be built')) throw new Error(`no console: ${stderr}`)
}

export const openBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] })

const cut = 'net::ERR_NETWORK_CHANGED'
const mostTries = 5

/**
 * Opens an address. Chromium ends all its connections when the networks of the machine change, as they do beside tests
 * that make some: what was being loaded then, such as the style, is missing, so the page is loaded again.
 */
export const openPage = async (page: Page, address: string): Promise<void> => {
  for (let tries = 1; ; tries += 1) {
    let isCut = false
    const note = (request: Request): void => {
      isCut ||= request.failure()?.errorText === cut
    }
    page.on('requestfailed', note)
    try {
      await page.goto(address)
      if (!isCut) return
    } catch (error) {
      if (!String(error).includes(cut)) throw error
    } finally {
      page.off('requestfailed', note)
    }
    assert.ok(tries < mostTries, `${address} cannot be loaded: the networks of this machine change all the time`)
  }
}

const barriersOn = async (page: Page): Promise<string[]> => {
  const { violations } = await page.evaluate<Json>('axe.run({ resultTypes: ["violations"] })')
  const serious = violations.filter(({ impact }: Json) => impact === 'serious' || impact === 'critical')
  return serious.map(({ id, nodes }: Json) => `${id}: ${nodes.map(({ html }: Json) => html).slice(0, 3)}`)
}

/** Asserts that axe finds nothing serious. Looks again: what is just appearing has little contrast for a moment. */
export const hasNoBarriers = async (page: Page, name: string): Promise<void> => {
  // The page's policy keeps other scripts out; a debugger's evaluation is none.
  await page.evaluate(readFileSync(axeFile, 'utf8'))
  let found: string[] = []
  const isFree = async (): Promise<boolean> => {
    found = await barriersOn(page)
    return found.length === 0
  }
  await until(isFree, { timeoutMs: 10_000, what: `${name} without barriers` }).catch(() => {})
  assert.deepEqual(found, [], name)
}
