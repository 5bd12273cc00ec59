/**
 * Which code changes the instances of a service: a deployment, or the scaler. Neither waits for the other's work: a
 * deployment that is about to change instances notifies the scaler, which ends at once; the scaler skips services
 * whose instances a deployment changes.
 */
import type { ClusterLease } from '../../clusters/lease.ts'
import type { Database } from '../../store/database.ts'
import { withClaim } from '../../work/queue.ts'
import type { ServiceRun } from '../progress/service-run.ts'

export const scalingChannel = 'slipway_scaling'

const pauseMs = 50

const claimSql = `with marked as (update deployment_service set converging = true
    where deployment_id = $1 and service_id = $2 returning service_id)
  select pg_notify('${scalingChannel}', service_id::text) from marked`

const openSql = `select from scale_work s join cluster_work c on c.id = s.cluster and c.fence = s.fence
  where s.service_id = $1 and c.lease_until > clock_timestamp()`

/** From now on only the deployment controls its service's instances. */
export const takeInstances = async (
  { parts, claim, service, signal: usual }: ServiceRun,
  signal: AbortSignal = usual,
): Promise<void> => {
  const { database, clock } = parts
  await withClaim(database, claim, (tx) => tx.query(claimSql, [claim.id, service.id]))
  // The scaler was notified, or finds out before it begins; and if its server is gone, its lease runs out.
  for (const beganMs = clock.monotonicMs(); clock.monotonicMs() - beganMs < longestMs; ) {
    if ((await database.query(openSql, [service.id])).length === 0) return
    if (signal.aborted) return
    await clock.sleep(pauseMs)
  }
}

/** A lease has run out by then. */
const longestMs = 60_000

/** Marks a service as being scaled while `work` runs. */
export const scaling = async (
  database: Database,
  { id, fence }: ClusterLease,
  serviceId: string,
  work: () => Promise<void>,
): Promise<void> => {
  await database.query(
    `insert into scale_work (service_id, cluster, fence) values ($1, $2, $3)
     on conflict (service_id) do update set cluster = excluded.cluster, fence = excluded.fence`,
    [serviceId, id, fence],
  )
  try {
    await work()
  } finally {
    const own = 'service_id = $1 and cluster = $2 and fence = $3'
    await database.query(`delete from scale_work where ${own}`, [serviceId, id, fence]).catch(() => {})
  }
}
