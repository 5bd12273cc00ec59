/**
 * Adjusts the number of instances to the use of services, on one cluster: wakes services that requests wait for, puts
 * idle ones to sleep, and adds and removes instances by processor use. Of several servers, only the holder of the
 * cluster does.
 *
 * In a preview, a request wakes the other services too, and none sleeps while one of them has requests: they call one
 * another without the router.
 *
 * Promises: one service is changed once at a time, and never together with a deployment that changes its instances or
 * with the reconciler; anything not done is requested again, by the waiting requests or by the next check.
 */
import type { ClusterLease } from '../../clusters/lease.ts'
import { isHeld } from '../../clusters/lines/line.ts'
import { kinds } from '../../kinds.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { writeAudit } from '../../store/tree.ts'
import { createKeyedQueue } from '../../work/keyed-queue.ts'
import { createLoop } from '../../work/loop.ts'
import type { DeploymentParts } from '../parts.ts'
import { createFollower, usualScaleTimes, type Wish } from './follow.ts'
import { resize } from './resize.ts'
import { readOneScaled, readScaled, type ScaledService } from './rows.ts'
import { scaling } from './turns.ts'

export interface Scaler {
  /** Requests wait for it. */
  wake(serviceId: string): void
  /** A deployment is about to change the instances of this service, or of any (''): its present change ends now. */
  yield(serviceId: string): void
  stop(): Promise<void>
}

/** Services that are being changed, by scaler and reconciler: neither begins a service before the other has ended. */
export interface Turns {
  reconciled: Set<string>
  scaled: Set<string>
}

const workers = 32
const backoff = { firstMs: 500, longestMs: 10_000 }
/** While a deployment or the reconciler works on the service. */
const laterMs = 250
const deadlineMs = 10 * 60_000
const longestLookMs = 15_000
const shortestLookMs = 100
const sampleMs = 5000

class Yielded extends Error {}

const awake: Wish = ({ scale, scaling }) => (scale === 0 ? Math.max(1, scaling.min) : scale)
/** A service with requests may call it. */
const alongside: Wish = (service) => awake(service)
const isWaking = (wish: Wish | undefined): boolean => wish === awake || wish === alongside
const asleep: Wish = ({ scaling }) => (scaling.sleeps ? 0 : Math.max(1, scaling.min))

/** Services of previews that are awake and have requests: those that have just begun to run count too. */
const livelyIn = (all: readonly ScaledService[], idle: ReadonlySet<string>): ReadonlySet<string> =>
  new Set(
    all
      .filter(
        ({ serviceId, together, scaling, scale }) => together && scaling.sleeps && scale > 0 && !idle.has(serviceId),
      )
      .map(({ environmentId }) => environmentId),
  )

const lookEveryMs = (ms: number, longestMs: number): number =>
  ms === 0 ? longestMs : Math.min(longestMs, Math.max(shortestLookMs, ms / 4))

/** The log entry for users, in the same place as other changes of the service. */
const tell = async ({ database, log }: DeploymentParts, service: ScaledService, to: number): Promise<void> => {
  const { serviceId, organizationId, projectId, environmentId, kind, name, scale } = service
  log.info({ serviceId, from: scale, to }, 'the number of instances follows the use of the processor')
  const eventId = newId()
  await writeAudit(
    database,
    organizationId,
    { id: serviceId, name },
    {
      ...{ eventId, eventType: 'UPDATE', targetType: kinds[kind].audit, subTargetType: null, requestId: eventId },
      ...{ projectId, environmentId, actorType: 'SYSTEM', actorId: null, userAgent: null },
      ...{ origin: 'QOVERY_INTERNAL', triggeredBy: 'autoscaling' },
      change: JSON.stringify({ running_instances: { from: scale, to } }),
    },
  )
}

/** For a cluster that scales by itself. */
const noScaler: Scaler = { wake: () => {}, yield: () => {}, stop: async () => {} }

