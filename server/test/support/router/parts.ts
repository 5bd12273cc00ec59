/** Parts of the tests: programs that answer, a router inside this process, raw connections. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type RequestListener, request, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { createRouter, type ProcessRouter, type RouterOptions } from '../../../src/router/control/client.ts'
import { newCounts } from '../../../src/router/counts.ts'
import { createFront, defaultLimits, type Limits } from '../../../src/router/http/front.ts'
import { createParked, type ParkLimits, usualParkLimits } from '../../../src/router/parked/parked.ts'
import { createPorts } from '../../../src/router/ports/ports.ts'
import { openTcpPort } from '../../../src/router/ports/tcp.ts'
import { type FlowLimits, openUdpPort } from '../../../src/router/ports/udp.ts'
import type { AnyRoute, Route, StreamRoute, Target } from '../../../src/router/router.ts'
import { createShares } from '../../../src/router/shares.ts'
import { trustProxies } from '../../../src/router/sources.ts'
import { createLiveTable, type LiveTable } from '../../../src/router/traffic/live-table.ts'
import type { Traffic } from '../../../src/router/traffic/traffic.ts'
import { createUpstreams } from '../../../src/router/traffic/upstreams.ts'
import { until as untilTrue } from '../until.ts'

export const deadlineMs = 10_000

/** Waits for a condition that another process or the kernel brings about. */
export const until = (condition: () => boolean | Promise<boolean>): Promise<true> =>
  untilTrue(condition, { timeoutMs: deadlineMs, what: String(condition) })

export interface Program {
  server: Server
  target: Target
  close(): void
}

export const serve = async (t: TestContext, handler: RequestListener): Promise<Program> => {
  const server = createServer(handler).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = (): void => {
    server.close()
    server.closeAllConnections()
  }
  t.after(close)
  return { server, target: { host: '127.0.0.1', port: (server.address() as AddressInfo).port }, close }
}

/** A port without a listener. */
export const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

export const route = (targets: Target[], more: Partial<Route> = {}): Route => ({
  ...{ host: 'a.localhost', serviceId: 'a', protocol: 'HTTP', state: 'up' },
  ...more,
  targets,
})

export const stream = (port: number, targets: Target[], more: Partial<StreamRoute> = {}): StreamRoute => ({
  ...{ port, serviceId: 'a', protocol: 'TCP', state: 'up' },
  ...more,
  targets,
})

export interface Inside {
  port: number
  traffic: Traffic
  table: LiveTable
}

/** A router without a process of its own and without a disk. */
export const openInside = async (
  t: TestContext,
  routes: AnyRoute[],
  more: {
    limits?: Partial<Limits>
    trusted?: string[]
    flowLimits?: FlowLimits
    parked?: Partial<ParkLimits>
    /** For connections; default: as many as they like. */
    descriptors?: number
  } = {},
): Promise<Inside> => {
  const upstreams = createUpstreams()
  const clients = new Set<Socket>()
  const ports = createPorts(
    {
      TCP: (streamPort) => openTcpPort(traffic, clients, '127.0.0.1', streamPort),
      UDP: (streamPort) => openUdpPort(traffic, '127.0.0.1', streamPort, more.flowLimits),
    },
    () => {},
  )
  const report = (): void => {}
  const parked = createParked(report, { ...usualParkLimits, ...more.parked })
  const table = createLiveTable(routes, upstreams, async () => {}, ports, parked.settle)
  const isTrusted = trustProxies(more.trusted ?? [])
  const shares = createShares(more.descriptors ?? 65_536)
  const traffic: Traffic = {
    ...{ table, upstreams, parked, shares, isTrusted, report },
    ...{ counts: newCounts(), stopping: false, shed: 0 },
  }
  const front = createFront(traffic, { ...defaultLimits, ...more.limits })
  const port = await front.listen('127.0.0.1', 0)
  await ports.openMissing()
  t.after(async () => {
    ports.close()
    for (const client of clients) client.destroy()
    await front.close()
    await front.finish(0)
  })
  return { port, traffic, table }
}

export interface Answer {
  status: number
  headers: IncomingMessage['headers']
  trailers: NodeJS.Dict<string>
  body: string
}

export interface Asking {
  host?: string
  method?: string
  path?: string
  headers?: Record<string, string | string[]>
  body?: string
}

export const readAnswer = async (answer: IncomingMessage): Promise<Answer> => {
  let body = ''
  for await (const chunk of answer.setEncoding('latin1')) body += chunk
  return { status: answer.statusCode ?? 0, headers: answer.headers, trailers: answer.trailers, body }
}

/** One request on a connection of its own. */
export const ask = async (port: number, asking: Asking = {}): Promise<Answer> => {
  const { host = 'a.localhost', method = 'GET', path = '/', headers, body } = asking
  const out = request({ host: '127.0.0.1', port, method, path, agent: false, headers: { host, ...headers } })
  out.end(body)
  const [answer] = (await once(out, 'response')) as [IncomingMessage]
  return readAnswer(answer)
}

/** Sends bytes as they are and collects what comes back until the other side closes. */
export const sendRaw = async (port: number, bytes: string): Promise<string> => {
  const socket = connect(port, '127.0.0.1')
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk
  })
  socket.on('error', () => {})
  socket.write(bytes)
  await once(socket, 'close')
  return text
}

/** Resolves with all received so far as soon as it matches. */
export const readUntil = (socket: Socket, pattern: RegExp): Promise<string> => {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  let text = ''
  const onData = (chunk: Buffer): void => {
    text += chunk.toString('latin1')
    if (!pattern.test(text)) return
    socket.off('data', onData)
    resolve(text)
  }
  socket.on('data', onData).once('close', () => reject(new Error(`closed after ${JSON.stringify(text)}`)))
  return promise
}

export const quiet: RouterOptions['log'] = { debug() {}, info() {}, warn() {} }

/** Whatever router runs there at the end of the test is ended before the folder goes. */
export const makeDataDir = async (t: TestContext): Promise<string> => {
  const dataDir = await mkdtemp(join(tmpdir(), 'router-'))
  t.after(async () => {
    await createRouter({ dataDir, host: '127.0.0.1', port: 0, log: quiet }).stop()
    await rm(dataDir, { recursive: true, force: true })
  })
  return dataDir
}

/** Of each router, where a test does not say it: all of them hold for several as for one. */
const count = Number(process.env.TEST_ROUTER_PROCESSES ?? 1)
export const processes = { least: count, most: count }

/** A router process of this test, which ends with its data directory. */
export const startProcess = async (
  t: TestContext,
  more: Partial<RouterOptions> = {},
): Promise<{ router: ProcessRouter; port: number; dataDir: string }> => {
  const dataDir = more.dataDir ?? (await makeDataDir(t))
  const router = createRouter({
    ...{ dataDir, host: '127.0.0.1', port: 0, log: quiet, processes },
    ...more,
  })
  await router.start()
  return { router, port: Number(new URL(router.url('x')).port), dataDir }
}

export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
