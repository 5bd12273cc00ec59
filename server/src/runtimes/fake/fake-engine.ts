/**
 * The state of a fake engine: instances that follow their script, their endpoints and logs, kept in a file if
 * requested.
 */
import { createSocket } from 'node:dgram'
import { EventEmitter, once } from 'node:events'
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { PlacedInstance as Instance } from '../blue-green/instances.ts'
import type { Mark } from '../marks.ts'
import type { Owned } from '../owned.ts'
import type { LogLine, RuntimeEvent, Workload } from '../runtime.ts'
import type { Behaviour } from './script.ts'

interface Endpoint {
  port: number
  close(): void
}

/** Answers every request on 127.0.0.1 with `body`, or hangs up while `silent` says so. Port 0 is any free one. */
const listenTcp = (port: number, body: string, silent: () => boolean): Promise<Endpoint> => {
  const server = createServer((request, answer) => {
    if (silent()) return void request.socket.destroy()
    answer.setHeader('content-type', 'application/json')
    request.resume()
    request.on('end', () => answer.end(body))
  })
  const close = () => {
    server.close()
    server.closeAllConnections()
  }
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => resolve({ port: (server.address() as AddressInfo).port, close }))
  })
}

/** The same for every datagram. */
const listenUdp = async (port: number, body: string, silent: () => boolean): Promise<Endpoint> => {
  const socket = createSocket('udp4')
  socket.on('message', (_, from) => silent() || socket.send(body, from.port, from.address))
  socket.bind({ port, address: '127.0.0.1', exclusive: true })
  await once(socket, 'listening')
  return { port, close: () => socket.close() }
}

const tries = 5

/** One port number, over TCP and, where asked for, over UDP too. */
const listen = async (port: number, udp: boolean, body: string, silent: () => boolean): Promise<Endpoint> => {
  for (let left = tries; ; left -= 1) {
    const tcp = await listenTcp(port, body, silent)
    if (!udp) return tcp
    try {
      const beside = await listenUdp(tcp.port, body, silent)
      return { port: tcp.port, close: () => void [tcp, beside].map((each) => each.close()) }
    } catch (error) {
      tcp.close()
      if (port !== 0 || left === 1) throw error
    }
  }
}

export interface FakeInstance {
  seen: Instance
  /** See `Workload.preStop`. */
  preStop?: string[] | undefined
  behaviour: Behaviour
  /** Internal ports that take datagrams. */
  udp: number[]
  /** What it would use if it were a program. */
  limits?: { cpuMillicores: number; memoryMb: number }
  /** See `Workload.record`. */
  record?: string | undefined
}

interface State {
  instances: FakeInstance[]
  environments: string[]
  /** `limitGb`: absent or null without a limit. */
  volumes: (Owned['volumes'][number] & { limitGb?: number | null; record?: string | undefined })[]
  /** Absent in the file of an earlier version. */
  marks?: (Mark & { scope: string })[]
}

const maxLines = 10_000

