/** The helm of this machine: that of PATH, or the one that the cluster of the tests was built with. */
import { existsSync, readdirSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { parseAllDocuments } from 'yaml'
import { findTool } from '../../../src/builds/tools.ts'
import { exec } from '../../../src/lib/exec.ts'
import type { Json } from '../api.ts'

export const chartFolder = new URL('../../../../deploy/chart', import.meta.url).pathname

const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'slipway-test')

const built = (): string[] =>
  existsSync(cache)
    ? readdirSync(cache)
        .filter((name) => name.startsWith('kubernetes-'))
        .map((name) => join(cache, name, 'helm'))
        .filter((path) => existsSync(path))
    : []

/** Undefined where there is none. */
export const helmProgram: string | undefined = (await findTool('helm', {})) ?? built()[0]

/** For tests that need it: false, or why they are skipped. */
export const withoutHelm: string | false =
  helmProgram === undefined && 'helm is not on PATH, and npm run test:kubernetes has not built it'

export interface Said {
  code: number | null
  /** What it printed, errors too. */
  text: string
  stdout: string
}

/** Runs it with values, which it reads after those of the chart. */
export const runHelm = async (
  args: readonly string[],
  values: Json = {},
  env: Record<string, string> = {},
  timeoutMs = 60_000,
): Promise<Said> => {
  const settings = Object.entries(values).flatMap(([name, value]) => ['--set-json', `${name}=${JSON.stringify(value)}`])
  const { code, stdout, stderr } = await exec(helmProgram!, [...args, ...settings], {
    env: { PATH: process.env.PATH ?? '', HOME: '/nonexistent', ...env },
    timeoutMs,
  })
  return { code, stdout, text: stdout + stderr }
}

/** The objects that a chart makes of values. */
export const renderChart = async (values: Json, version = '1.35.0'): Promise<Json[]> => {
  const place = ['--namespace', 'control', '--kube-version', version]
  const { code, stdout, text } = await runHelm(['template', 'slipway', chartFolder, ...place], values)
  if (code !== 0) throw new Error(text)
  return parseAllDocuments(stdout).flatMap((document) => {
    const object = document.toJS() as Json
    return object === null ? [] : [object]
  })
}
