import { type ChildProcess, spawn } from 'node:child_process'
import { access, constants, stat } from 'node:fs/promises'
import { delimiter, isAbsolute, join } from 'node:path'

/** How a program exited. Only the last lines of its standard error are kept: they say why. */
export interface ExecResult {
  code: number
  stdout: string
  stderr: string
}

/**
 * The handling of standard output beyond the cap. `fail`: the child is killed and `ExecOverflow` thrown, for output
 * that is parsed. `front` and `end`: that part of it is kept, for output that people read.
 */
type Overflow = 'fail' | 'front' | 'end'

export interface ExecOptions {
  cwd?: string
  /** The whole environment of the child; nothing is inherited. */
  env: Record<string, string>
  signal?: AbortSignal
  /** Kills the child and rejects with `ExecTimeout` after this many milliseconds. */
  timeoutMs?: number
  /** Cap on each of stdout and stderr, in characters. Default 1 Mi. */
  maxOutput?: number
  /** Default `fail`. */
  overflow?: Overflow
  onOutput?: (chunk: string, stream: 'stdout' | 'stderr') => void
  input?: string | Buffer
  uid?: number
  gid?: number
}

export class ExecTimeout extends Error {
  constructor(file: string, timeoutMs: number) {
    super(`${file} did not finish within ${Math.round(timeoutMs / 1000)} s`)
    this.name = 'ExecTimeout'
  }
}

class ExecOverflow extends Error {
  constructor(file: string, cap: number) {
    super(`${file} printed more than ${cap} characters`)
    this.name = 'ExecOverflow'
  }
}

const usualCap = 1 << 20

const collect = (
  stream: 'stdout' | 'stderr',
  child: ChildProcess,
  { maxOutput: cap = usualCap, onOutput }: ExecOptions,
  overflow: Overflow,
  onOverflow: () => void,
) => {
  let text = ''
  child[stream]?.setEncoding('utf8').on('data', (chunk: string) => {
    onOutput?.(chunk, stream)
    if (overflow === 'end') text = (text + chunk).slice(-cap)
    else if (text.length + chunk.length <= cap) text += chunk
    else if (overflow === 'front') text += chunk.slice(0, cap - text.length)
    else onOverflow()
  })
  return () => text
}

/**
 * Kills a child that leads its own process group, and everything it started. Not for one whose `close` event has fired.
 */
export const killGroup = (child: ChildProcess): void => {
  if (child.pid === undefined) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL')
  }
}

/**
 * Runs a program without a shell and waits until it exits. A code other than 0 is a result, not an error; rejects when
 * the program cannot be started, is aborted (with the signal's reason), exceeds `timeoutMs` (`ExecTimeout`) or prints
 * too much (`ExecOverflow`).
 */
export const exec = (file: string, args: readonly string[], options: ExecOptions): Promise<ExecResult> => {
  options.signal?.throwIfAborted()
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      shell: false,
      detached: true,
      cwd: options.cwd,
      env: options.env,
      uid: options.uid,
      gid: options.gid,
      stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    })
    let failure: unknown
    const fail = (reason: unknown) => {
      failure ??= reason
      killGroup(child)
    }
    const tooMuch = () => fail(new ExecOverflow(file, options.maxOutput ?? usualCap))
    const stdout = collect('stdout', child, options, options.overflow ?? 'fail', tooMuch)
    const stderr = collect('stderr', child, options, 'end', tooMuch)
    const onAbort = () => fail(options.signal?.reason)
    options.signal?.addEventListener('abort', onAbort, { once: true })
    const { timeoutMs } = options
    const timer =
      timeoutMs === undefined ? undefined : setTimeout(() => fail(new ExecTimeout(file, timeoutMs)), timeoutMs)
    const settle = () => {
      clearTimeout(timer)
      options.signal?.removeEventListener('abort', onAbort)
    }
    child.once('error', (error) => {
      settle()
      reject(failure ?? error)
    })
    child.once('close', (code, signal) => {
      settle()
      if (failure !== undefined) reject(failure)
      else resolve({ code: code ?? (signal === null ? 1 : 137), stdout: stdout(), stderr: stderr() })
    })
    child.stdin?.on('error', () => {}).end(options.input)
  })
}

/** Whether there is a program at this path that we may execute. */
export const isProgram = (path: string): Promise<boolean> =>
  Promise.all([stat(path), access(path, constants.X_OK)]).then(
    ([found]) => found.isFile(),
    () => false,
  )

/** The program of this name on PATH; null if there is none. */
export const findProgram = async (name: string): Promise<string | null> => {
  for (const folder of (process.env.PATH ?? '/usr/bin:/bin').split(delimiter).filter(isAbsolute)) {
    const path = join(folder, name)
    if (await isProgram(path)) return path
  }
  return null
}
