/**
 * The further processes of a router. Promises: a confirmed change is active in all of them, or they have ended; none
 * accepts connections before it has all data; one that dies is replaced; calls to the router reach all of them.
 */
import type { Server } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { Counts } from '../counts.ts'
import type { AnyRoute, Target } from '../router.ts'
import type { Serving, State } from '../serving.ts'
import type { TlsEntry } from '../tls/tls-store.ts'
import { judgeLoad, judgeSheds, noTrend } from './load.ts'
import { type Member, startMember } from './member.ts'
import type { Beginning, Order, ProcessNumbers } from './messages.ts'
import { pastOf, sumOf } from './sums.ts'

interface WorkersOptions {
  numbers: ProcessNumbers
  serving: Serving
  listening: { http: Server; https: Server | null }
  beginning(): Omit<Beginning, 'routes'>
  report(message: string): void
}

export interface Workers {
  /** Starts the minimum number, and checks the load from now on. Resolves when they accept. */
  start(): Promise<void>
  /** A change that is on disk; resolves when no process uses the former routes. */
  setRoutes(routes: readonly AnyRoute[]): Promise<void>
  setTls(host: string, entry: TlsEntry | null): Promise<void>
  /** How many requests to these are in progress in all processes, after waiting until there are none, or for the signal. */
  drain(targets: readonly Target[], timeoutMs: number, signal: AbortSignal): Promise<number>
  /** For each further process; services that it had no requests for are left out. */
  idle(): Promise<readonly Record<string, number>[]>
  counts(): Promise<Counts>
  /** As `Holds.listen`, for requests that wait in any process. */
  listen(tell: (serviceId: string) => void): () => void
  /** Resolves when none accepts connections. `ended`: when all have ended, each after `graceMs` at the latest. */
  close(graceMs: number): Promise<{ ended: Promise<unknown> }>
}

const lookMs = 1000
const startMs = 20_000
/** A process that ends so soon would not last longer the next time. */
const soonMs = 5000
const marginMs = 2000

const servicesOf = (routes: readonly AnyRoute[], ids: ReadonlySet<string>) => {
  const lists = new Map<string, AnyRoute[]>()
  for (const id of ids) lists.set(id, [])
  for (const route of routes) lists.get(route.serviceId)?.push(route)
  return lists
}

/** The services whose routes have changed, the most recently set ones last. */
export const changesBetween = (before: readonly AnyRoute[], after: readonly AnyRoute[]) => {
  const [had, has] = [new Set(before), new Set(after)]
  const ids = new Set<string>()
  for (const route of before) if (!has.has(route)) ids.add(route.serviceId)
  const fresh = new Set<string>()
  for (const route of after) if (!had.has(route)) fresh.add(route.serviceId)
  for (const id of fresh) ids.delete(id)
  for (const id of fresh) ids.add(id)
  return [...servicesOf(after, ids)]
}

/** Starts them, and replaces each that dies; adds and ends some as the load requires. */
const createMembers = (
  { numbers, serving, listening, beginning, report }: WorkersOptions,
  on: { wanted(serviceId: string): void; ended(member: Member): void; changed(): void },
) => {
  const members = new Set<Member>()
  let routes = serving.table.routes()
  let wanted = numbers.least
  let trend = noTrend
  let starting = 0
  let isClosing = false
  let looking: NodeJS.Timeout | undefined

  const accepting = (): Member[] => [...members].filter(({ accepts, isLeaving }) => accepts && !isLeaving)
  const startLater = (ms: number): void => void setTimeout(startMissing, ms)

  const onEnd = (member: Member, lifeMs: number): void => {
    members.delete(member)
    on.ended(member)
    on.changed()
    if (member.isLeaving || isClosing) return
    report(`process ${member.pid} ended unexpectedly`)
    startLater(lifeMs < soonMs ? lookMs : 0)
  }

  /** Sends it all data, in the tick in which it is added to the receivers of changes. */
  const introduce = (member: Member): Promise<unknown> => {
    members.add(member)
    const { http, https } = listening
    const begun = [
      member.ask({ kind: 'begin', beginning: { routes, ...beginning() } }, startMs),
      member.ask({ kind: 'accept', over: 'http' }, startMs, http),
      https === null ? null : member.ask({ kind: 'accept', over: 'https' }, startMs, https),
    ]
    on.changed()
    return Promise.all(begun)
  }

  const startOne = async (): Promise<void> => {
    const since = performance.now()
    const member = startMember(on.wanted)
    starting++
    const isReady = await member.ready
    starting--
    if (!isReady) return startLater(lookMs)
    void member.ended.then(() => onEnd(member, performance.now() - since))
    if (isClosing) return member.kill()
    await introduce(member)
    member.accepts = !member.hasEnded
  }

  const startMissing = async (): Promise<void> => {
    if (isClosing) return
    const missing = wanted - 1 - starting - [...members].filter(({ isLeaving }) => !isLeaving).length
    await Promise.all(Array.from({ length: Math.max(0, missing) }, startOne))
  }

  const look = (): void => {
    looking = setTimeout(look, lookMs)
    const others = accepting()
    const own = { ...serving.state(), busy: serving.busy() }
    // Processes that have just begun have not reported yet.
    if (others.length !== wanted - 1 || others.some(({ pulse }) => pulse === null)) return
    const said = [own, ...others.map(({ pulse }) => pulse!)]
    const judged = judgeLoad(trend, said, numbers)
    trend = judged.trend
    wanted += judged.change
    if (judged.change > 0) void startMissing()
    if (judged.change < 0) {
      const last = others.at(-1)!
      last.isLeaving = true
      void last.ask({ kind: 'leave' })
    }
    const [first, ...rest] = judgeSheds(said)
    serving.traffic.shed = first!
    rest.forEach((connections, at) => void (connections > 0 && others[at]!.ask({ kind: 'shed', connections })))
  }

  return {
    all: (): Member[] => [...members],
    accepting,
    /** For processes that begin from now on. */
    setRoutes(next: readonly AnyRoute[]) {
      const services = changesBetween(routes, next)
      routes = next
      return services
    },
    async start() {
      await startMissing()
      if (numbers.most > 1) look()
    },
    close() {
      isClosing = true
      clearTimeout(looking)
    },
  }
}

