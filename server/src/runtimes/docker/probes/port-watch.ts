/**
 * While an instance is waited for: finds which ports its program listens on, so that a wrong port is reported within
 * seconds and not at the deadline. Read from the container's own network namespace: the kernel's table if its
 * processes run on this machine, else the output of a command in the container. Unknown facts are not reported.
 */
import { readFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance } from '../../blue-green/instances.ts'
import type { Progress, Workload } from '../../runtime.ts'
import type { ContainerDetail, Containers } from '../containers.ts'
import { usualPort } from '../describe.ts'
import { execIn } from '../exec.ts'
import { explainPort, type Listener, mayBeIpv6Only, type PortFinding, parseListeners } from './listeners.ts'

const everyMs = 2000
/** How long a program runs before its missing port is reported. */
const quietMs = 6000
/** For services without a probe of their own: how long to wait for a program that only listens elsewhere. */
const patienceMs = { loopback: 30_000, ipv6: 30_000, elsewhere: 60_000, nothing: Number.POSITIVE_INFINITY }
const execMs = 3000
const connectMs = 1000
const tableBytes = 256 * 1024

const readTable = async (pid: number): Promise<string> => {
  const read = (name: string): Promise<string> => readFile(`/proc/${pid}/net/${name}`, 'utf8')
  // Without IPv6 there is no second one.
  return (await read('tcp')) + (await read('tcp6').catch(() => ''))
}

/** Null if its processes are not on this machine: a process id alone proves nothing. */
const readHere = async ({ Id, State }: ContainerDetail): Promise<string | null> => {
  if (!(State.Pid > 0)) return null
  const holds = async (): Promise<boolean> => (await readFile(`/proc/${State.Pid}/cgroup`, 'utf8')).includes(Id)
  try {
    const table = (await holds()) ? await readTable(State.Pid) : null
    // The process may have ended, and its id may be another one's by now.
    return (await holds()) ? table : null
  } catch {
    return null
  }
}

const readInside = async (engine: Engine, { Id }: ContainerDetail, outer: AbortSignal): Promise<string | null> => {
  const signal = AbortSignal.any([outer, AbortSignal.timeout(execMs)])
  try {
    const { output } = await execIn(engine, Id, ['cat', '/proc/net/tcp', '/proc/net/tcp6'], signal, tableBytes)
    // A table has a head, also an empty one; an image without this command prints something else.
    return output.includes('local_address') ? output : null
  } catch (error) {
    outer.throwIfAborted()
    if (isEngineError(error) || signal.aborted) return null
    throw error
  }
}

interface Listening {
  listeners: Listener[]
  /** Ports that the image names, other than the service's. */
  exposed: number[]
}

/** The ports on which a container's program listens; null if they are unknown. */
type ReadListening = (id: string, workload: Workload, signal: AbortSignal) => Promise<Listening | null>

const exposedBy = ({ Config }: ContainerDetail, { ports }: Workload): number[] =>
  Object.keys(Config.ExposedPorts ?? {})
    .filter((key) => key.endsWith('/tcp'))
    .map((key) => Number.parseInt(key, 10))
    .filter((port) => !ports.some(({ internalPort }) => internalPort === port))

const createListening =
  (engine: Engine, containers: Pick<Containers, 'inspect'>): ReadListening =>
  async (id, workload, signal) => {
    const detail = await containers.inspect(id, signal)
    if (!detail.State.Running) return null
    const table = (await readHere(detail)) ?? (await readInside(engine, detail, signal))
    return table === null ? null : { listeners: parseListeners(table), exposed: exposedBy(detail, workload) }
  }

/** The port that has to answer; null for a program that listens nowhere, or has a command as its probe. */
const askedPort = (workload: Workload): number | null => {
  const check = workload.readiness?.check
  if (check !== undefined) return check.kind === 'exec' ? null : check.port
  const port = usualPort(workload)
  return port === undefined || port.protocol === 'UDP' ? null : port.internalPort
}

