/**
 * The control plane in the foreground. SIGINT and SIGTERM stop it cleanly; deployed services, the router and the
 * embedded database keep running.
 */
import type { AdminToken } from '../api/auth/admin-token.ts'
import { isProgram } from '../lib/exec.ts'
import { nameSources } from '../lib/traces.ts'
import { readSettings, type Settings } from '../settings/settings.ts'
import { type App, startApp } from '../wiring/app.ts'
import { linkToConsole } from './console-link.ts'
import { prepareSample } from './sample-start.ts'

const forcedExitMs = 20_000

const onSignals = (app: App): void => {
  let ending = false
  const end = (): void => {
    if (ending) return
    ending = true
    setTimeout(() => process.exit(1), forcedExitMs).unref()
    app.stop().then(
      () => process.exit(0),
      (error: unknown) => {
        app.parts.log.error({ err: error }, 'the server did not shut down cleanly')
        process.exit(1)
      },
    )
  }
  process.on('SIGINT', end).on('SIGTERM', end)
}

export const print = (line: string): void => {
  process.stdout.write(`${line}\n`)
}

/** The token itself is shown only once: printed output ends up in journals. */
export const describeToken = ({ source, text, file, madeAt }: AdminToken): string => {
  if (source === 'made') return text!
  if (source === 'renewed') return `in ${file} (new: the previous one was revoked or lost)`
  if (source === 'kept') return `in ${file}`
  if (source === 'given') return `as ${text === null ? 'it was ' : ''}given in SLIPWAY_ADMIN_TOKEN`
  const where = madeAt === null ? 'another server of this database' : madeAt
  return `made by ${where}; SLIPWAY_ADMIN_TOKEN on every server replaces it`
}

const printWelcome = async (app: App): Promise<void> => {
  const sampleUrl = await prepareSample(app, print)
  const consoleUrl = await linkToConsole(app)
  print(`Slipway        ${app.url}`)
  if (consoleUrl !== null) print(`Console        ${consoleUrl} (signs in once, for 15 minutes)`)
  print(`Admin token    ${describeToken(app.adminToken)}`)
  if (sampleUrl !== null) print(`Sample         ${sampleUrl}`)
}

/** A wrong path is reported at the start, not by the first deployment that needs the program. */
const checkTools = async ({ tools }: Settings): Promise<void> => {
  for (const [setting, path] of [
    ['SLIPWAY_TOFU', tools.tofu],
    ['SLIPWAY_TERRAFORM', tools.terraform],
    ['SLIPWAY_HELM', tools.helm],
  ] as const)
    if (path !== undefined && !(await isProgram(path)))
      throw new Error(`${setting} must be the path of a program: ${path} is not one`)
}

/** Starts, prints what a user needs to know, and returns; the process runs until a signal stops it. */
export const serve = async (welcome: (app: App) => Promise<void> = printWelcome): Promise<void> => {
  const settings = readSettings()
  try {
    await checkTools(settings)
    const app = await startApp(settings, { fake: process.argv.includes('--fake') })
    onSignals(app)
    await welcome(app)
  } catch (error) {
    process.stderr.write(`Slipway cannot start: ${(error as Error).message}\n`)
    if (settings.logLevel === 'debug') process.stderr.write(`${nameSources(String((error as Error).stack))}\n`)
    process.exit(1)
  }
}
