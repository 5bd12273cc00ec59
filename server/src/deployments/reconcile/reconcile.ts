/**
 * Makes the objects on a cluster equal to the desired state: at start, every minute, and soon after a change to an
 * instance that we did not make. Takes no input but the desired state; leaves services alone that a deployment works
 * on.
 *
 * Each cluster has its own reconciler, with several workers and a queue of the services to check: a cluster that does
 * not answer delays no other, and a service that fails no other service. Nothing is swept unless the cluster's engine
 * has listed all its objects.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { type ClusterLease, leaseClusters, sharing } from '../../clusters/lease.ts'
import { isHeld } from '../../clusters/lines/line.ts'
import { conflictChannel } from '../../clusters/lines/rows.ts'
import { readRef } from '../../clusters/refs.ts'
import { isUuid } from '../../lib/ids.ts'
import { createKeyedQueue } from '../../work/keyed-queue.ts'
import { createLoop } from '../../work/loop.ts'
import { createImageSweep } from '../images/pulled-images.ts'
import { createEngineUpkeep } from '../keeping/engine-upkeep.ts'
import { unneededChannel } from '../keeping/releases.ts'
import type { DeploymentParts } from '../parts.ts'
import { orLeft } from '../progress/steps.ts'
import { type Scaler, startScaler, type Turns } from '../scaling/scaler.ts'
import { readPublishedPortsOf } from '../traffic/published-ports.ts'
import { readHostsOf } from '../traffic/routes.ts'
import { watchHealth } from './health.ts'
import { deleteOldOrphans, listOrphans } from './orphans.ts'
import { createOwnServices } from './own-services.ts'
import { createPolicies, type Policies } from './policies.ts'
import { differs, publicationOf, readDesired, reconcileService } from './service.ts'
import { finishDeletions, judgeIds, logFailure, readPending, servicesIn, sweepDeleted, sweepTasks } from './sweeps.ts'

interface Reconciler {
  /** Checks one service soon: it changed without a deployment. */
  soon(serviceId: string): void
  stop(): Promise<void>
}

interface ClusterWork extends Reconciler {
  scaler: Scaler
  /** Checks everything on the cluster now. */
  all(): void
  /** Images may have become superfluous. */
  tidy(): void
}

export interface Reconcilers extends Reconciler {
  /** Requests wait for a sleeping service. `heard`: another server has sent the notification. */
  wake(serviceId: string, heard?: boolean): void
  /** A deployment is about to change the instances of a service; '' for any. */
  yield(serviceId: string): void
}

/** Notifies the holder of a service's cluster that requests wait for it. */
export const wantedChannel = 'slipway_wanted'

const everyMs = 60_000
/** A change of a service causes several events. */
const settleMs = 300
const watchPauseMs = 2000
/** Images become superfluous mostly by what is announced. */
const upkeepMs = 10 * 60_000
/** Deployments that end together are tidied up after together; where that takes long, those of a longer time. */
const upkeepSettleMs = 1000
const upkeepFactor = 10
/** Services of a cluster that are checked at once. */
const workers = 16
const backoff = { firstMs: 2000, longestMs: 60_000 }
/** While a deployment works on its environment. */
const busyPauseMs = 5000
/** While its number of instances is being changed. */
const scalingPauseMs = 1000
/** Pulling a missing image may take long; after this, other services get their turn. */
const serviceDeadlineMs = 10 * 60_000
const passDeadlineMs = 10 * 60_000

const groupBy = <T extends { serviceId: string }>(items: readonly T[]): Map<string, T[]> =>
  Map.groupBy(items, ({ serviceId }) => serviceId)

/** Checks everything on a cluster: finds the services that differ from their desired state, and sweeps leftovers. */
const checkAll = async (
  parts: DeploymentParts,
  cluster: Cluster,
  policies: Policies,
  found: (serviceId: string) => void,
  signal: AbortSignal,
): Promise<void> => {
  await cluster.line?.check()
  const pending = await readPending(parts, cluster.key)
  // The objects are read before the rows: a service or version that is created in between is then missing in the first
  // list, never an orphan by the second.
  const owned = await cluster.runtime.owned()
  const published = await cluster.ingress.look()
  const judged = await judgeIds(parts, cluster.key, [
    ...servicesIn(owned).keys(),
    ...owned.environments,
    ...published.services,
  ])
  await listOrphans(parts, cluster, owned, judged.unknown)
  if (isHeld(cluster)) return
  const services = await readDesired(parts, cluster, policies)
  const [hosts, outside] = await Promise.all([
    readHostsOf(parts.database, cluster.key).then(groupBy),
    readPublishedPortsOf(parts.database, cluster.key).then(groupBy),
  ])
  const instances = groupBy(owned.instances.filter(({ taskId }) => taskId === undefined))
  for (const service of services) {
    const of = <T>(groups: Map<string, T[]>): T[] => groups.get(service.serviceId) ?? []
    const outlets = { hosts: of(hosts), outside: of(outside) }
    if (differs(service, { instances: of(instances), outlets, published })) found(service.serviceId)
    else cluster.ingress.keep(publicationOf(service, outlets))
  }
  await logFailure(parts, {}, signal, () => sweepTasks(parts, cluster, owned, signal))
  await deleteOldOrphans(parts, cluster.key)
  await sweepDeleted(parts, cluster, owned, published.services, judged, signal)
  await finishDeletions(parts, cluster, pending, owned, published.services, signal)
}

