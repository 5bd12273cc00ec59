/** Ensures that exactly one router of the current version runs on a data directory. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, open, readFile, rename, stat } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { ProcessNumbers } from '../processes/messages.ts'
import { askHealth, askStop, RouterAbsent } from './control-client.ts'
import { exitCodes, type Health, type Paths, PROTOCOL_VERSION } from './protocol.ts'

export interface LaunchRequest {
  dataDir: string
  host: string
  /** 0: any free one. */
  port: number
  trustedProxies: readonly string[]
  /** Null: none; 0: any free one. */
  tlsPort: number | null
  hstsSeconds: number
  ownDomain: string
  processes: ProcessNumbers
  nodePath: string
  paths: Paths
}

const deadlineMs = 30_000
const lookAgainMs = 20
const maxLogBytes = 1 << 20
/** The maximum length of a unix socket's path, the smaller of Linux and macOS, without the terminating zero. */
const maxSocketPathBytes = 103

/** Buffers are short-lived: a small young generation keeps the process small at the same speed. */
const nodeFlags = ['--max-semi-space-size=8']

const program = fileURLToPath(new URL('../main.ts', import.meta.url))

const openLog = async ({ paths }: LaunchRequest) => {
  const size = await stat(paths.log).then(
    (file) => file.size,
    () => 0,
  )
  if (size > maxLogBytes) await rename(paths.log, `${paths.log}.1`)
  return open(paths.log, 'a', 0o600)
}

const lastLine = async (path: string): Promise<string> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  return (text.trimEnd().split('\n').at(-1) ?? '').replace(/^\S+Z /, '')
}

const argumentsFor = (
  { dataDir, host, port, trustedProxies, tlsPort, hstsSeconds, ownDomain, processes }: LaunchRequest,
  takesOver: boolean,
): string[] => [
  program,
  ...(takesOver ? ['--takes-over'] : []),
  ...['--data-dir', dataDir, '--host', host, '--port', String(port)],
  ...['--trusted-proxies', trustedProxies.join(',')],
  ...['--processes', `${processes.least}-${processes.most}`],
  ...(tlsPort === null ? [] : ['--tls-port', String(tlsPort), '--hsts-seconds', String(hstsSeconds)]),
  ...(tlsPort === null ? [] : ['--own-domain', ownDomain]),
]

/** Its own session, no inherited environment: it must not see the control plane's secrets. */
const spawnDetached = async (wanted: LaunchRequest, takesOver: boolean) => {
  const log = await openLog(wanted)
  const { paths, nodePath } = wanted
  const child = spawn(nodePath, [...nodeFlags, ...argumentsFor(wanted, takesOver)], {
    detached: true,
    cwd: paths.folder,
    env: { NODE_COMPILE_CACHE: paths.compileCache },
    stdio: ['ignore', log.fd, log.fd, 'ipc'],
  })
  await log.close()
  return child
}

/** Resolves when the process sends this message; earlier messages are not lost. */
const said = (child: ChildProcess, word: string): Promise<[string]> =>
  new Promise((resolve) => child.on('message', (message) => message === word && resolve([word])))

/** Stops the running one, which yields to a process that waits for it; false if another one already has its place. */
const stopOther = async (wanted: LaunchRequest): Promise<boolean> => {
  const health = await askHealth(wanted.paths.controlSocket)
  if (health === null) return true
  if (fits(health, wanted)) return false
  try {
    await askStop(wanted.paths.controlSocket)
  } catch (error) {
    // Another process stopped it since it answered.
    if (!(error instanceof RouterAbsent)) throw error
  }
  return true
}

/** True if it serves; false if another one was faster. One that takes over is loaded before the other is stopped. */
const launch = async (wanted: LaunchRequest, takesOver: boolean): Promise<boolean> => {
  const child = await spawnDetached(wanted, takesOver)
  const ended = once(child, 'exit') as Promise<[number | null]>
  const ready = Promise.race([said(child, 'ready'), ended])
  if (takesOver) {
    await Promise.race([said(child, 'waiting'), ended])
    if (!(await stopOther(wanted))) {
      child.kill()
      await ended
      return false
    }
  }
  const result = await ready
  child.channel?.unref()
  child.unref()
  if (result[0] === 'ready') {
    ended.catch(() => {})
    return true
  }
  if (result[0] === exitCodes.alreadyRunning) return false
  const line = await lastLine(wanted.paths.log)
  throw new Error(result[0] === exitCodes.cannotListen ? line : `the router did not start: ${line}`)
}

const areSamePort = (had: number | null, wanted: number | null): boolean =>
  wanted === 0 ? had !== null : had === wanted

const fits = (
  health: Health,
  { host, port, trustedProxies, tlsPort, hstsSeconds, ownDomain, processes }: LaunchRequest,
): boolean =>
  health.version === PROTOCOL_VERSION &&
  health.host === host &&
  (port === 0 || health.port === port) &&
  areSamePort(health.tlsPort, tlsPort) &&
  health.hstsSeconds === (tlsPort === null ? 0 : hstsSeconds) &&
  health.ownDomain === (tlsPort === null ? '' : ownDomain) &&
  health.processes.least === processes.least &&
  health.processes.most === processes.most &&
  health.trustedProxies.join() === trustedProxies.join()

const checkPath = ({ paths }: LaunchRequest): void => {
  const length = Buffer.byteLength(paths.controlSocket)
  if (length > maxSocketPathBytes)
    throw new Error(
      `the data directory's path is ${length - maxSocketPathBytes} bytes too long for the router's socket`,
    )
}

/**
 * Adopts the running router, or starts one. One that listens elsewhere or has another version yields its port to one
 * that is already loaded, and finishes its requests while the new one serves; in between, connections are refused for a
 * few milliseconds. Rejects with one sentence.
 */
export const ensureRunning = async (wanted: LaunchRequest): Promise<Health> => {
  checkPath(wanted)
  await mkdir(wanted.paths.folder, { recursive: true, mode: 0o700 })
  const deadline = performance.now() + deadlineMs
  while (performance.now() < deadline) {
    const health = await askHealth(wanted.paths.controlSocket)
    if (health !== null && fits(health, wanted)) return health
    if (!(await launch(wanted, health !== null))) await pause(lookAgainMs)
  }
  throw new Error('the router did not start in time')
}
