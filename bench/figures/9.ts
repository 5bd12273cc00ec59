import { fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { connect } from 'node:net'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createRouter } from '../../server/src/router/control/client.ts'
import { isInstalled, type PeerName, startPeer } from '../../server/test/support/router/peers.ts'
import type { Bench } from '../bench.ts'
import type { Figure, Sample, Side } from '../figure.ts'
import { freePort } from '../free-port.ts'
import { cpuMicros, median, residentMb } from '../measure.ts'

const clients = 32
const requests = 100_000
const bursts = 12
const burstRequests = 10_000
const waiting = 1000
const host = 'bench.localhost'
const cores = availableParallelism()
const silent = { debug() {}, info() {}, warn() {} }

interface Proxy {
  port: number
  pid: number
}

const startProgram = async (bench: Bench): Promise<number> => {
  const program = fileURLToPath(new URL('../floors/hello.ts', import.meta.url))
  const child = fork(program, [], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  bench.onClose(async () => void child.kill())
  const [line] = (await once(child.stdout!, 'data')) as [Buffer]
  return Number(line)
}

/** Clients that send so many requests together; rejects if one of them fails. */
const load = async (bench: Bench, port: number, count: number) => {
  const generator = await bench.load()
  const target = { origin: `http://127.0.0.1:${port}`, path: '/', method: 'GET', headers: { host }, clients } as const
  const { failed, ms, p99Ms, causes } = await generator.run({ ...target, expected: 200 }, count)
  if (failed > 0) throw new Error(`${failed} requests failed: ${causes.join('; ')}`)
  return { perSecond: (1000 * count) / ms, p99Ms }
}

const measureAt = async (bench: Bench, { port, pid }: Proxy): Promise<Sample> => {
  const before = cpuMicros([pid])
  const { perSecond } = await load(bench, port, requests)
  return { cpu: (cpuMicros([pid]) - before) / requests, perSecond }
}

/** With as many processes as there are cores, which the load generator and the program use too. */
const rateOfAll = async (bench: Bench, port: number): Promise<number> => (await load(bench, port, requests)).perSecond

/** What a connection that has had one request, and waits for the next, keeps in memory. */
const memoryOf = async (port: number, pid: number): Promise<number> => {
  const before = residentMb([pid])
  const sockets = await Promise.all(
    Array.from({ length: waiting }, async () => {
      const socket = connect(port, '127.0.0.1')
      socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      await once(socket, 'data')
      return socket
    }),
  )
  const kilobytes = ((residentMb([pid]) - before) * 1000) / waiting
  for (const socket of sockets) socket.destroy()
  return kilobytes
}

/** The p99 of each proxy: the median of short bursts by turns, so that what else the machine does meets both alike. */
const tailsOf = async (bench: Bench, proxies: readonly Proxy[]): Promise<number[]> => {
  const seen: number[][] = proxies.map(() => [])
  for (let burst = 0; burst < bursts; burst++)
    for (const [index, { port }] of proxies.entries()) seen[index]!.push((await load(bench, port, burstRequests)).p99Ms)
  return seen.map(median)
}

/** One alone has a session of its own, as our router has; those that share a port (`at`) share one, as our processes do. */
const openPeer = async (bench: Bench, name: PeerName, target: number, at?: number) => {
  if (!isInstalled(name)) throw new Error(`${name} is not installed`)
  const wanted = { port: at ?? (await freePort()), target, silenceMs: 60_000, inOwnSession: at === undefined }
  const peer = await startPeer(name, wanted)
  bench.onClose(() => peer.stop())
  return peer
}

const openPeers = async (bench: Bench): Promise<Side> => {
  const target = await startProgram(bench)
  const nginx = await openPeer(bench, 'nginx', target)
  const port = await freePort()
  for (let core = 0; core < cores; core++) await openPeer(bench, 'nginx', target, port)
  const haproxy = isInstalled('haproxy') ? await openPeer(bench, 'haproxy', target) : null
  return {
    async measure() {
      const one = await measureAt(bench, nginx)
      const sample = { ...one, perSecondOfAll: await rateOfAll(bench, port) }
      if (haproxy === null) return sample
      const { cpu } = await measureAt(bench, haproxy)
      return { ...sample, haproxyCpu: cpu! }
    },
  }
}

const openRouter = async (bench: Bench, target: number, count: number) => {
  const dataDir = mkdtempSync(join(bench.folder, 'router-'))
  const processes = { least: count, most: count }
  const router = createRouter({ dataDir, host: '127.0.0.1', port: 0, log: silent, processes })
  bench.onClose(() => router.stop())
  await router.start()
  const targets = [{ host: '127.0.0.1', port: target }]
  await router.setService('bench', [{ host, serviceId: 'bench', protocol: 'HTTP', state: 'up', targets }])
  return (await router.health())!
}

const openOurs = async (bench: Bench): Promise<Side> => {
  const target = await startProgram(bench)
  const router = await openRouter(bench, target, 1)
  const nginx = await openPeer(bench, 'nginx', target)
  const all = await openRouter(bench, target, cores)
  return {
    async measure(round) {
      const [p99Ms, nginxP99Ms] = await tailsOf(bench, [router, nginx])
      const one = { ...(await measureAt(bench, router)), p99Ms: p99Ms!, nginxP99Ms: nginxP99Ms! }
      const sample = { ...one, perSecondOfAll: await rateOfAll(bench, all.port) }
      return round === 1 ? { ...sample, memory: await memoryOf(router.port, router.pid) } : sample
    },
  }
}

/** A request with an answer of 13 bytes through one process of the router, beside nginx and HAProxy from Debian. */
export const figure: Figure<Bench> = {
  id: '9',
  rows: [
    { id: '9', what: 'CPU of a proxied request, nginx', unit: 'us', goal: { kind: 'ratio', value: 1.5 }, key: 'cpu' },
    {
      ...{ id: '9-haproxy', what: 'CPU of a proxied request, HAProxy', unit: 'us', goal: null, key: 'cpu' },
      floorKey: 'haproxyCpu',
    },
    {
      ...{ id: '9-p99', what: 'p99 of 32 keep-alive clients, nginx', unit: 'ms', key: 'p99Ms' },
      ...{ goal: { kind: 'ratio', value: 1.2 }, floorKey: 'nginxP99Ms', byTurns: true },
    },
    { id: '9-rate', what: 'requests of 32 clients, nginx', unit: 'requests/s', goal: null, key: 'perSecond' },
    {
      ...{ id: '9-all', what: 'the same with a process a core, nginx', unit: 'requests/s', key: 'perSecondOfAll' },
      goal: { kind: 'ratioAtLeast', value: 0.8 },
    },
    {
      ...{ id: '9-memory', what: 'memory of a waiting connection', unit: 'kB', key: 'memory', floorKey: null },
      goal: { kind: 'atMost', value: 16 },
    },
  ],
  floor: openPeers,
  ours: openOurs,
}
