/**
 * Runs git: with our own environment (no configuration of the machine, no prompts, no hooks, no other transports), as
 * a separate user, and under limits. Its input is untrusted: a git process that a repository has taken over, or made
 * to use up memory, has nothing to steal and is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { lstatSync } from 'node:fs'
import { PassThrough, type Readable, type Writable } from 'node:stream'
import { type ExecOptions, type ExecResult, exec, killGroup } from '../../lib/exec.ts'
import type { SystemUser } from '../../lib/system-user.ts'

export type GitConfig = readonly (readonly [key: string, value: string])[]

/**
 * `fetch.unpackLimit`: packs are moved into place complete, so a killed fetch never leaves a commit without its files.
 * The sizes keep git's use of packs below its memory limit.
 */
const always: GitConfig = [
  ['core.hooksPath', '/dev/null'],
  ['core.askPass', ''],
  ['core.packedGitWindowSize', '32m'],
  ['core.packedGitLimit', '256m'],
  ['core.bigFileThreshold', '32m'],
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
  ['pack.threads', '2'],
  ['pack.windowMemory', '128m'],
  ['tar.umask', '0022'],
]

const environment = (home: string, config: GitConfig): Record<string, string> => {
  const all = [...always, ...config]
  return {
    PATH: process.env.PATH ?? '/usr/local/bin:/usr/bin:/bin',
    HOME: home,
    LC_ALL: 'C',
    MALLOC_ARENA_MAX: '2',
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

export interface GitSetup {
  /** An empty folder that exists. */
  home: string
  /** Without it, git runs as we do. */
  user?: SystemUser
  /** Path of util-linux' prlimit; without it there are no limits. */
  prlimit?: string | null
  memoryMb?: number
  maxFileBytes?: number
  /**
   * Called with the process group of each child that `open` starts; the returned function is called when that has
   * ended.
   */
  onChild?: (group: number) => () => void
}

const usualGitMemoryMb = 1024
const usualTimeoutMs = 60_000
const maxFiles = 512
/** For the user, across all its processes. */
const maxProcesses = 1024

type RunOptions = TalkOptions & Pick<ExecOptions, 'signal' | 'maxOutput' | 'overflow' | 'input'>

interface TalkOptions {
  timeoutMs?: number
  config?: GitConfig
  /** In addition to the environment of every git process. */
  env?: Record<string, string>
}

/** A git process with a line-based dialog. */
export interface GitTalk {
  input: Writable
  /** Fails with `GitFailed` when git does; destroying it kills git. */
  output: Readable
}

export interface Git {
  /** Runs to completion; a code other than 0 is a result. */
  run(args: readonly string[], options?: RunOptions): Promise<ExecResult>
  /** The bytes of its standard output; the stream fails with `GitFailed` when git does, and destroying it kills git. */
  open(args: readonly string[], options?: Pick<TalkOptions, 'timeoutMs' | 'env'>): Readable
  talk(args: readonly string[], options?: TalkOptions): GitTalk
  /** Removes what git created, as git's user: root must not follow a folder that was swapped for a link. */
  remove(paths: readonly string[]): Promise<void>
}

/** Git failed. `stderr` is its last output. */
export class GitFailed extends Error {
  readonly stderr: string

  constructor(stderr: string, how: string) {
    super(`git failed (${how}): ${stderr.trim()}`)
    this.name = 'GitFailed'
    this.stderr = stderr
  }
}

/**
 * The program and its arguments. A process limit counts all processes of a user, so it is set only for git's own user.
 */
const commandOf = (setup: GitSetup, args: readonly string[], timeoutMs: number): [file: string, args: string[]] => {
  const { prlimit, user, memoryMb = usualGitMemoryMb, maxFileBytes = 6 * 2 ** 30 } = setup
  if (prlimit === undefined || prlimit === null) return ['git', [...args]]
  const limits = [
    `--as=${memoryMb * 2 ** 20}`,
    `--cpu=${Math.ceil((2 * timeoutMs) / 1000)}`,
    `--fsize=${maxFileBytes}`,
    `--nofile=${maxFiles}`,
    '--core=0',
    ...(user?.uid === undefined ? [] : [`--nproc=${maxProcesses}`]),
  ]
  return [prlimit, [...limits, '--', 'git', ...args]]
}

/** Its output ends only after git has succeeded: a partial archive must not pass for a complete one. */
const attach = (child: ChildProcess, setup: GitSetup, timeoutMs: number): GitTalk => {
  const output = new PassThrough()
  const ended = child.pid === undefined ? undefined : setup.onChild?.(child.pid)
  let isOver = false
  let said = ''
  const timer = setTimeout(
    () => output.destroy(new GitFailed(`git did not finish within ${Math.ceil(timeoutMs / 1000)} s`, 'timeout')),
    timeoutMs,
  )
  child.stdout!.pipe(output, { end: false })
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-2000)
  })
  child.on('error', (error) => output.destroy(error))
  child.on('close', (code, signal) => {
    isOver = true
    clearTimeout(timer)
    ended?.()
    if (code === 0) output.end()
    else output.destroy(new GitFailed(said, signal ?? `code ${code}`))
  })
  output.on('close', () => {
    if (!isOver) killGroup(child)
  })
  child.stdin?.on('error', () => {})
  return { input: child.stdin!, output }
}

/** By the program, which uses open folders instead of names. */
export const removeTrees = async (paths: readonly string[], user: SystemUser = {}): Promise<void> => {
  const there = paths.filter((path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined)
  if (there.length === 0) return
  const env = { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C' }
  const { code, stderr } = await exec('rm', ['-rf', '--', ...there], { env, ...user, timeoutMs: 600_000 })
  if (code !== 0) throw new Error(`rm failed: ${stderr.trim().slice(-500)}`)
}

export const createGit = (setup: GitSetup): Git => {
  const start = (args: readonly string[], stdin: 'pipe' | 'ignore', more: TalkOptions): GitTalk => {
    const { timeoutMs = usualTimeoutMs, config = [] } = more
    const [file, all] = commandOf(setup, args, timeoutMs)
    const env = { ...environment(setup.home, config), ...more.env }
    const options = { shell: false, detached: true, env, cwd: setup.home, ...setup.user }
    return attach(spawn(file, all, { ...options, stdio: [stdin, 'pipe', 'pipe'] }), setup, timeoutMs)
  }
  return {
    run(args, { config = [], timeoutMs = usualTimeoutMs, env: more = {}, ...options } = {}) {
      const [file, all] = commandOf(setup, args, timeoutMs)
      const env = { ...environment(setup.home, config), ...more }
      return exec(file, all, { ...options, ...setup.user, timeoutMs, env, cwd: setup.home })
    },
    open: (args, options = {}) => start(args, 'ignore', options).output,
    talk: (args, options = {}) => start(args, 'pipe', options),
    remove: (paths) => removeTrees(paths, setup.user),
  }
}

/** The same git with further variables in the environment of each of its processes. */
export const withEnvironment = (git: Git, env: Record<string, string>): Git => ({
  run: (args, options = {}) => git.run(args, { ...options, env: { ...env, ...options.env } }),
  open: (args, options = {}) => git.open(args, { ...options, env: { ...env, ...options.env } }),
  talk: (args, options = {}) => git.talk(args, { ...options, env: { ...env, ...options.env } }),
  remove: git.remove,
})
