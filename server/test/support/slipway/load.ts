/** Sixteen clients that never stop asking: fast, slow, POST and keep-alive requests, and one websocket. */
import type { TestContext } from 'node:test'
import { Agent, request } from 'undici'
import WebSocket from 'ws'

export interface LoadReport {
  requests: number
  failures: string[]
  /** Versions seen, in order of first sight. */
  versions: string[]
  /** Longest time between two answers of any client, in milliseconds. */
  longestGapMs: number
  websocketReconnects: number
}

export interface Load {
  /** Ends the load and answers what it saw. */
  stop(): Promise<LoadReport>
  report(): LoadReport
}

type Ask = () => Promise<string>

/**
 * `host` is the service's name at the router on `port` of loopback; `websocket` false leaves the websocket out; the
 * load ends with the test `t` at the latest.
 */
export const startLoad = (
  port: number,
  host: string,
  options: { clients?: number; websocket?: boolean; t?: TestContext } = {},
): Load => {
  const { t } = options
  const report: LoadReport = { requests: 0, failures: [], versions: [], longestGapMs: 0, websocketReconnects: 0 }
  const url = `http://127.0.0.1:${port}`
  const agent = new Agent({ connections: 32, keepAliveTimeout: 30_000 })
  let running = true
  let lastMs = performance.now()

  const saw = (version: string): void => {
    const now = performance.now()
    report.longestGapMs = Math.max(report.longestGapMs, now - lastMs)
    lastMs = now
    report.requests += 1
    if (!report.versions.includes(version)) report.versions.push(version)
  }
  const ask = async (path: string, options: { method?: 'POST'; body?: string; reset?: boolean } = {}) => {
    const answer = await request(url + path, { dispatcher: agent, ...options, headers: { host } })
    const text = await answer.body.text()
    if (answer.statusCode !== 200) throw new Error(`${answer.statusCode} ${text.slice(0, 80)}`)
    if (options.body !== undefined && text !== options.body) throw new Error('the body came back changed')
    return String(answer.headers['x-version'] ?? text.trim())
  }
  const body = 'x'.repeat(20_000)
  const kinds: Ask[] = [
    () => ask('/'),
    () => ask('/slow'),
    () => ask('/', { method: 'POST', body }),
    () => ask('/', { reset: true }),
  ]
  const client = async (every: Ask): Promise<void> => {
    while (running)
      await every().then(saw, (error: Error) => report.failures.push(`${new Date().toISOString()} ${error.message}`))
  }
  const websocket = async (): Promise<void> => {
    while (running) {
      await converse(url.replace('http', 'ws'), host, () => running, saw).catch((error: Error) =>
        report.failures.push(`websocket: ${error.message}`),
      )
      report.websocketReconnects += 1
    }
  }
  const clients = Array.from({ length: options.clients ?? 16 }, (_, index) => client(kinds[index % kinds.length]!))
  if (options.websocket !== false) clients.push(websocket())
  const end = async (): Promise<LoadReport> => {
    await Promise.all(clients)
    await agent.close()
    return report
  }
  let ended: Promise<LoadReport> | undefined
  const stop = (): Promise<LoadReport> => {
    running = false
    ended ??= end()
    return ended
  }
  // A test that fails ends its load.
  t?.after(stop)
  return { report: () => report, stop }
}

/** Sends and awaits echoes until it is stopped or the application says goodbye; anything else is a failure. */
const converse = (url: string, host: string, running: () => boolean, saw: (version: string) => void): Promise<void> =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { headers: { host } })
    socket.on('open', () => socket.send('ping'))
    socket.on('message', (data) => {
      saw(String(data).split(' ')[0]!)
      if (running()) socket.send('ping')
      else socket.close(1000)
    })
    socket.on('close', (code) => {
      if ([1000, 1001, 1012].includes(code)) resolve()
      else reject(new Error(`closed with ${code}`))
    })
    socket.on('error', reject)
  })
