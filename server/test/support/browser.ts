/** Debian's Chromium, driven as a person drives it, on a console that was built from these sources. */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { type Browser, chromium } from 'playwright-core'
import { exec } from '../../src/lib/exec.ts'

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