/** Removes what nothing needs from the engine: when something became superfluous, and from time to time. */
const startUpkeep = (parts: DeploymentParts, cluster: Cluster) => {
  const upkeep = createEngineUpkeep(parts, cluster)
  let settledMs = upkeepSettleMs
  const loop = createLoop(parts, {
    cluster: cluster.key,
    name: 'superfluous images',
    periodMs: upkeepMs,
    failed: 'superfluous images stay on the engine until the next turn',
    run: async (signal) => {
      if (isHeld(cluster)) return
      const beganMs = parts.clock.monotonicMs()
      await orLeft(upkeep(signal), signal).finally(() => {
        const tookMs = parts.clock.monotonicMs() - beganMs
        settledMs = Math.min(upkeepMs, Math.max(upkeepSettleMs, upkeepFactor * tookMs))
      })
    },
  })
  return { soon: () => loop.wake(settledMs), stop: loop.stop }
}

/** Begins at once, in the background: a start does not wait for the engine. */
const startReconciler = (parts: DeploymentParts, lease: ClusterLease): ClusterWork => {
  const { cluster } = lease
  const turns: Turns = { reconciled: new Set(), scaled: new Set() }
  const common = { cluster: cluster.key }
  const sweepImages = createImageSweep(parts, cluster)
  const policies = createPolicies(parts)

  const reconcile = async (serviceId: string, stopping: AbortSignal): Promise<number | undefined> => {
    if (isHeld(cluster)) return undefined
    if (turns.scaled.has(serviceId)) return scalingPauseMs
    turns.reconciled.add(serviceId)
    try {
      const signal = AbortSignal.any([stopping, AbortSignal.timeout(serviceDeadlineMs)])
      const work = () => reconcileService(parts, cluster, policies, serviceId, signal)
      const isDone = await orLeft(sharing(parts.database, lease, serviceId, work), signal)
      return isDone ? undefined : busyPauseMs
    } finally {
      turns.reconciled.delete(serviceId)
    }
  }
  const queue = createKeyedQueue(parts, {
    ...common,
    name: 'reconcile',
    workers,
    backoff,
    failed: 'reconciling a service failed',
    run: reconcile,
  })
  const soon = (serviceId: string): void => queue.add(serviceId, settleMs)
  const all = createLoop(parts, {
    ...common,
    name: 'reconcile all',
    periodMs: everyMs,
    failed: 'reconciling waits for the next turn',
    run: async (stopping) => {
      const signal = AbortSignal.any([stopping, AbortSignal.timeout(passDeadlineMs)])
      await orLeft(
        checkAll(parts, cluster, policies, (id) => queue.add(id), signal),
        signal,
      )
      if (!isHeld(cluster)) await orLeft(sweepImages(signal), signal)
    },
  })
  const upkeep = startUpkeep(parts, cluster)
  const events = createLoop(parts, {
    ...common,
    name: 'cluster events',
    periodMs: watchPauseMs,
    failed: 'the engine sends no events at the moment',
    run: async (signal) => {
      const name = createOwnServices(parts, cluster.key, soon, signal)
      for await (const { serviceId } of cluster.runtime.watch(signal)) name(serviceId)
    },
  })
  const liveness = createLoop(parts, {
    ...common,
    name: 'liveness',
    periodMs: watchPauseMs,
    failed: 'liveness probes wait for the engine',
    run: (signal) => cluster.runtime.keepAlive(signal),
  })
  const health = watchHealth(parts, cluster, () => all.wake())
  const scaler = startScaler(parts, lease, turns, (id) => queue.add(id))
  return {
    soon,
    scaler,
    all: () => all.wake(),
    tidy: upkeep.soon,
    async stop() {
      const loops = [events, liveness, health, all, queue, upkeep]
      await Promise.all([scaler.stop(), ...loops.map((loop) => loop.stop())])
    },
  }
}

/** One for each cluster that this server holds. */
export const startReconcilers = async (parts: DeploymentParts, worker: string): Promise<Reconcilers> => {
  const { clusters, database, log } = parts
  const reconcilers = new Map<string, ClusterWork>()
  const leased = await leaseClusters(parts, worker, (lease) => {
    const reconciler = startReconciler(parts, lease)
    reconcilers.set(lease.id, reconciler)
    return {
      async stop() {
        reconcilers.delete(lease.id)
        await reconciler.stop()
      },
    }
  })
  const leaves = [
    await database.listen(conflictChannel, (key) => reconcilers.get(key)?.all()),
    await database.listen(unneededChannel, () => {
      for (const each of reconcilers.values()) each.tidy()
    }),
  ]
  /** Undefined if another server holds its cluster. */
  const find = async (serviceId: string): Promise<ClusterWork | undefined> => {
    const ref = isUuid(serviceId) ? await readRef(database, serviceId) : null
    return ref === null ? undefined : reconcilers.get((await clusters.of(ref.clusterId)).key)
  }
  const findAndAdd = async (serviceId: string): Promise<void> => (await find(serviceId))?.soon(serviceId)
  const findAndWake = async (serviceId: string, heard: boolean): Promise<void> => {
    const work = await find(serviceId)
    if (work !== undefined) work.scaler.wake(serviceId)
    else if (!heard) await database.query(`select pg_notify('${wantedChannel}', $1)`, [serviceId])
  }
  return {
    wake(serviceId, heard = false) {
      // Waiting requests ask again.
      findAndWake(serviceId, heard).catch((error: unknown) =>
        log.warn({ err: error, serviceId }, 'a service with waiting requests cannot be woken at the moment'),
      )
    },
    yield(serviceId) {
      for (const { scaler } of reconcilers.values()) scaler.yield(serviceId)
    },
    // Every server is notified, and the one that holds the cluster acts.
    soon(serviceId) {
      findAndAdd(serviceId).catch((error: unknown) => log.warn({ err: error, serviceId }, 'reconciling waits a minute'))
    },
    async stop() {
      for (const leave of leaves) leave()
      await leased.stop()
    },
  }
}
