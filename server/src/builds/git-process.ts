/** Runs git with an environment of our own: no configuration of the machine, no prompts, no hooks, no other transports. */
import { spawn } from 'node:child_process'
import { PassThrough, type Readable } from 'node:stream'
import { type ExecOptions, type ExecResult, exec } from '../lib/exec.ts'

export type GitConfig = readonly (readonly [key: string, value: string])[]

/** `fetch.unpackLimit`: packs are moved into place whole, so a killed fetch never leaves a commit without its files. */
const always: GitConfig = [
  ['core.hooksPath', '/dev/null'],
  ['core.askPass', ''],
  ['credential.helper', ''],
  ['protocol.file.allow', 'never'],
  ['http.followRedirects', 'false'],
  ['http.proxy', ''],
  ['http.lowSpeedLimit', '1'],
  ['http.lowSpeedTime', '60'],
  ['fetch.recurseSubmodules', 'false'],
  ['fetch.unpackLimit', '1'],
  ['gc.auto', '0'],
  ['gc.autoDetach', 'false'],
  ['maintenance.auto', 'false'],
  ['tar.umask', '0022'],
]

const environment = (home: string, config: GitConfig): Record<string, string> => {
  const all = [...always, ...config]
  return {
    PATH: process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin',
    HOME: home,
    LC_ALL: 'C',
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ALLOW_PROTOCOL: 'https:http',
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(
      all.flatMap(([key, value], index) => [
        [`GIT_CONFIG_KEY_${index}`, key],
        [`GIT_CONFIG_VALUE_${index}`, value],
      ]),
    ),
  }
}

export interface Git {
  /** Runs to the end; a code other than 0 is a result. */
  run(
    args: readonly string[],
    options?: Pick<ExecOptions, 'signal' | 'timeoutMs' | 'maxOutput'> & { config?: GitConfig },
  ): Promise<ExecResult>
  /** The bytes of its standard output; the stream fails when git does, and ending it ends git. */
  open(args: readonly string[], input?: string): Readable
}

/** `home` is an empty folder that exists. */
export const createGit = (home: string): Git => ({
  run: (args, { config = [], ...options } = {}) => exec('git', args, { ...options, env: environment(home, config) }),
  open(args, input) {
    const child = spawn('git', args, {
      shell: false,
      env: environment(home, []),
      stdio: [input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    })
    // Ends only when git has ended well: half an archive must not pass for a whole one.
    const out = new PassThrough()
    let said = ''
    child.stdout!.pipe(out, { end: false })
    child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      said = (said + text).slice(-2000)
    })
    child.on('error', (error) => out.destroy(error))
    child.on('close', (code) => {
      if (code === 0) out.end()
      else out.destroy(new Error(`git failed: ${said.trim()}`))
    })
    out.on('close', () => child.kill('SIGKILL'))
    child.stdin?.on('error', () => {}).end(input)
    return out
  },
})