export const createWorkers = (options: WorkersOptions): Workers => {
  const { upstreams, parked, share, state } = options.serving
  const listeners = new Set<(serviceId: string) => void>()
  let past: State['counts'] | null = null

  const members = createMembers(options, {
    wanted(serviceId) {
      for (const tell of listeners) tell(serviceId)
    },
    ended({ pulse }) {
      if (pulse !== null) past = past === null ? pastOf(pulse.counts) : sumOf(past, pastOf(pulse.counts))
      // Its last requests are unknown: they may have just ended.
      upstreams.useAll()
    },
    changed() {
      share.processes = members.all().length + 1
      void askAll({ kind: 'share', processes: share.processes })
    },
  })
  const askAll = (order: Order, withinMs?: number): Promise<unknown[]> =>
    Promise.all(members.all().map((member) => member.ask(order, withinMs)))
  const answersOf = async <Answer>(order: Order): Promise<Answer[]> =>
    (await askAll(order)).filter((answer) => answer !== null) as Answer[]

  const drainOnce = async (targets: readonly Target[], timeoutMs: number, signal: AbortSignal): Promise<number> => {
    const [own, others] = await Promise.all([
      upstreams.drain(targets, signal),
      askAll({ kind: 'drain', targets, timeoutMs }, timeoutMs + marginMs),
    ])
    return others.reduce<number>((sum, left) => sum + Number(left ?? 0), own)
  }

  return {
    start: () => members.start(),
    async setRoutes(next) {
      await askAll({ kind: 'routes', services: members.setRoutes(next) })
    },
    async setTls(host, entry) {
      await askAll({ kind: 'tls', host, entry })
    },
    async drain(targets, timeoutMs, signal) {
      const until = performance.now() + timeoutMs
      const ended = AbortSignal.abort()
      for (;;) {
        const left = await drainOnce(targets, Math.max(0, until - performance.now()), signal)
        if (members.all().length === 0 || signal.aborted || left > 0) return left
        // One may have begun in the meantime, while another process was waited for.
        if ((await drainOnce(targets, 0, ended)) === 0) return 0
      }
    },
    idle: () => answersOf<Record<string, number>>({ kind: 'idle' }),
    async counts() {
      const states = [state(), ...(await answersOf<State>({ kind: 'state' }))]
      const counts = states.map((each) => each.counts)
      return {
        ...(past === null ? counts : [...counts, past]).reduce(sumOf),
        rssBytes: states.reduce((sum, { rssBytes }) => sum + rssBytes, 0),
        processes: [process.pid, ...members.accepting().map(({ pid }) => pid)],
      }
    },
    listen(tell) {
      listeners.add(tell)
      const stop = parked.listen(tell)
      void askAll({ kind: 'wanted' })
      return () => {
        listeners.delete(tell)
        stop()
      }
    },
    async close(graceMs) {
      members.close()
      await askAll({ kind: 'close', graceMs })
      const end = async (member: Member): Promise<void> => {
        await Promise.race([member.ended, pause(graceMs + marginMs, undefined, { ref: false })])
        member.kill()
      }
      return { ended: Promise.all(members.all().map(end)) }
    },
  }
}
