/** Clusters at a cloud provider as rows: one run at a time for each, under the lease of one server. */
import type { Spec } from '../../../api/operations/resource.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { type Leased, LeaseLost, type LeaseTable, leaseEnd, leaseMs } from '../../../work/lease.ts'
import type { Action } from './states.ts'

export const managedChannel = 'slipway_managed'

export interface Managed {
  status: string
  error: string | null
  version: string | null
  isStopped: boolean
  applied: string | null
  deployedAt: Date | null
  lastRun: string | null
  isConnected: boolean
  /** Null while nothing is requested or in progress. */
  runId: string | null
  action: Action | null
}

const shown = `m.status, m.error, m.version, m.is_stopped as "isStopped", m.applied, m.deployed_at as "deployedAt",
  m.last_run as "lastRun", m.sealed is not null as "isConnected", m.run_id as "runId", m.action`

/** The clusters among these that ever had a request. */
export const readManaged = async (db: Queryable, ids: readonly string[]): Promise<Map<string, Managed>> => {
  const rows = await db.query<Managed & { id: string }>(
    `select m.id, ${shown} from managed_cluster m where m.id = any($1)`,
    [ids],
  )
  return new Map(rows.map(({ id, ...row }) => [id, row]))
}

/** SQL of one field of a cluster's row in `managed_cluster`, null without one. */
export const managedSql = (field: string, row: string): string =>
  `(select m.${field} from managed_cluster m where m.id = ${row}.id)`

/** Whether runs of this cluster may have created resources at its provider, which only a run can remove. */
export const hasMade = async (db: Queryable, id: string): Promise<boolean> =>
  (await db.query('select 1 from task_state where id = $1', [id])).length > 0

/** Clusters of an organization that are being made: each is connected once it exists. */
export const countMaking = async (db: Queryable, organizationId: string): Promise<number> => {
  const [row] = await db.query<{ count: number }>(
    `select count(*)::int as count from managed_cluster m where m.organization_id = $1 and m.run_id is not null
       and m.action in ('DEPLOY', 'RESTART', 'UPGRADE')
       and not exists (select from cluster_engine u where u.cluster_id = m.id)`,
    [organizationId],
  )
  return row!.count
}

interface Wanted {
  runId: string
  action: Action
  status: string
  document: object
  mark: string
  version: string | null
  askedBy: string
}

const askSql = `insert into managed_cluster as m
    (id, organization_id, run_id, action, wanted, wanted_mark, status, status_before, asked_by, version, last_run)
  select n.id, n.organization_id, $2, $3, $4, $5, $6, 'READY', $7, $8, $2 from node n where n.id = $1
  on conflict (id) do update set run_id = excluded.run_id, action = excluded.action, wanted = excluded.wanted,
    wanted_mark = excluded.wanted_mark, status_before = m.status, status = excluded.status, error = null,
    asked_by = excluded.asked_by, last_run = excluded.last_run, is_canceled = false, begun_at = null, lease_until = '-infinity'
  where m.run_id is null`

/** The caller holds the lock of the cluster's row and has checked that no run is in progress. */
export const ask = async (tx: Queryable, clusterId: string, wanted: Wanted): Promise<void> => {
  const { runId, action, document, mark, status, askedBy, version } = wanted
  await tx.query(askSql, [clusterId, runId, action, JSON.stringify(document), mark, status, askedBy, version])
  await tx.query(`select pg_notify('${managedChannel}', $1)`, [clusterId])
}

/** The run in progress ends soon; a program of the tool gets time for that. */
export const cancelRun = async (tx: Queryable, clusterId: string): Promise<void> => {
  await tx.query(
    `update managed_cluster set is_canceled = true, status = 'CANCELING' where id = $1 and run_id is not null`,
    [clusterId],
  )
  await tx.query(`select pg_notify('${managedChannel}', $1)`, [clusterId])
}

export interface RunClaim extends Leased {
  organizationId: string
  runId: string
  action: Action
  status: string
  statusBefore: string
  document: Record<string, unknown> & { kubernetes_version: string | null }
  mark: string
  askedBy: string
  isCanceled: boolean
  begunAt: Date
}

const columns = `id, fence, organization_id as "organizationId", run_id as "runId", action, status,
  status_before as "statusBefore", wanted as document, wanted_mark as mark, asked_by as "askedBy",
  is_canceled as "isCanceled", begun_at as "begunAt"`

export const managedLeases: LeaseTable<RunClaim> = { name: 'managed_cluster', open: 'run_id is not null', columns }

const perOrganization = 2
/**
 * Runs can take hours: the first one of an organization waits for no other organization, and further ones begin while
 * fewer than so many are in progress in all.
 */
const places = 4

