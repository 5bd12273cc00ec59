/** A whole Slipway as a process of its own, the way a user runs it: for tests that kill it, and for the bench. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exec } from '../../../src/lib/exec.ts'
import { leftoversOf, ownerOf } from '../docker/leftovers.ts'
import { until } from '../until.ts'

export const main = new URL('../../../src/main.ts', import.meta.url).pathname
const resetProgram = new URL('../../../src/programs/reset.ts', import.meta.url).pathname
export const adminToken = 'test-admin-token-0123456789'

// The bodies of a public API, read by tests that check their fields.
// biome-ignore lint/suspicious/noExplicitAny: a test says what it expects of an answer by using it
export type Json = any

export interface Answer {
  status: number
  body: Json
  headers: Headers
}

export interface Slipway {
  url: string
  routerPort: number
  dataDir: string
  pid(): number
  /** Sends a request with the admin token. */
  api(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>
  /** Everything the process has printed so far. */
  output(): string
  /** Calls back with all that it prints from now on, as it comes; answers a function that ends this. */
  onOutput(listener: (text: string) => void): () => void
  start(): Promise<void>
  kill(signal: NodeJS.Signals): Promise<void>
  /** Ends it, its router and its database, and removes what it made on the engine; rejects when something is left. */
  remove(): Promise<void>
}

/** Those of this process that were prepared and not yet removed. */
export const openSlipways = new Set<Slipway>()

const isFree = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)))
  })

const given = new Set<number>()

/** Above the ports that Linux assigns by itself: no other program gets it before it is used. */
export const freePort = async (): Promise<number> => {
  for (;;) {
    const port = 61_000 + Math.floor(Math.random() * 4500)
    if (given.has(port) || !(await isFree(port))) continue
    given.add(port)
    return port
  }
}

export interface SlipwayOptions {
  fake?: boolean
  env?: Record<string, string>
  /** Arguments of Node that start the server. Default: its bundle; its sources with SLIPWAY_TEST_SOURCES=1. */
  server?: readonly string[]
}

/** Those that start it as `npm start` does, from its bundle, which is made when it is missing. */
export const bundledServer = async (): Promise<string[]> => {
  const { SLIPWAY_TEST_SERVER: made } = process.env
  if (made?.includes('bundle-')) return made.split('\n')
  const program = new URL('../../../../bin/server', import.meta.url).pathname
  const { code, stdout, stderr } = await exec('bash', [program], { env: { PATH: process.env.PATH ?? '' } })
  if (code !== 0 || !stdout.includes('bundle-')) throw new Error(`no bundle: ${stderr}`)
  return stdout.trim().split('\n')
}

const usualServer = (): Promise<string[]> | string[] =>
  process.env.SLIPWAY_TEST_SOURCES === '1' ? [main] : bundledServer()

/** Prepares data directory and ports; `start()` starts it. */
export const prepareSlipway = async (options: SlipwayOptions = {}): Promise<Slipway> => {
  const server = options.server ?? (await usualServer())
  const dataDir = mkdtempSync(join(tmpdir(), 'slipway-test-'))
  const port = await freePort()
  const routerPort = await freePort()
  const url = `http://127.0.0.1:${port}`
  const env: Record<string, string> = {
    PATH: process.env.PATH ?? '',
    HOME: process.env.HOME ?? '/root',
    SLIPWAY_PORT: String(port),
    SLIPWAY_ROUTER_PORT: String(routerPort),
    SLIPWAY_DATA_DIR: dataDir,
    SLIPWAY_ADMIN_TOKEN: adminToken,
    SLIPWAY_SAMPLE: 'off',
    SLIPWAY_RATE_LIMIT: '0',
    SLIPWAY_OUTBOUND_ALLOW: 'loopback',
    SLIPWAY_ENGINE_IMAGES: '*',
    SLIPWAY_LOG_LEVEL: 'warn',
    ...(process.env.DOCKER_HOST === undefined ? {} : { DOCKER_HOST: process.env.DOCKER_HOST }),
    ...options.env,
  }
  const flags = options.fake === true ? ['--fake'] : []
  let child: ChildProcess | undefined
  let printed = ''
  const listeners = new Set<(text: string) => void>()

  const ended = (): boolean => child === undefined || child.exitCode !== null || child.signalCode !== null
  const kill = async (signal: NodeJS.Signals): Promise<void> => {
    if (ended()) return
    const exit = new Promise((resolve) => child!.once('exit', resolve))
    child!.kill(signal)
    await exit
  }
  const slipway: Slipway = {
    url,
    routerPort,
    dataDir,
    pid: () => child!.pid!,
    output: () => printed,
    onOutput(listener) {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    kill,
    async start() {
      child = spawn(process.execPath, [...server, ...flags], {
        env,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      for (const stream of [child.stdout!, child.stderr!])
        stream.setEncoding('utf8').on('data', (text: string) => {
          printed = (printed + text).slice(-1_000_000)
          for (const listener of listeners) listener(text)
        })
      await until(
        async () => {
          if (ended()) throw new Error(`slipway ended with ${child!.exitCode}:\n${printed.slice(-4000)}`)
          return (await fetch(`${url}/readyz`).catch(() => null))?.ok
        },
        { timeoutMs: 90_000, what: 'slipway to be ready' },
      )
    },
    async api(method, path, body, headers = {}) {
      const answer = await fetch(url + path, {
        method,
        headers: {
          authorization: `Token ${adminToken}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        body: body === undefined ? undefined : JSON.stringify(body),
      })
      const text = await answer.text()
      return { status: answer.status, headers: answer.headers, body: text === '' ? null : JSON.parse(text) }
    },
    async remove() {
      openSlipways.delete(slipway)
      await kill('SIGTERM')
      // The tests that bring their own database clean it up themselves.
      const hasOwn = options.fake !== true && env.DATABASE_URL === undefined
      const owner = hasOwn ? await ownerOf(dataDir) : null
      const result = await exec(process.execPath, [resetProgram, '--yes', ...flags], { env, timeoutMs: 60_000 })
      if (result.code !== 0) throw new Error(`reset failed: ${result.stdout}${result.stderr}`)
      await rm(dataDir, { recursive: true, force: true })
      const left = owner === null ? [] : await leftoversOf(owner)
      if (left.length > 0) throw new Error(`left on the engine: ${left.join(', ')}`)
    },
  }
  openSlipways.add(slipway)
  return slipway
}
