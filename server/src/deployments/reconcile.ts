/**
 * Makes what runs equal to what should run: at start, every minute, and soon after something happened to an instance
 * behind our back. Takes no input but the wanted state; leaves alone whatever a running deployment works on.
 */
import { type AnyRoute, isStreamRoute } from '../router/router.ts'
import type { Instance, Workload } from '../runtimes/runtime.ts'
import type { EngineParts } from './engine-parts.ts'
import { holdImage } from './make-image.ts'
import { readAllOutsidePorts } from './outside-ports.ts'
import { createImageSweep } from './pulled-images.ts'
import { keepPulse } from './pulse.ts'
import { openRelease } from './releases.ts'
import { type Outlets, readAllHosts, routesFor, routeWhatCan } from './routes.ts'
import { quietly, sweepTasks, sweepUnknown } from './sweeps.ts'

interface Wanted {
  serviceId: string
  environmentId: string
  desired: string
  releaseId: string | null
  revision: string | null
  instances: number
  /** Of the current release. */
  ports: Workload['ports']
  busy: boolean
  runningState: string
  /** Runs tasks: it has no instances, and whoever runs them shows how it is. */
  hasTask: boolean
}

interface Reconciler {
  /** Looks at one service soon: something about it changed that no deployment brings. */
  soon(serviceId: string): void
  stop(): Promise<void>
}

const everyMs = 60_000
const settleMs = 300
const watchPauseMs = 2000

const readWanted = (parts: EngineParts): Promise<Wanted[]> =>
  parts.database.query<Wanted>(
    `select s.service_id as "serviceId", s.environment_id as "environmentId", s.desired,
       s.current_release_id as "releaseId", r.deployment_id as revision,
       coalesce((r.workload ->> 'instances')::int, 0) as instances,
       coalesce(r.workload -> 'ports', '[]') as ports, s.running_state as "runningState",
       coalesce(r.workload ? 'task', false) as "hasTask",
       exists (select from deployment d where d.environment_id = s.environment_id and d.state = 'RUNNING') as busy
     from service_state s left join release r on r.id = s.current_release_id`,
  )

/** Revisions whose deployment has ended: only these may be swept. */
const endedRevisions = async (parts: EngineParts, revisions: readonly string[]): Promise<Set<string>> => {
  const open = await parts.database.query<{ id: string }>(
    `select id from deployment where id = any($1) and state in ('QUEUED', 'RUNNING')`,
    [revisions],
  )
  const running = new Set(open.map((row) => row.id))
  return new Set(revisions.filter((revision) => !running.has(revision)))
}

const groupBy = <T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> => {
  const groups = new Map<string, T[]>()
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item])
  return groups
}

const isUp = (instance: Instance): boolean => instance.state === 'running'

const runningStateOf = (wanted: Wanted, current: readonly Instance[]): string => {
  if (wanted.desired !== 'RUNNING') return 'STOPPED'
  if (current.length === 0) return wanted.instances === 0 ? 'RUNNING' : 'ERROR'
  if (current.every(isUp)) return 'RUNNING'
  return current.some(isUp) ? 'WARNING' : 'ERROR'
}

/** Starts what is missing of the current release; the engine's own restart policy looks after what only crashed. */
const restore = async (parts: EngineParts, wanted: Wanted, signal: AbortSignal): Promise<Instance[]> => {
  const opened = await openRelease(parts.database, parts.sealer, wanted.releaseId!)
  if (opened === null) return []
  parts.log.info({ serviceId: wanted.serviceId }, 'instances are missing: starting them again')
  await holdImage(parts, opened.release, () => {}, signal)
  return parts.runtime.apply(opened.workload, () => {}, signal)
}

/** Instances of versions that are neither current nor being deployed. */
const sweep = async (
  parts: EngineParts,
  serviceId: string,
  keep: string | null,
  signal: AbortSignal,
): Promise<void> => {
  parts.log.info({ serviceId }, 'instances of another version are left over: removing them')
  await parts.runtime.retire(serviceId, keep, 10_000, signal)
}

const isMissing = (wanted: Wanted, current: readonly Instance[]): boolean => {
  const alive = current.filter((instance) => !['missing', 'exited', 'created'].includes(instance.state))
  return wanted.desired === 'RUNNING' && wanted.releaseId !== null && alive.length < wanted.instances
}

const reconcileService = async (
  parts: EngineParts,
  wanted: Wanted,
  instances: readonly Instance[],
  signal: AbortSignal,
): Promise<Instance[]> => {
  const keep = wanted.desired === 'RUNNING' ? wanted.revision : null
  const others = instances.filter((instance) => instance.revision !== keep)
  let current = instances.filter((instance) => instance.revision === keep)
  if (isMissing(wanted, current)) current = await restore(parts, wanted, signal)
  const ended = await endedRevisions(
    parts,
    others.map((instance) => instance.revision),
  )
  if (others.length > 0 && others.every((instance) => ended.has(instance.revision)))
    await sweep(parts, wanted.serviceId, keep, signal)
  return current
}

const saveRunningState = async (parts: EngineParts, wanted: Wanted, state: string): Promise<void> => {
  if (wanted.runningState === state || (wanted.hasTask && wanted.desired === 'RUNNING')) return
  await parts.database.query('update service_state set running_state = $2 where service_id = $1', [
    wanted.serviceId,
    state,
  ])
}

