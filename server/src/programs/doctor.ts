/**
 * `npm run doctor`: what is wrong with this installation, and how to mend it. A running server is asked for its
 * findings, to which this adds what only the machine knows; otherwise it says why the server does not start. Exits
 * with 1 if something failed. Changes nothing.
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { type Finding, failed, type Problem, topic, warning } from '../lib/finding.ts'
import { version } from '../lib/version.ts'
import { readIfThere } from '../lib/whole-file.ts'
import { SettingsError, settingsFileName } from '../settings/file.ts'
import { loadSettings, type Settings } from '../settings/settings.ts'
import { findControlPlane } from '../wiring/process-file.ts'
import { findingText, summaryOf } from './findings-text.ts'
import { lookAtMachine } from './machine-checks.ts'

const answerMs = 20_000
const server = topic('server', 'Server')
const settingsTopic = topic('settings', 'Settings')

const modifiedMs = (path: string): number => statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0

/** Warnings of the settings, and settings that the running server does not know yet. */
const judgeSettings = ({ dataDir }: Settings, warnings: readonly string[], runs: boolean): Finding => {
  const file = join(dataDir, settingsFileName)
  const isNewer = runs && modifiedMs(file) > modifiedMs(join(dataDir, 'slipway.pid'))
  const problems: Problem[] = [
    ...warnings.map((text) => warning(text, 'Correct its name, or remove it.')),
    ...(isNewer
      ? [
          warning(
            `${file} was changed after the server started.`,
            'Restart Slipway: settings take effect with the next start.',
          ),
        ]
      : []),
  ]
  return settingsTopic.judge(problems, 'All settings are valid.')
}

/** Where the running server answers. An address that stands for all of a machine is reached at its loopback. */
const addressOf = async ({ dataDir, host, port }: Settings): Promise<string> => {
  const written = (await readIfThere(join(dataDir, 'address')).catch(() => null))?.trim()
  return (written ?? `http://${host}:${port}`).replace(/\/\/(0\.0\.0\.0|\[::\]|::)(?=:)/, '//127.0.0.1')
}

const tokenOf = async ({ adminToken, dataDir }: Settings): Promise<string> =>
  adminToken?.reveal() ?? (await readIfThere(join(dataDir, 'admin-token')).catch(() => null))?.trim() ?? ''

interface Answer {
  /** 0: none. */
  status: number
  findings: Finding[] | null
  version: string | null
}

const ask = async (settings: Settings): Promise<Answer> => {
  const address = await addressOf(settings)
  const headers = { authorization: `Token ${await tokenOf(settings)}` }
  const signal = AbortSignal.timeout(answerMs)
  try {
    const health = (await (await fetch(`${address}/healthz`, { signal })).json()) as { version?: string }
    const answer = await fetch(`${address}/readyz?verbose`, { headers, signal })
    const { findings } = (await answer.json()) as { findings?: Finding[] }
    return { status: answer.status, findings: findings ?? null, version: health.version ?? null }
  } catch {
    return { status: 0, findings: null, version: null }
  }
}

const judgeServer = (pid: number, { status, findings, version: running }: Answer): Finding => {
  if (status === 0)
    return server.judge(
      [
        failed(
          `Process ${pid} runs, but its API does not answer.`,
          'Read its log; if it stays so, restart it: deployed services keep running meanwhile.',
        ),
      ],
      '',
    )
  if (status === 401 || status === 403)
    return server.judge(
      [
        warning(
          `Process ${pid} runs, but does not accept the admin token that is known here.`,
          'Give the token that the server has: SLIPWAY_ADMIN_TOKEN=… npm run doctor. Meanwhile only the machine is checked.',
        ),
      ],
      '',
    )
  if (findings === null)
    return server.judge(
      [
        failed(
          `Process ${pid} runs, but cannot say how it is: it answers ${status}.`,
          'Mostly its database does not answer: see below, and its log.',
        ),
      ],
      '',
    )
  if (running !== version)
    return server.judge(
      [warning(`Process ${pid} runs version ${running}; this checkout has ${version}.`, 'Restart it to use this one.')],
      '',
    )
  return server.ok(`Version ${running} runs as process ${pid}.`)
}

const lookAll = async (): Promise<Finding[]> => {
  const { settings, warnings } = loadSettings()
  const pid = await findControlPlane(settings.dataDir)
  const judged = judgeSettings(settings, warnings, pid !== null)
  if (pid === null) {
    const stopped = server.judge(
      [
        failed(
          `No server of ${settings.dataDir} runs.`,
          'Start it with `npm start`; what would keep it from starting is below.',
        ),
      ],
      '',
    )
    return [stopped, judged, ...(await lookAtMachine(settings, { canStart: true }))]
  }
  const answer = await ask(settings)
  const more = answer.findings ?? (await lookAtMachine(settings, { canStart: false }))
  return [judgeServer(pid, answer), judged, ...more]
}

const findings = await lookAll().catch((error: unknown) => {
  if (!(error instanceof SettingsError)) throw error
  const problems = error.problems.map((text) =>
    failed(text, 'Correct it: docs/guides/configuration.md lists the settings.'),
  )
  return [settingsTopic.judge(problems, '')]
})
const isJson = process.argv.includes('--json')
const columns = process.stdout.columns ?? 120
const text = isJson
  ? JSON.stringify({ findings }, null, 2)
  : [...findings.map((each) => findingText(each, columns)), summaryOf(findings)].join('\n')
process.stdout.write(`${text}\n`)
process.exitCode = findings.some(({ state }) => state === 'FAILED') ? 1 : 0
