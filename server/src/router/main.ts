/**
 * The router: a separate process that forwards requests, connections and datagrams to the instances that serve them.
 *
 * Promises: a change of the table is seen whole and by the next request; no request fails because of it; the table is
 * on disk before a change is confirmed; the control plane may come and go.
 * Does not know: services, deployments, containers, the database. A route is a host name, or a port, and addresses.
 * If the process dies: requests in progress are lost, the table is not; the next start serves it at once. A running
 * control plane restarts it automatically.
 */
import { chmod, mkdir, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { listenProblem } from '../lib/net/listen-errors.ts'
import { trustProxies } from './access/sources.ts'
import { createControl } from './control/control.ts'
import { hasFormerLeft, type Lock, takeLock } from './control/lock.ts'
import { exitCodes, type Health, PROTOCOL_VERSION, pathsOf } from './control/protocol.ts'
import { createHolds } from './hold/holds.ts'
import { createFront } from './http/front.ts'
import { createPorts } from './ports/ports.ts'
import { openTcpPort } from './ports/tcp.ts'
import { openUdpPort } from './ports/udp.ts'
import type { AnyRoute } from './router.ts'
import { createLiveTable } from './table/live-table.ts'
import { loadRoutes, saveRoutes } from './table/table-file.ts'
import { newCounts, type Traffic } from './table/traffic.ts'
import { createUpstreams } from './table/upstreams.ts'
import { openTlsBook } from './tls/book.ts'
import { createTlsListener } from './tls/listener.ts'

const graceMs = 20_000
const takeOverMs = 3_000
const reportsPerSecond = 5

const say = (message: string): void => {
  process.stdout.write(`${new Date().toISOString()} ${message}\n`)
}

/** The log has no size limit while the process runs, so lines that clients can cause are rate-limited. */
const limitLines = (): ((message: string) => void) => {
  let second = 0
  let lines = 0
  return (message) => {
    const now = Math.floor(performance.now() / 1000)
    lines = now === second ? lines + 1 : 1
    second = now
    if (lines <= reportsPerSecond) say(message)
  }
}

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      'data-dir': { type: 'string' },
      host: { type: 'string', default: '127.0.0.1' },
      port: { type: 'string', default: '8000' },
      'trusted-proxies': { type: 'string', default: '' },
      'tls-port': { type: 'string' },
      'hsts-seconds': { type: 'string', default: '0' },
      'takes-over': { type: 'boolean', default: false },
    },
  })
  const dataDir = values['data-dir']
  if (dataDir === undefined) throw new Error('--data-dir is missing')
  const trustedProxies = values['trusted-proxies'].split(',').filter((item) => item !== '')
  const wantedTlsPort = values['tls-port'] === undefined ? null : Number(values['tls-port'])
  const hstsSeconds = Number(values['hsts-seconds'])
  const place = { dataDir, host: values.host, port: Number(values.port), wantedTlsPort, hstsSeconds }
  return { ...place, trustedProxies, takesOver: values['takes-over'] }
}

const leave = (code: number, message: string): never => {
  say(message)
  process.exit(code)
}

/** Loaded, and ready to serve as soon as the previous one releases its port. */
const waitForLock = async (folder: string): Promise<Lock | null> => {
  process.send?.('waiting')
  const deadline = performance.now() + takeOverMs
  let taken: Lock | null = null
  for (;;) {
    taken ??= takeLock(folder)
    const isFree = taken !== null && (await hasFormerLeft(folder))
    if (isFree || performance.now() > deadline) return taken
    await pause(2)
  }
}

const { dataDir, host, port, wantedTlsPort, hstsSeconds, trustedProxies, takesOver } = readArguments()
const paths = pathsOf(dataDir)
await mkdir(paths.folder, { recursive: true, mode: 0o700 })
await chmod(paths.folder, 0o700)
const place = takesOver ? waitForLock : takeLock
const lock =
  (await place(await realpath(paths.folder))) ??
  leave(exitCodes.alreadyRunning, 'another router is already running here')

const upstreams = createUpstreams()
const onBroken = (error: unknown): void => say(`the table on disk cannot be read, starting empty: ${String(error)}`)
const report = limitLines()
const clients = new Set<Socket>()
const ports = createPorts(
  {
    TCP: (streamPort) => openTcpPort(traffic, clients, host, streamPort),
    UDP: (streamPort) => openUdpPort(traffic, host, streamPort),
  },
  report,
)
const save = (routes: readonly AnyRoute[]): Promise<void> => saveRoutes(paths.table, routes)
const holds = createHolds(report)
const table = createLiveTable(await loadRoutes(paths.table, onBroken), upstreams, save, ports, holds.settle)
const counts = newCounts()
const book = await openTlsBook(paths.tls, say)
const secure = wantedTlsPort === null ? undefined : { book, port: wantedTlsPort, hstsSeconds }
const traffic: Traffic = {
  ...{ table, upstreams, counts, holds, isTrusted: trustProxies(trustedProxies), report, stopping: false },
  ...(secure === undefined ? {} : { secure }),
}
const front = createFront(traffic)
const tls = createTlsListener(
  book,
  { http1: (socket) => front.accept(socket, false), http2: (socket) => front.accept(socket, true) },
  report,
)

const listen = async (on: Pick<typeof front, 'listen'>, wanted: number, setting: string): Promise<number> => {
  try {
    return await on.listen(host, wanted)
  } catch (error) {
    const problem = listenProblem(error, { host: 'SLIPWAY_ROUTER_HOST', port: setting })
    return leave(exitCodes.cannotListen, `the router cannot listen on ${host}:${wanted}: ${problem ?? String(error)}`)
  }
}

const httpPort = await listen(front, port, 'SLIPWAY_ROUTER_PORT')
if (secure !== undefined) secure.port = await listen(tls, secure.port, 'SLIPWAY_ROUTER_TLS_PORT')
await ports.openMissing()

const health: Health = {
  ...{ version: PROTOCOL_VERSION, pid: process.pid, host, port: httpPort, trustedProxies },
  ...{ tlsPort: secure?.port ?? null, hstsSeconds: secure?.hstsSeconds ?? 0 },
}

const finish = async (): Promise<void> => {
  await front.finish(graceMs)
  tls.end()
  for (const client of clients) client.destroy()
  const owner = await readFile(paths.pid, 'utf8').catch(() => '')
  if (owner.trim() === String(process.pid)) await rm(paths.pid, { force: true })
  say('ended')
  // Lets the response to the call that requested this go out first.
  setImmediate(() => process.exit(0))
}

let ending: { released: Promise<void>; finished: Promise<void> } | undefined
const stop = () => {
  if (ending !== undefined) return ending
  say('no longer accepting connections')
  ports.close()
  tls.close()
  holds.end()
  const released = front.close().then(() => {
    control.close()
    lock.close()
  })
  ending = { released, finished: released.then(finish) }
  return ending
}

const control = createControl({
  table,
  upstreams,
  book,
  holds,
  health: () => health,
  counts: () => ({ ...counts, rssBytes: process.memoryUsage.rss() }),
  stop,
})
process.on('SIGTERM', stop).on('SIGINT', stop)
// A failure of one connection must not end all others.
process.on('uncaughtException', (error) => {
  counts.internalErrors++
  report(`internal error: ${error.stack}`)
})

await writeFile(paths.pid, `${process.pid}\n`, { mode: 0o600 })
await control.listen(paths.controlSocket)
say(`process ${process.pid} listens on ${host}:${health.port}, ${table.routes().length} routes`)
if (process.send !== undefined) process.send('ready', () => process.disconnect?.())