const routeState = (wanted: Wanted): 'up' | 'stopped' => (wanted.desired === 'RUNNING' ? 'up' : 'stopped')

/** Tells the router only what it does not know yet. */
const point = async (
  parts: EngineParts,
  serviceId: string,
  routes: AnyRoute[],
  known: readonly AnyRoute[],
): Promise<void> => {
  const text = (all: readonly AnyRoute[]) => JSON.stringify(all.map(comparable).sort())
  if (text(routes) === text(known)) return
  for (const { message } of await routeWhatCan(parts.router, serviceId, routes))
    parts.log.warn({ serviceId }, `${message}; it is tried again in a minute`)
}

const comparable = (route: AnyRoute): string =>
  JSON.stringify([
    route.protocol,
    isStreamRoute(route) ? route.port : route.host,
    route.state,
    route.targets.map((target) => `${target.host}:${target.port}`),
  ])

/** One pass over one service, unless a deployment works on its environment. */
const passService = async (
  parts: EngineParts,
  wanted: Wanted,
  instances: readonly Instance[],
  outlets: Outlets,
  known: readonly AnyRoute[],
  signal: AbortSignal,
): Promise<void> => {
  const release = parts.environmentLock.tryAcquire(wanted.environmentId)
  if (release === null || wanted.busy) return release?.()
  try {
    const current = await reconcileService(parts, wanted, instances, signal)
    await saveRunningState(parts, wanted, runningStateOf(wanted, current))
    await point(parts, wanted.serviceId, routesFor(outlets, wanted.ports, routeState(wanted), current), known)
  } finally {
    release()
  }
}

const passServices = async (
  parts: EngineParts,
  all: readonly Wanted[],
  running: readonly Instance[],
  routed: Map<string, AnyRoute[]>,
  signal: AbortSignal,
): Promise<void> => {
  const instances = groupBy(running, (each) => each.serviceId)
  const hosts = groupBy(await readAllHosts(parts.database), (host) => host.serviceId)
  const outside = groupBy(await readAllOutsidePorts(parts.database), (port) => port.serviceId)
  for (const wanted of all) {
    const of = <T>(groups: Map<string, T[]>): T[] => groups.get(wanted.serviceId) ?? []
    if (wanted.desired === 'NONE' && of(instances).length === 0) continue
    const outlets = { hosts: of(hosts), outside: of(outside) }
    await passService(parts, wanted, of(instances), outlets, of(routed), signal).catch((error: unknown) => {
      signal.throwIfAborted()
      parts.log.warn({ err: error, serviceId: wanted.serviceId }, 'reconcile of a service failed')
    })
  }
}

// In both passes, what runs is read before what should run: a service or a version that comes in between is then
// unknown to the first reading, never an orphan of the second.

const passAll = async (
  parts: EngineParts,
  sweepImages: (signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): Promise<void> => {
  const owned = await parts.runtime.owned()
  const routed = groupBy(await parts.router.routes(), (route) => route.serviceId)
  const all = await readWanted(parts)
  const staying = owned.instances.filter(({ taskId }) => taskId === undefined)
  await passServices(parts, all, staying, routed, signal)
  await quietly(parts, {}, signal, () => sweepTasks(parts, owned, signal))
  await sweepUnknown(parts, owned, new Set(all.map((wanted) => wanted.serviceId)), routed.keys(), signal)
  await sweepImages(signal)
}

const passOne = async (parts: EngineParts, serviceId: string, signal: AbortSignal): Promise<void> => {
  const running = await parts.runtime.observe([serviceId])
  const routed = groupBy(await parts.router.routes(), (route) => route.serviceId)
  const all = (await readWanted(parts)).filter((wanted) => wanted.serviceId === serviceId)
  await passServices(parts, all, running, routed, signal)
}

/** Begins at once, in the background: a start does not wait for the engine. */
export const startReconciler = (parts: EngineParts): Reconciler => {
  const controller = new AbortController()
  const { signal } = controller
  const due = new Set<string>()
  const sweepImages = createImageSweep(parts)
  let turn: Promise<void> = Promise.resolve()

  const inTurn = (work: () => Promise<void>): Promise<void> =>
    work().catch((error: unknown) => {
      if (!signal.aborted) parts.log.warn({ err: error }, 'reconcile waits for the next turn')
    })
  const soon = (serviceId: string): void => {
    if (due.has(serviceId)) return
    due.add(serviceId)
    turn = turn.then(() =>
      inTurn(async () => {
        await parts.clock.sleep(settleMs, signal)
        due.delete(serviceId)
        await passOne(parts, serviceId, signal)
      }),
    )
  }
  const watch = async (): Promise<void> => {
    while (!signal.aborted)
      await inTurn(async () => {
        for await (const event of parts.runtime.watch(signal)) soon(event.serviceId)
      }).then(() => inTurn(() => parts.clock.sleep(watchPauseMs, signal)))
  }
  const everything = (): Promise<void> => {
    turn = turn.then(() => inTurn(() => passAll(parts, sweepImages, signal)))
    return turn
  }
  const regularly = async (): Promise<void> => {
    while (!signal.aborted) {
      await everything()
      await parts.clock.sleep(everyMs, signal).catch(() => {})
    }
  }
  const pulse = keepPulse(parts, everything)
  const ends = Promise.all([watch(), regularly()])
  return {
    soon,
    async stop() {
      controller.abort(new Error('stopping'))
      await Promise.all([ends, pulse.stop()])
    },
  }
}
