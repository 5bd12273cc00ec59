/**
 * The router: a separate process that forwards requests, connections and datagrams to the instances that serve them.
 *
 * Promises: a change of the table takes effect as a whole and for the next request; no request fails because of it;
 * the table is on disk before a change is confirmed; the control plane may restart at any time. Does not know:
 * services, deployments, containers, the database. A route is a host name, or a port, and addresses. If the process
 * dies: requests in progress are lost, the table is not; the next start serves it at once. A running control plane
 * restarts it automatically.
 */
import { chmod, mkdir, readFile, realpath, rm, stat, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { listenProblem } from '../lib/net/listen-errors.ts'
import { createControl } from './control/control.ts'
import { hasFormerLeft, type Lock, takeLock } from './control/lock.ts'
import { exitCodes, type Health, PROTOCOL_VERSION, pathsOf } from './control/protocol.ts'
import { createPorts } from './ports/ports.ts'
import { openTcpPort } from './ports/tcp.ts'
import { openUdpPort } from './ports/udp.ts'
import { createWorkers } from './processes/workers.ts'
import { createServing, limitLines, say } from './serving.ts'
import { loadRoutes, saveRoutes } from './table/table-file.ts'
import { openTlsStore } from './tls/tls-store.ts'

const graceMs = 20_000
const takeOverMs = 3_000
const listenAgainMs = 20

const readArguments = () => {
  const { values } = parseArgs({
    options: {
      'data-dir': { type: 'string' },
      host: { type: 'string', default: '127.0.0.1' },
      port: { type: 'string', default: '8000' },
      'trusted-proxies': { type: 'string', default: '' },
      'tls-port': { type: 'string' },
      'hsts-seconds': { type: 'string', default: '0' },
      'own-domain': { type: 'string', default: '' },
      processes: { type: 'string', default: '1-1' },
      'takes-over': { type: 'boolean', default: false },
    },
  })
  const dataDir = values['data-dir']
  if (dataDir === undefined) throw new Error('--data-dir is missing')
  const trustedProxies = values['trusted-proxies'].split(',').filter((item) => item !== '')
  const wantedTlsPort = values['tls-port'] === undefined ? null : Number(values['tls-port'])
  const hstsSeconds = Number(values['hsts-seconds'])
  const ownDomain = values['own-domain']
  const place = { dataDir, host: values.host, port: Number(values.port), wantedTlsPort, hstsSeconds, ownDomain }
  const [least = 1, most = 1] = values.processes.split('-').map(Number)
  return { ...place, trustedProxies, numbers: { least, most }, takesOver: values['takes-over'] }
}

const hasFile = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )

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

const { dataDir, host, port, wantedTlsPort, hstsSeconds, ownDomain, trustedProxies, numbers, takesOver } =
  readArguments()
const paths = pathsOf(dataDir)
await mkdir(paths.folder, { recursive: true, mode: 0o700 })
await chmod(paths.folder, 0o700)
const place = takesOver ? waitForLock : takeLock
const lock =
  (await place(await realpath(paths.folder))) ??
  leave(exitCodes.alreadyRunning, 'another router is already running here')

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
const tlsStore = await openTlsStore(paths.tls, say, (name, entry) => workers.setTls(name, entry))
const secure = wantedTlsPort === null ? undefined : { tlsStore, port: wantedTlsPort, hstsSeconds, ownDomain }
const serving = createServing({
  ...{ routes: await loadRoutes(paths.table, onBroken), ports, tlsStore, secure, trustedProxies, report },
  async save(routes) {
    await saveRoutes(paths.table, routes)
    await workers.setRoutes(routes)
  },
})
const { traffic, table, upstreams, parked, front, tls } = serving
const workers = createWorkers({
  ...{ numbers, serving, report },
  listening: { http: front.listening, https: secure === undefined ? null : tls.listening },
  beginning: () => ({
    trustedProxies,
    tls:
      secure === undefined
        ? null
        : {
            ...{ folder: paths.tls, port: secure.port, hstsSeconds, ownDomain, entries: tlsStore.entries() },
            ticketKeys: tls.ticketKeys().toString('base64'),
          },
  }),
})

/** Further processes of a router that was killed end by themselves, perhaps a moment later than it. */
const deadline = (await hasFile(paths.pid)) ? performance.now() + takeOverMs : 0

const listen = async (on: Pick<typeof front, 'listen'>, wanted: number, setting: string): Promise<number> => {
  try {
    return await on.listen(host, wanted)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE' && performance.now() < deadline) {
      await pause(listenAgainMs)
      return listen(on, wanted, setting)
    }
    const problem = listenProblem(error, { host: 'SLIPWAY_ROUTER_HOST', port: setting })
    return leave(exitCodes.cannotListen, `the router cannot listen on ${host}:${wanted}: ${problem ?? String(error)}`)
  }
}

const httpPort = await listen(front, port, 'SLIPWAY_ROUTER_PORT')
if (secure !== undefined) secure.port = await listen(tls, secure.port, 'SLIPWAY_ROUTER_TLS_PORT')
await ports.openMissing()
await workers.start()

const health: Health = {
  ...{ version: PROTOCOL_VERSION, pid: process.pid, host, port: httpPort, trustedProxies, processes: numbers },
  ...{ tlsPort: secure?.port ?? null, hstsSeconds: secure?.hstsSeconds ?? 0, ownDomain: secure?.ownDomain ?? '' },
}

const finish = async (ended: Promise<unknown>): Promise<void> => {
  await Promise.all([front.finish(graceMs), ended])
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
  parked.end()
  const closed = Promise.all([workers.close(graceMs), front.close()]).then(([{ ended }]) => {
    control.close()
    lock.close()
    return { ended }
  })
  ending = { released: closed.then(() => {}), finished: closed.then(({ ended }) => finish(ended)) }
  return ending
}

const control = createControl({ table, upstreams, tlsStore, workers, health: () => health, stop })
process.on('SIGTERM', stop).on('SIGINT', stop)

await writeFile(paths.pid, `${process.pid}\n`, { mode: 0o600 })
await control.listen(paths.controlSocket)
say(`process ${process.pid} listens on ${host}:${health.port}, ${table.routes().length} routes`)
if (process.send !== undefined) process.send('ready', () => process.disconnect?.())