const load = (file: string | null): State => {
  try {
    if (file !== null) return JSON.parse(readFileSync(file, 'utf8')) as State
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
  return { instances: [], environments: [], volumes: [] }
}

const fileOf = (folder: string | undefined, ownerId: string): string | null => {
  if (folder === undefined) return null
  mkdirSync(folder, { recursive: true })
  return join(folder, `runtime-${ownerId}.json`)
}

type Tell = (seen: Instance, text: string) => void

/** A command in an instance: `say WORD…` logs the words, `fail CODE` ends with that code. Answers its code. */
export const play = (log: Tell, seen: Instance, [word, ...rest]: readonly string[]): number => {
  if (word === 'say') log(seen, rest.join(' '))
  return word === 'fail' ? Number(rest[0]) : 0
}

export const createFakeEngine = (ownerId: string, clock: Clock, folder: string | undefined) => {
  const file = fileOf(folder, ownerId)
  const state = load(file)
  const endpoints = new Map<string, Endpoint[]>()
  const lines = new Map<string, LogLine[]>()
  const closed = new AbortController()
  const news = new EventEmitter().setMaxListeners(0)

  const save = (): void => {
    if (file === null || closed.signal.aborted) return
    writeFileSync(`${file}.new`, JSON.stringify(state), { mode: 0o600 })
    renameSync(`${file}.new`, file)
  }

  const notify = ({ serviceId, revision, id }: Instance, kind: RuntimeEvent['kind']): void => {
    news.emit('event', { serviceId, revision, instanceId: id, kind } satisfies RuntimeEvent)
  }

  const log = ({ id, name, revision, serviceId }: Instance, text: string, stream: LogLine['stream'] = 'stdout') => {
    const line = { at: clock.now().toISOString(), text, stream, instance: name, revision }
    const kept = lines.get(id) ?? []
    kept.push(line)
    if (kept.length > maxLines) kept.shift()
    lines.set(id, kept)
    news.emit('line', serviceId, line)
  }

  const open = async ({ seen, behaviour, udp = [] }: FakeInstance, ports: Record<number, number>): Promise<void> => {
    const body = JSON.stringify({ service: seen.serviceId, revision: seen.revision, index: seen.index })
    const silent = () => behaviour.kind === 'never-ready' || seen.state !== 'running'
    for (const [internal, port] of Object.entries(ports)) {
      const endpoint = await listen(port, udp.includes(Number(internal)), body, silent)
      if (closed.signal.aborted) return endpoint.close()
      endpoints.set(seen.id, [...(endpoints.get(seen.id) ?? []), endpoint])
      seen.endpoints[Number(internal)] = { host: '127.0.0.1', port: endpoint.port }
    }
    seen.ports = Object.keys(seen.endpoints).map(Number)
  }

  const talk = async (seen: Instance): Promise<void> => {
    for (let number = 1; number <= 200 && state.instances.some((each) => each.seen === seen); number += 1) {
      if (number > 5) await clock.sleep(20, closed.signal)
      log(seen, `line ${number}`)
    }
  }

  const crash = (seen: Instance, exitCode: number, oomKilled: boolean): void => {
    Object.assign(seen, { state: 'restarting', exitCode, oomKilled, restarts: 3 })
    log(seen, oomKilled ? 'out of memory' : `ended with code ${exitCode}`, 'stderr')
    if (oomKilled) notify(seen, 'oom')
    notify(seen, 'died')
  }

  /** Runs the instance's script; slow parts continue in the background. */
  const live = ({ seen, behaviour }: FakeInstance): void => {
    const run = () => void Object.assign(seen, { state: 'running' })
    Object.assign(seen, { state: 'starting', startedAt: clock.now().toISOString() })
    notify(seen, 'started')
    log(seen, `started ${seen.name}`)
    if (behaviour.kind === 'crash') crash(seen, behaviour.exitCode, false)
    else if (behaviour.kind === 'oom') crash(seen, 137, true)
    else if (behaviour.kind === 'slow') clock.sleep(behaviour.ms, closed.signal).then(run, () => {})
    else run()
    if (behaviour.kind === 'talk') talk(seen).catch(() => {})
  }

  const restored = (async () => {
    for (const instance of state.instances) {
      const ports = Object.entries(instance.seen.endpoints).map(([internal, { port }]) => [internal, port])
      await open(instance, Object.fromEntries(ports))
      live(instance)
    }
  })()
  restored.catch(() => {})

  return {
    state,
    news,
    log,
    notify,
    save,
    restored,
    closed: closed.signal,
    /** Millicores that all instances of a service use together. */
    loads: new Map<string, number>(),
    /** New volumes get their sizes as limits. */
    limitsVolumes: true,
    of: (serviceId: string) => state.instances.filter(({ seen }) => seen.serviceId === serviceId),
    linesOf: ({ id }: Instance): LogLine[] => lines.get(id) ?? [],
    start: async (workload: Workload, index: number, name: string, behaviour: Behaviour): Promise<Instance> => {
      const { organizationId, environmentId, serviceId, revision, cpuMillicores, memoryMb } = workload
      const ids = { id: newId(), name, organizationId, environmentId, serviceId, revision, index }
      const life = { exitCode: null, oomKilled: false, restarts: 0, startedAt: null, ports: [], endpoints: {} }
      const udp = workload.ports.filter(({ protocol }) => protocol === 'UDP').map(({ internalPort }) => internalPort)
      const limits = { cpuMillicores, memoryMb }
      const { preStop, record } = workload
      const seen: Instance = { ...ids, state: 'created', ...life }
      const instance: FakeInstance = { behaviour, udp, limits, seen, record, preStop }
      state.instances.push(instance)
      await open(instance, Object.fromEntries(workload.ports.map(({ internalPort }) => [internalPort, 0])))
      live(instance)
      return instance.seen
    },
    remove: (instance: FakeInstance): void => {
      const { seen, preStop } = instance
      if (preStop !== undefined) play(log, seen, preStop)
      for (const endpoint of endpoints.get(seen.id) ?? []) endpoint.close()
      endpoints.delete(seen.id)
      lines.delete(seen.id)
      state.instances = state.instances.filter((each) => each !== instance)
      notify(seen, 'died')
      notify(seen, 'removed')
    },
    close: async (): Promise<void> => {
      closed.abort(new Error('the runtime is closed'))
      await restored.catch(() => {})
      for (const endpoint of [...endpoints.values()].flat()) endpoint.close()
    },
  }
}

export type FakeEngine = ReturnType<typeof createFakeEngine>