const claimSql = `
  with busy as (
    select organization_id, count(*) as held from managed_cluster
    where run_id is not null and lease_until >= clock_timestamp() group by organization_id
  ), candidate as (
    select m.id, m.lease_until, coalesce(b.held, 0) + row_number() over (partition by m.organization_id
      order by m.is_canceled desc, m.lease_until, m.created_at) as turn, m.is_canceled
    from managed_cluster m left join busy b using (organization_id)
    where m.run_id is not null and m.lease_until < clock_timestamp()
  ), ranked as (
    select id, turn, is_canceled, lease_until, (select coalesce(sum(held), 0) from busy)
      + row_number() over (order by turn, lease_until) as rank from candidate
  ), chosen as (
    select m.id from ranked c join managed_cluster m using (id)
    where (c.turn = 1 or c.turn <= ${perOrganization} and c.rank <= ${places} or c.is_canceled) and m.run_id is not null and m.lease_until < clock_timestamp()
    order by c.turn limit $3 for update of m skip locked
  )
  update managed_cluster m set worker = $1, fence = fence + 1, lease_until = ${leaseEnd(2)},
    begun_at = coalesce(begun_at, clock_timestamp())
  where m.id in (select id from chosen) returning ${columns}`

/** Runs `work` in a transaction that holds the lease and the row of the cluster, in the order in which requests lock them. */
export const holdRun = <T>(
  database: Database,
  { id, fence }: Leased,
  work: (tx: Queryable) => Promise<T>,
): Promise<T> =>
  database.transaction(async (tx) => {
    await tx.query('select 1 from node where id = $1 for no key update', [id])
    const [row] = await tx.query(
      'select 1 from managed_cluster where id = $1 and fence = $2 and run_id is not null for no key update',
      [id, fence],
    )
    if (row === undefined) throw new LeaseLost()
    return work(tx)
  })

export const claimRuns = (database: Database, worker: string, room: number): Promise<RunClaim[]> =>
  database.query<RunClaim>(claimSql, [worker, leaseMs, room])

export const isCanceled = async (db: Queryable, id: string): Promise<boolean> =>
  (await db.query('select 1 from managed_cluster where id = $1 and run_id is not null and is_canceled', [id])).length >
  0

/** The configuration of the cluster of a run as it is now; null once it is gone. */
export const readSpec = async (db: Queryable, id: string): Promise<Spec | null> => {
  const [row] = await db.query<{ spec: Spec }>('select spec from node where id = $1', [id])
  return row?.spec ?? null
}

/** A run that is being canceled keeps that status until its end. */
export const writeStatus = async (tx: Queryable, id: string, status: string): Promise<void> => {
  await tx.query('update managed_cluster set status = $2 where id = $1 and not is_canceled', [id, status])
}

export interface Ending {
  status: string
  error: string | null
  /** The mark of the applied document; absent: nothing was applied, or not all. */
  applied?: string
  isStopped?: boolean
  version?: string | null
}

/** The end of a run, in the transaction that holds its lease. */
export const endRun = async (tx: Queryable, id: string, ending: Ending): Promise<void> => {
  const { status, error, applied = null, isStopped = null } = ending
  await tx.query(
    `update managed_cluster set status = $2, error = $3, applied = coalesce($4, applied),
       is_stopped = coalesce($5, is_stopped), version = case when $7 then $6 else version end,
       deployed_at = case when $4::text is null then deployed_at else clock_timestamp() end,
       run_id = null, action = null, wanted = null, wanted_mark = null, is_canceled = false, worker = null,
       lease_until = '-infinity'
     where id = $1`,
    [id, status, error, applied, isStopped, ending.version ?? null, ending.version !== undefined],
  )
}

/** Stores the login from a module's outputs; the notification makes servers connect with it. */
export const keepKubeconfig = async (tx: Queryable, id: string, sealed: string): Promise<void> => {
  await tx.query('update managed_cluster set sealed = $2, seals = seals + 1 where id = $1', [id, sealed])
  await tx.query(`select pg_notify('slipway_cluster', '')`)
}

/**
 * Releases the state of the tool after a run. If a run has ended without releasing it, its effects are unknown: the
 * cluster is locked until a user unlocks it (`lockUnknown`).
 */
export const freeState = async (tx: Queryable, id: string): Promise<void> => {
  await tx.query(
    `update task_state set held_by = null, locked_at = null, begun = null where id = $1 and held_by is not null`,
    [id],
  )
}

const lockReason =
  'A run of this cluster was lost, and its effects at the provider are unknown. Check the resources there, then unlock the cluster: the next deployment continues from the stored state.'

/** Locks a cluster whose state is still held by the run that ends; true if it is. */
export const lockUnknown = async (tx: Queryable, { id, runId }: RunClaim, now: Date): Promise<boolean> => {
  const held = await tx.query('select 1 from task_state where id = $1 and held_by = $2', [id, runId])
  if (held.length === 0) return false
  const lock = { reason: lockReason, ttl_in_days: -1, locked_at: now.toISOString(), owner_name: 'Slipway' }
  await tx.query(`update node set spec = jsonb_set(spec, '{lock}', $2::jsonb), version = version + 1 where id = $1`, [
    id,
    JSON.stringify(lock),
  ])
  return true
}
