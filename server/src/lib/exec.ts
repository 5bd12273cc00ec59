import { type ChildProcess, spawn } from 'node:child_process'

/** How one program ended. Output past the cap is dropped from the front, so that the last lines remain. */
export interface ExecResult {
  code: number
  stdout: string
  stderr: string
}

export interface ExecOptions {
  cwd?: string
  /** The whole environment of the child; nothing is inherited. */
  env: Record<string, string>
  signal?: AbortSignal
  /** Kills the child and rejects with `ExecTimeout` after this many milliseconds. */
  timeoutMs?: number
  /** Cap on each of stdout and stderr, in characters. Default 1 Mi. */
  maxOutput?: number
  onOutput?: (chunk: string, stream: 'stdout' | 'stderr') => void
  input?: string | Buffer
  uid?: number
  gid?: number
}

export class ExecTimeout extends Error {
  constructor(file: string, timeoutMs: number) {
    super(`${file} did not end within ${Math.round(timeoutMs / 1000)} s`)
    this.name = 'ExecTimeout'
  }
}

const collect = (stream: 'stdout' | 'stderr', child: ChildProcess, options: ExecOptions) => {
  const cap = options.maxOutput ?? 1 << 20
  let text = ''
  child[stream]?.setEncoding('utf8').on('data', (chunk: string) => {
    text = (text + chunk).slice(-cap)
    options.onOutput?.(chunk, stream)
  })
  return () => text
}

/** Ends the child and everything it started: it leads a process group of its own. */
const killGroup = (child: ChildProcess): void => {
  if (child.pid === undefined || child.exitCode !== null) return
  try {
    process.kill(-child.pid, 'SIGKILL')
  } catch {
    child.kill('SIGKILL')
  }
}

/**
 * Runs a program without a shell and waits for its end. A code other than 0 is a result, not an error; rejects when
 * the program cannot be started, is aborted (with the signal's reason) or passes `timeoutMs` (`ExecTimeout`).
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
    const stdout = collect('stdout', child, options)
    const stderr = collect('stderr', child, options)
    let failure: unknown
    const fail = (reason: unknown) => {
      failure ??= reason
      killGroup(child)
    }
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
