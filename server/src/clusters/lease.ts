/**
 * Which server manages a cluster. Several servers may work on one database; all work for a cluster besides deployments
 * (reconcile, health, events, liveness, capacity, sweeps) is done by one of them, its holder.
 *
 * Promises: a cluster has one holder at a time; work of a holder is ended before its lease can have run out; and while
 * the holder restores a service, no deployment begins on its environment, whichever server has claimed it. When the
 * process dies: its leases run out, and another server holds its clusters within 30 s; after an orderly stop at once.
 */

import { untilAborted } from '../lib/concurrency/waiting.ts'
import { LeaseHandedOff } from '../lib/lease-handed-off.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Database } from '../store/database.ts'
import {
  type Leased,
  LeaseLost,
  type LeaseTable,
  leaseEnd,
  leaseMs,
  releaseLeases,
  renewLeases,
} from '../work/lease.ts'
import type { WorkParts } from '../work/loop.ts'
import { createWorker } from '../work/worker.ts'
import type { Cluster, Clusters } from './clusters.ts'
import { keySql } from './local.ts'

/** A cluster that this server may manage as long as its fence is valid. */
export interface ClusterLease extends Leased {
  cluster: Cluster
}

export interface LeasedClusters {
  /** Looks now for clusters without a holder. */
  wake(): void
  /** Ends the work for them, and releases their leases. */
  stop(): Promise<void>
}

interface LeaseParts extends WorkParts {
  database: Database
  clusters: Clusters
}

const heartbeatMs = 4000
/** How soon a new, deleted or released cluster is noticed. */
const lookMs = 2000
const channel = 'slipway_cluster'

/** The id of a row is the key of its cluster. */
export const clusterLeases: LeaseTable<Leased> = { name: 'cluster_work', columns: 'id, fence', open: 'true' }

// A cluster has no row before its first holder.
const claimSql = `insert into cluster_work as c (id, worker, lease_until)
  select key, $1, ${leaseEnd(2)} from unnest($3::text[]) key order by key
  on conflict (id) do update set worker = excluded.worker, fence = c.fence + 1, lease_until = excluded.lease_until
    where c.lease_until < clock_timestamp()
  returning id, fence`

/** Manages every cluster that this server has a runtime for and no other server holds, as long as it holds it. */
export const leaseClusters = async (
  parts: LeaseParts,
  worker: string,
  lookAfter: (lease: ClusterLease) => { stop(): Promise<void> },
): Promise<LeasedClusters> => {
  const { database, clusters } = parts
  const held = new Map<string, Cluster>()
  /** A cluster that was deleted, or whose connection changed, is released; the next claim takes it in its new form. */
  const letGo = (now: ReadonlyMap<string, Cluster>): void => {
    for (const [key, cluster] of held)
      if (now.get(key) !== cluster) leased.abort(key, new LeaseHandedOff('the cluster has changed hands'))
  }
  const claim = async () => {
    const now = new Map(clusters.all().map((cluster) => [cluster.key, cluster]))
    letGo(now)
    const free = [...now].filter(([key]) => !held.has(key))
    if (free.length === 0) return { claimed: [], more: false }
    const all = new Map(free)
    const rows = await database.query<Leased>(claimSql, [worker, leaseMs, [...all.keys()]])
    return { claimed: rows.map((row): ClusterLease => ({ ...row, cluster: all.get(row.id)! })), more: false }
  }
  const run = async (lease: ClusterLease, signal: AbortSignal): Promise<void> => {
    held.set(lease.id, lease.cluster)
    const part = lookAfter(lease)
    try {
      await untilAborted(new Promise<never>(() => {}), signal)
    } finally {
      await part.stop()
      held.delete(lease.id)
    }
  }
  const renew = async (ids: readonly string[]): Promise<Map<string, Error>> => {
    const ours = new Set((await renewLeases(database, clusterLeases, worker, ids)).map(({ id }) => id))
    return new Map(ids.filter((id) => !ours.has(id)).map((id) => [id, new LeaseLost()]))
  }
  const leased = createWorker<ClusterLease>(parts, {
    name: 'clusters',
    concurrency: Number.POSITIVE_INFINITY,
    periodMs: lookMs,
    idOf: ({ id }) => id,
    about: ({ id }) => ({ cluster: id }),
    claim,
    run: (lease, { signal }) => run(lease, signal),
    renew: { everyMs: heartbeatMs, leaseMs, renew },
    async release(all) {
      await releaseLeases(
        database,
        clusterLeases,
        worker,
        all.map(({ id }) => id),
      )
      await database.query(`select pg_notify('${channel}', '')`)
    },
    failed: 'a cluster was left to its next owner',
  })
  const leave = await database.listen(channel, leased.wake)
  return {
    wake: leased.wake,
    async stop() {
      leave()
      await leased.stop()
    },
  }
}

/**
 * Holds off deployments of an environment while `work` restores a service of it, if the service is on this cluster.
 * Deployments check only after they are claimed, and `work` checks for claimed ones only after this is written: one of
 * the two sees the other.
 */
export const sharing = async <T>(
  database: Database,
  { id, fence }: ClusterLease,
  serviceId: string,
  work: () => Promise<T>,
): Promise<T> => {
  await database.query(
    `insert into reconcile_share (service_id, environment_id, cluster, fence)
     select s.service_id, s.environment_id, $2, $3 from service_state s join node c on c.id = s.cluster_id
     where s.service_id = $1 and ${keySql('c')} = $2
     on conflict (service_id) do update set cluster = excluded.cluster, fence = excluded.fence`,
    [serviceId, id, fence],
  )
  try {
    return await work()
  } finally {
    const own = 'service_id = $1 and cluster = $2 and fence = $3'
    // A remaining row is invalid once the cluster has another holder, and is overwritten by the next turn of this
    // service.
    await database.query(`delete from reconcile_share where ${own}`, [serviceId, id, fence]).catch(() => {})
  }
}

const pauseMs = 50

/** Resolves when no holder is restoring a service of the environment; rejects when `check` throws meanwhile. */
export const awaitShares = async (
  { database, clock }: { database: Database; clock: Clock },
  environmentId: string,
  check: () => void,
): Promise<void> => {
  for (;;) {
    const [found] = await database.query(
      `select from reconcile_share s join cluster_work c on c.id = s.cluster and c.fence = s.fence
       where s.environment_id = $1 and c.lease_until > clock_timestamp() limit 1`,
      [environmentId],
    )
    if (found === undefined) return
    await clock.sleep(pauseMs)
    check()
  }
}
