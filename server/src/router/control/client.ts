/** The control plane's client of the router: starts, adopts, restarts and calls it. */
import { readFile, rm } from 'node:fs/promises'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import type { Log } from '../../lib/log.ts'
import type { Counts } from '../counts.ts'
import type { ProcessNumbers } from '../processes/messages.ts'
import type { AnyRoute, KnownTls, Router } from '../router.ts'
import { wildcardOf } from '../table/wildcard.ts'
import { askHealth, askStop, type CallOptions, call, openCall, RouterAbsent } from './control-client.ts'
import { ensureRunning, type LaunchRequest } from './launch.ts'
import { type Health, pathsOf } from './protocol.ts'

export interface RouterOptions {
  dataDir: string
  host: string
  /** 0 means any free one, known after `start`. */
  port: number
  log: Pick<Log, 'debug' | 'info' | 'warn'>
  /** The Node program that runs the router. Default: the one that runs us. */
  nodePath?: string
  /** Addresses and networks of proxies whose X-Forwarded headers are trusted. */
  trustedProxies?: readonly string[]
  /** For HTTPS; absent: none; 0: any free one. */
  tlsPort?: number | undefined
  /** For the header Strict-Transport-Security; default 0: none. */
  hstsSeconds?: number
  /** The domain of the platform's host names, for which no service answers a certificate authority; default: none. */
  ownDomain?: string | undefined
  /** How many processes share the ports; default: one. */
  processes?: ProcessNumbers
}

/** Additional calls for tests and benchmarks. */
export interface ProcessRouter extends Router {
  health(): Promise<Health | null>
  counts(): Promise<Counts>
}

const endTimeoutMs = 25_000
const listenAgainMs = 100
const restartPausesMs = [0, 200, 1_000, 5_000] as const

/** Hosts to listen on that clients cannot connect to. */
const namesNoMachine: ReadonlySet<string> = new Set(['0.0.0.0', '::'])

const bracketed = (host: string): string => (host.includes(':') ? `[${host}]` : host)

const usualPorts = { http: 80, https: 443 }

const addressOf = (scheme: 'http' | 'https', name: string, port: number): string =>
  `${scheme}://${name}${port === usualPorts[scheme] ? '' : `:${port}`}`

const isAlive = async (pid: number): Promise<boolean> => {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  // Exited, but not yet reaped: once its parent has exited, the init process does that when it gets to it.
  const state = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  return !state.includes(') Z ')
}

const waitForEnd = async (pid: number): Promise<void> => {
  const deadline = performance.now() + endTimeoutMs
  while (await isAlive(pid)) {
    if (performance.now() > deadline) process.kill(pid, 'SIGKILL')
    await pause(5)
  }
}

export const createRouter = (options: RouterOptions): ProcessRouter => {
  const { dataDir, host, port, log } = options
  const paths = pathsOf(dataDir)
  const { controlSocket } = paths
  const wanted: LaunchRequest = {
    ...{ dataDir, host, port, paths },
    nodePath: options.nodePath ?? process.execPath,
    trustedProxies: options.trustedProxies ?? [],
    tlsPort: options.tlsPort ?? null,
    hstsSeconds: options.hstsSeconds ?? 0,
    ownDomain: options.ownDomain ?? '',
    processes: options.processes ?? { least: 1, most: 1 },
  }
  /** Host names that this process has given a certificate. */
  const encrypted = new Set<string>()
  let isWanted = false
  let isEnded = false
  let running: Health | undefined
  let starting: Promise<Health> | undefined

  const ensure = (): Promise<Health> => {
    starting ??= ensureRunning(wanted)
      .then((health) => {
        if (running?.pid !== health.pid) void watch(health)
        running = health
        return health
      })
      .finally(() => {
        starting = undefined
      })
    return starting
  }

  const restart = async (): Promise<void> => {
    for (let attempt = 0; isWanted; attempt++) {
      await pause(restartPausesMs[attempt] ?? 5_000, undefined, { ref: false })
      if (!isWanted) return
      try {
        const health = await ensure()
        log.info({ pid: health.pid }, 'the router is running again')
        return
      } catch (error) {
        log.warn({ err: error }, 'the router could not be restarted')
      }
    }
  }

  /**
   * An open call that ends with the process: its death is detected at once, and distinguished from an intended stop.
   */
  const watch = async ({ pid }: Health): Promise<void> => {
    let said = ''
    try {
      const answer = await openCall(controlSocket, 'GET', '/watch')
      answer.socket.unref()
      for await (const chunk of answer.setEncoding('utf8')) said += chunk
    } catch {
      // It ended without a message.
    }
    if (running?.pid === pid) running = undefined
    if (!isWanted || said.includes('stopping')) return
    log.warn({ pid }, 'the router exited unexpectedly')
    await restart()
  }

  const ask = async <Answer>(method: string, path: string, more?: CallOptions): Promise<Answer> => {
    try {
      return await call<Answer>(controlSocket, method, path, more)
    } catch (error) {
      if (!(error instanceof RouterAbsent) || !isWanted) throw error
      await ensure()
      return call<Answer>(controlSocket, method, path, more)
    }
  }

  /** Also while the router is down: it is called again as soon as it is up. */
  const listen = async (tell: (serviceId: string) => void): Promise<void> => {
    while (!isEnded) {
      try {
        const answer = await openCall(controlSocket, 'GET', '/wanted')
        answer.socket.unref()
        for await (const line of createInterface({ input: answer })) if (line !== '') tell(line)
      } catch {
        // It is down, or ended.
      }
      await pause(listenAgainMs, undefined, { ref: false })
    }
  }

  return {
    async start() {
      isWanted = true
      const { pid } = await ensure()
      log.debug({ pid, host, port: running?.port }, 'the router is ready')
    },
    async setService(serviceId, routes) {
      await ask('PUT', `/services/${encodeURIComponent(serviceId)}/routes`, { body: routes })
    },
    routes: () => ask<AnyRoute[]>('GET', '/routes'),
    drain: (targets, timeoutMs, signal) => ask('POST', '/drain', { body: { targets, timeoutMs }, signal }),
    async setTls(name, value) {
      await ask('PUT', `/tls/${encodeURIComponent(name)}`, { body: value })
      if (value.certificate === undefined) encrypted.delete(name)
      else encrypted.add(name)
    },
    async tls() {
      const known = await ask<Record<string, KnownTls>>('GET', '/tls')
      encrypted.clear()
      for (const [name, { isServed }] of Object.entries(known)) if (isServed) encrypted.add(name)
      return known
    },
    url: (name) =>
      encrypted.has(name) || encrypted.has(wildcardOf(name))
        ? addressOf('https', name, wanted.tlsPort || (running?.tlsPort ?? 0))
        : addressOf('http', name, port === 0 ? (running?.port ?? 0) : port),
    wanted: (tell) => void listen(tell),
    async idle(serviceIds, ms) {
      const idle = await ask<Record<string, number>>('GET', '/idle')
      return serviceIds.filter((id) => (idle[id] ?? -1) >= ms)
    },
    address: (streamPort) => `${namesNoMachine.has(host) ? 'localhost' : bracketed(host)}:${streamPort}`,
    health: () => askHealth(controlSocket),
    counts: () => ask<Counts>('GET', '/metrics'),
    async stop() {
      isWanted = false
      isEnded = true
      await starting?.catch(() => {})
      const health = await askHealth(controlSocket)
      if (health !== null) {
        const { finished } = await askStop(controlSocket)
        await finished
        await waitForEnd(health.pid)
      }
      await Promise.all([rm(controlSocket, { force: true }), rm(paths.pid, { force: true })])
    },
  }
}