/** `equalSoon`: the reconciler checks that the publication is up to date. */
export const startScaler = (
  parts: DeploymentParts,
  lease: ClusterLease,
  turns: Turns,
  equalSoon: (serviceId: string) => void,
): Scaler => {
  const { database, log, router } = parts
  const { cluster } = lease
  if (cluster.runtime.scalesItself) return noScaler
  const common = { cluster: cluster.key }
  const wishes = new Map<string, Wish>()
  const underWay = new Map<string, AbortController>()
  /** Services in progress whose publication must be compared. */
  const told = new Set<string>()

  /** Waiting requests wait for other changes to end; any other wish is made again by the next check if it applies. */
  const again = (serviceId: string, wish: Wish): number | undefined => {
    if (!isWaking(wish)) return undefined
    wishes.set(serviceId, wish)
    return laterMs
  }
  const wakeOthers = async ({ serviceId, environmentId }: ScaledService): Promise<void> => {
    for (const other of await readScaled(database, cluster.key))
      if (other.environmentId === environmentId && other.serviceId !== serviceId && other.scale === 0)
        want(other.serviceId, alongside)
  }
  const work = async (serviceId: string, wish: Wish, signal: AbortSignal): Promise<number | undefined> => {
    const service = await readOneScaled(database, cluster.key, serviceId)
    const next = service === undefined ? undefined : wish(service)
    // The router may not know the instances: the reconciler updates it, as soon as this turn is over.
    if (service === undefined || next === service.scale) return void told.add(serviceId)
    if (wish === awake && service.scale === 0 && service.together) await wakeOthers(service)
    if (service.busy) return again(serviceId, wish)
    if (!(await resize(parts, cluster, service, next!, signal))) return undefined
    if (service.scale === 0) log.info({ serviceId }, 'woken by a request')
    else if (next === 0) log.info({ serviceId }, 'idle: scaled to zero')
    else await tell(parts, service, next!)
    return undefined
  }
  const run = async (serviceId: string, stopping: AbortSignal): Promise<number | undefined> => {
    const wish = wishes.get(serviceId)
    if (wish === undefined) return undefined
    if (turns.reconciled.has(serviceId)) return laterMs
    wishes.delete(serviceId)
    const yielding = new AbortController()
    const signal = AbortSignal.any([stopping, yielding.signal, AbortSignal.timeout(deadlineMs)])
    turns.scaled.add(serviceId)
    underWay.set(serviceId, yielding)
    let pauseMs: number | undefined
    try {
      await scaling(database, lease, serviceId, async () => {
        pauseMs = await work(serviceId, wish, signal)
      })
      return pauseMs
    } catch (error) {
      if (yielding.signal.aborted) return again(serviceId, wish)
      if (!(error instanceof DeploymentError)) throw error
      log.warn({ err: error, serviceId }, 'the number of instances could not be changed')
      return undefined
    } finally {
      underWay.delete(serviceId)
      turns.scaled.delete(serviceId)
      if (told.delete(serviceId)) equalSoon(serviceId)
    }
  }
  const queue = createKeyedQueue(parts, {
    ...common,
    name: 'scaling',
    workers,
    backoff,
    failed: 'changing the number of instances failed',
    run,
  })
  const want = (serviceId: string, wish: Wish): void => {
    // Waiting requests come first.
    if (isHeld(cluster) || isWaking(wishes.get(serviceId))) return
    wishes.set(serviceId, wish)
    queue.add(serviceId)
  }

  const { sleepAfterMs, upMs } = parts.scaleTimes ?? usualScaleTimes
  const lookForIdle = async (): Promise<void> => {
    const all = await readScaled(database, cluster.key)
    const candidates = all.filter(
      ({ scaling, scale, busy, forMs }) => scaling.sleeps && scale > 0 && !busy && forMs >= sleepAfterMs,
    )
    if (router === undefined) return
    const ids = candidates.map(({ serviceId }) => serviceId)
    const unasked = new Set(ids.length === 0 ? [] : await router.idle(ids, sleepAfterMs))
    const lively = livelyIn(all, unasked)
    for (const { serviceId, environmentId, scale, failed } of all) {
      const isLively = lively.has(environmentId)
      // One that cannot start is retried for its requests, not at each check.
      if (isLively && scale === 0 && !failed) want(serviceId, alongside)
      if (!isLively && unasked.has(serviceId)) want(serviceId, asleep)
    }
  }
  const idle = createLoop(parts, {
    ...common,
    name: 'sleep',
    periodMs: lookEveryMs(sleepAfterMs, longestLookMs),
    waits: true,
    failed: 'scaling to zero is paused',
    run: () => (sleepAfterMs === 0 ? Promise.resolve() : lookForIdle()),
  })
  const load = createLoop(parts, {
    ...common,
    name: 'autoscaling',
    periodMs: lookEveryMs(upMs, sampleMs),
    waits: true,
    failed: 'the number of instances stays as it is for now',
    run: createFollower(parts, cluster, want),
  })
  return {
    wake: (serviceId) => want(serviceId, awake),
    yield(serviceId) {
      for (const [id, controller] of underWay)
        if (serviceId === '' || id === serviceId) controller.abort(new Yielded('a deployment touches its instances'))
    },
    async stop() {
      await Promise.all([idle.stop(), load.stop(), queue.stop()])
    },
  }
}
