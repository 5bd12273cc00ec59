/**
 * Deployments as a queue: which one is next, and how one ends, over the table `deployment` and its leases (lease.ts).
 * Promises that an environment has at most one running deployment, across all replicas. Does not know what a deployment
 * does. When the process dies, the lease runs out and another worker claims with a higher fence.
 */
import type { Database, Queryable } from '../store/database.ts'
import { sqlState } from '../store/database.ts'
import { holdLease, type Leased, type LeaseTable, leaseEnd, leaseMs, takeOver } from './lease.ts'

/** A deployment that this worker may work on as long as its fence is valid. */
export interface Claim extends Leased {
  organizationId: string
  environmentId: string
  executionId: string
  action: string
  wholeEnvironment: boolean
  cancelRequested: boolean
  /** True when an earlier worker began it. */
  resumed: boolean
}

const columns = `id, organization_id as "organizationId", environment_id as "environmentId",
  environment_id || '-' || execution_number as "executionId", action, whole_environment as "wholeEnvironment", fence,
  cancel_requested_at is not null as "cancelRequested", fence > 1 as resumed`

export const deploymentLeases: LeaseTable<Claim> = { name: 'deployment', columns }

// The oldest waiting deployment of an environment in which none runs, and whose place has room: of the organization
// that has the fewest running, and among those of the one served longest ago. In a full place, the first one of an
// organization still begins: no organization waits for another's deployments, which may take hours. Other workers may
// hold some candidates, never all for long.
const takeNext = (placeOf: (environmentId: string) => string): string => `with busy as (
    select organization_id, count(*) as running from deployment where state = 'RUNNING' group by organization_id
  ), head as (
    select distinct on (environment_id) id, environment_id, organization_id, seq from deployment
    where state = 'QUEUED' order by environment_id, seq
  ), candidate as (
    select head.id, row_number() over (order by coalesce(busy.running, 0),
      coalesce(array_position($3::uuid[], head.organization_id), 0), head.seq) as place
    from head left join busy using (organization_id)
    where not exists (select from deployment running
      where running.environment_id = head.environment_id and running.state = 'RUNNING')
      and (cardinality($4::text[]) = 0 or coalesce(${placeOf('head.environment_id')}, '') <> all($4))
      and (busy.running is null or cardinality($5::text[]) = 0
        or coalesce(${placeOf('head.environment_id')}, '') <> all($5))
    order by place limit 32
  )
  update deployment set state = 'RUNNING', worker = $1, fence = fence + 1,
    started_at = clock_timestamp(), lease_until = ${leaseEnd(2)}
  where id = (
    select waiting.id from candidate join deployment waiting using (id)
    where waiting.state = 'QUEUED' order by candidate.place limit 1 for update of waiting skip locked)
  and state = 'QUEUED'
  returning ${columns}`

interface ClaimOptions {
  /** Organizations this worker claimed for, the last one last. */
  served?: readonly string[]
  /** Places that take no more of the queue. */
  closed?: readonly string[]
  /** Places that take only the first one of each organization. */
  full?: readonly string[]
  /** SQL for the place of the environment with this id. */
  placeOf?: (environmentId: string) => string
}

/** Claims one deployment for `worker`: first one whose worker has died, then the next in the queue; null when idle. */
export const claim = async (database: Database, worker: string, options: ClaimOptions = {}): Promise<Claim | null> => {
  const { served = [], closed = [], full = [], placeOf = () => `''` } = options
  const abandoned = await takeOver(database, deploymentLeases, worker)
  if (abandoned !== null) return abandoned
  try {
    const [next] = await database.query<Claim>(takeNext(placeOf), [worker, leaseMs, served, closed, full])
    return next ?? null
  } catch (error) {
    // Two workers claimed for one environment at once; the unique index let one through.
    if (sqlState(error) === '23505') return claim(database, worker, options)
    throw error
  }
}

/** Runs `work` in a transaction that holds the claim: rejects with `LeaseLost` when the fence has moved on. */
export const withClaim = <T>(database: Database, held: Claim, work: (tx: Queryable) => Promise<T>): Promise<T> =>
  holdLease(database, deploymentLeases, held, work)

/** Ends the claim with a final state. */
export const finish = async (tx: Queryable, held: Claim, state: string, error: unknown): Promise<void> => {
  await tx.query(
    `update deployment set state = $3, error = $4, finished_at = clock_timestamp(), worker = null, lease_until = null
     where id = $1 and fence = $2`,
    [held.id, held.fence, state, error === null ? null : JSON.stringify(error)],
  )
  await tx.query(`select pg_notify('slipway_deployment', '')`)
}
