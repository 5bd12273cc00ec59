import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { createRouter, type ProcessRouter } from '../../server/src/router/control/client.ts'
import type { Route } from '../../server/src/router/router.ts'
import { createTestCa } from '../../server/test/support/tls/test-ca.ts'
import type { Bench } from '../bench.ts'
import type { Figure, Goal, Sample, Side } from '../figure.ts'
import { cpuMicros, residentMb } from '../measure.ts'
import { once as onlyOnce } from '../subject.ts'
import { sendRequests, shakeHands, type TlsPlace, whileAsking } from '../tls-load.ts'

const clients = 32
const requests = 10_000
const handshakes = 1000
const certificates = 1000
const switches = 20
const host = 'bench.localhost'
const silent = { debug() {}, info() {}, warn() {} }

const authority = onlyOnce(createTestCa)

interface Program {
  child: ChildProcess
  https: number
  http: number
  ca: string
}

const startProgram = async (bench: Bench): Promise<Program> => {
  const folder = mkdtempSync(join(bench.folder, 'tls-'))
  const ca = await authority()
  const pair = await ca.issue(host)
  const files = [join(folder, 'certificate.pem'), join(folder, 'key.pem')] as const
  writeFileSync(files[0], pair.certificate)
  writeFileSync(files[1], pair.key, { mode: 0o600 })
  const program = fileURLToPath(new URL('../floors/https.ts', import.meta.url))
  const child = fork(program, files, { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  bench.onClose(async () => void child.kill())
  const [line] = (await once(child.stdout!, 'data')) as [Buffer]
  return { child, ca: ca.certificate, ...(JSON.parse(String(line)) as { https: number; http: number }) }
}

const measureOn = async (place: TlsPlace, pids: number[]): Promise<Sample> => {
  const { perSecond, p50Ms } = await sendRequests(place, clients, requests)
  const single = await sendRequests(place, 1, requests / 10)
  const before = cpuMicros(pids)
  await shakeHands(place, handshakes)
  return { perSecond, p50Ms, singleMs: single.p50Ms, handshake: (cpuMicros(pids) - before) / handshakes }
}

const routeTo = (port: number): Route => ({
  ...{ host, serviceId: 'bench', protocol: 'HTTP', state: 'up' },
  targets: [{ host: '127.0.0.1', port }],
})

/** Each time to the other program, whose predecessor has answered all it was asked. */
const switchUnderLoad = (router: ProcessRouter, ports: readonly number[]) => async (): Promise<void> => {
  for (let turn = 1; turn <= switches; turn++) {
    await router.setService('bench', [routeTo(ports[turn % 2]!)])
    const former = [{ host: '127.0.0.1', port: ports[(turn + 1) % 2]! }]
    await router.drain(former, 10_000, new AbortController().signal)
  }
}

/** What so many more certificates cost once a client has come for each of them. */
const memoryOf = async (router: ProcessRouter, place: TlsPlace, pid: number): Promise<number> => {
  const ca = await authority()
  const pair = await Promise.all(Array.from({ length: certificates }, (_, index) => ca.issue(`c${index}.${host}`)))
  const before = residentMb([pid])
  for (const [index, each] of pair.entries()) await router.setTls(`c${index}.${host}`, each)
  for (let index = 0; index < certificates; index++) await shakeHands({ ...place, host: `c${index}.${host}` }, 1)
  return residentMb([pid]) - before
}

const openRouter = async (bench: Bench): Promise<Side> => {
  const programs = await Promise.all([startProgram(bench), startProgram(bench)])
  const ports = programs.map(({ http }) => http)
  const ca = await authority()
  const dataDir = mkdtempSync(join(bench.folder, 'router-'))
  const router = createRouter({ dataDir, host: '127.0.0.1', port: 0, tlsPort: 0, log: silent })
  bench.onClose(() => router.stop())
  await router.start()
  await router.setService('bench', [routeTo(ports[0]!)])
  await router.setTls(host, await ca.issue(host))
  const { pid, tlsPort } = (await router.health())!
  const place = { port: tlsPort!, host, ca: ca.certificate }
  return {
    async measure(round) {
      const sample = await measureOn(place, [pid])
      const { failed } = await whileAsking(place, 16, switchUnderLoad(router, ports))
      return { ...sample, failed, ...(round === 1 ? { memory: await memoryOf(router, place, pid) } : {}) }
    },
  }
}

const none: Goal = { kind: 'atMost', value: 0 }

/** HTTPS with an ECDSA key. The floor is Node's own https server with the handler that stands behind the router. */
export const figure: Figure<Bench> = {
  id: '10',
  rows: [
    { id: '10', what: 'TLS requests, 32 keep-alive clients', unit: 'requests/s', goal: null, key: 'perSecond' },
    { id: '10-latency', what: 'TLS request, one client, median', unit: 'ms', goal: null, key: 'singleMs' },
    { id: '10-shake', what: 'CPU of a full handshake', unit: 'us', goal: null, key: 'handshake' },
    { id: '10-memory', what: 'memory of 1,000 certificates', unit: 'MB', goal: null, key: 'memory', floorKey: null },
    {
      ...{ id: '10-failed', what: 'failed in 20 switches, h1 and h2', unit: 'requests', goal: none, key: 'failed' },
      ...{ floorKey: null, over: 'max' },
    },
  ],
  async floor(bench) {
    const { child, https, ca } = await startProgram(bench)
    return { measure: () => measureOn({ port: https, host, ca }, [child.pid!]) }
  },
  ours: openRouter,
}