export const awaited = (workload: Workload): string => {
  const check = workload.readiness?.check
  if (check?.kind === 'exec') return 'the command of its readiness probe'
  if (check?.kind === 'http') return `${check.scheme} ${check.path} on port ${check.port}`
  const port = askedPort(workload)
  if (port === null) return 'it to stay running for 1 s'
  const isHttp = check === undefined && usualPort(workload)?.protocol === 'HTTP'
  return isHttp ? `HTTP / on port ${port}` : `TCP port ${port}`
}

type Placed = Pick<PlacedInstance, 'id' | 'endpoints'>

interface Watched {
  clock: Clock
  workload: Workload
  instance: Placed
  /** Monotonic: since when it runs; null while it is down. */
  upSinceMs(): number | null
  progress: Progress
}

/** Whether nothing listens there, as the machine reports at once. */
const isRefused = ({ host, port }: { host: string; port: number }, signal: AbortSignal): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect({ host, port, signal, timeout: connectMs })
    const end = (refused: boolean) => (): void => {
      socket.destroy()
      resolve(refused)
    }
    socket.once('connect', end(false)).once('timeout', end(false))
    socket.once('error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED')())
  })

/** A sentence as the end of another one. */
const lower = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1)

const find = async (
  read: ReadListening,
  workload: Workload,
  { id, endpoints }: Placed,
  signal: AbortSignal,
): Promise<PortFinding | null> => {
  const port = askedPort(workload)
  const listening = port === null ? null : await read(id, workload, signal)
  if (listening === null) return null
  const { listeners, exposed } = listening
  const endpoint = endpoints[port!]
  const isAsked = endpoint !== undefined && mayBeIpv6Only(port!, listeners)
  return explainPort(port!, listeners, exposed, isAsked && (await isRefused(endpoint, signal)))
}

/**
 * Reports the ports on which the program listens instead, each finding once. Resolves to the finding if the service
 * has no probe that says how long to wait, and the program has listened elsewhere for so long that waiting is useless.
 */
const watch = async (
  read: ReadListening,
  { clock, workload, instance, upSinceMs, progress }: Watched,
  signal: AbortSignal,
): Promise<PortFinding> => {
  let last: { finding: PortFinding; sinceMs: number; told: boolean } | null = null
  for (;;) {
    await clock.sleep(everyMs, signal)
    const startedMs = upSinceMs()
    const nowMs = clock.monotonicMs()
    const ageMs = startedMs === null ? 0 : nowMs - startedMs
    if (ageMs < quietMs - everyMs) continue
    const finding = await find(read, workload, instance, signal)
    if (finding === null) last = null
    else if (last?.finding.text !== finding.text) last = { finding, sinceMs: nowMs, told: false }
    if (last === null || ageMs < quietMs) continue
    if (!last.told) progress(last.finding.text, 'warning')
    last.told = true
    const patience = patienceMs[last.finding.kind]
    if (workload.readiness === null && ageMs >= patience && nowMs - last.sinceMs >= patience / 2) return last.finding
  }
}

/** The ports of a program are only a help: if they cannot be read, the wait continues without them. */
export const createPortWatch = (engine: Engine, containers: Pick<Containers, 'inspect'>) => {
  const read = createListening(engine, containers)
  return {
    /** Why a port does not answer now, as the end of a sentence; null if something listens, or nothing is known. */
    why: async (workload: Workload, instance: Placed, signal: AbortSignal): Promise<string | null> => {
      const finding = await find(read, workload, instance, signal).catch(() => null)
      return finding === null ? null : lower(finding.text)
    },
    /** Resolves with why the service will not become ready; null if that is unknown, or the wait has ended. */
    watch: async (watched: Watched, signal: AbortSignal): Promise<string | null> => {
      if (askedPort(watched.workload) === null) return null
      const finding = await watch(read, watched, signal).catch(() => null)
      return finding === null ? null : lower(finding.text)
    },
  }
}
