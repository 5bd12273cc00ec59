/**
 * Room for memory: what is promised to the running services of a cluster, compared with what its machine has. Limits
 * that add up to more are often intended, so the operator decides how much is too much (`SLIPWAY_MEMORY_OVERCOMMIT`, in
 * percent; 0: any), and everything above the machine's memory is mentioned.
 */
import type { Queryable } from '../store/database.ts'
import { keySql } from './local.ts'

/** Jobs and modules need their memory only while they run. */
const staysUp = `n.kind in ('application', 'container', 'database')`

const runningSql = `select s.service_id, s.cluster_id from service_state s where s.desired = 'RUNNING'`

// Of two services that are deployed at once and need the last memory, the one whose turn is first gets it.
const withClaimantSql = `${runningSql}
  union select s.service_id, s.cluster_id from service_state s where s.service_id = $2
  union select w.service_id, s.cluster_id from deployment d join deployment_service w on w.deployment_id = d.id
    join service_state s on s.service_id = w.service_id join deployment own on own.id = $3
    where d.state = 'RUNNING' and d.action in ('DEPLOY', 'RESTART') and w.finished_at is null
      and (d.seq, w.service_id) < (own.seq, $2::uuid)`

const promisedSql = (counted: string): string => `with counted as (${counted})
  select coalesce(sum(z.memory_mb), 0)::float8 as "promisedMb"
  from counted s join service_size z on z.service_id = s.service_id join node n on n.id = s.service_id
    join node c on c.id = s.cluster_id
  where ${staysUp} and ${keySql('c')} = $1`

/** The memory of all instances that the running services of a cluster may have. */
export const readPromised = async (db: Queryable, clusterKey: string): Promise<number> => {
  const [row] = await db.query<{ promisedMb: number }>(promisedSql(runningSql), [clusterKey])
  return row!.promisedMb
}

/** The same once a deployment has started this service. */
export const readPromisedWith = async (
  db: Queryable,
  clusterKey: string,
  serviceId: string,
  deploymentId: string,
): Promise<number> => {
  const values = [clusterKey, serviceId, deploymentId]
  const [row] = await db.query<{ promisedMb: number }>(promisedSql(withClaimantSql), values)
  return row!.promisedMb
}

export interface MemoryRoom {
  promisedMb: number
  /** What the machine has. */
  memoryMb: number
  /** 0: nothing is refused. */
  overcommitPercent: number
}

export const isRefused = ({ promisedMb, memoryMb, overcommitPercent }: MemoryRoom): boolean =>
  overcommitPercent > 0 && promisedMb * 100 > memoryMb * overcommitPercent

/** For the owner of a service that is being deployed; null if there is enough. */
export const memorySentence = (room: MemoryRoom): string | null => {
  const { promisedMb, memoryMb, overcommitPercent } = room
  if (promisedMb <= memoryMb && !isRefused(room)) return null
  // Without the sum: the services of other organizations are in it.
  const all = 'With this service, the running services of this cluster may use'
  const advice = 'Lower `memory` or `max_running_instances`, or stop a service.'
  return isRefused(room)
    ? `${all} more than ${overcommitPercent} % of the ${memoryMb} MB of its machine, which is refused (SLIPWAY_MEMORY_OVERCOMMIT). ${advice}`
    : `${all} more memory together than its machine has (${memoryMb} MB): if they need it all at once, the machine ends some of them. ${advice}`
}
