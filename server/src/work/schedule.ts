/**
 * Scheduled runs, over the tables `schedule` and `task_run`; a service can have several named tasks. Promises one run of
 * a task at a time unless it allows more, that two workers never start the same one, and after downtime at most one run,
 * and none that is long past; and that organizations do not wait for each other's runs, which may take hours: each has
 * places of its own. If the process dies, the lease of its run ends and another worker continues it.
 */

import { newId } from '../lib/ids.ts'
import { parseCron } from '../lib/time/cron.ts'
import { nextTime } from '../lib/time/next-time.ts'
import type { Database, Queryable } from '../store/database.ts'
import { type Leased, type LeaseTable, leaseEnd, leaseMs, renewLeases } from './lease.ts'

export interface When {
  /** Five fields, as lib/time/cron.ts reads them. */
  expression: string
  timeZone: string
  /**
   * What happens when a run is due while the last one continues: it is skipped (the default), runs concurrently, or
   * replaces it.
   */
  overlap?: 'Forbid' | 'Allow' | 'Replace'
}

/** A run that this worker may work on as long as its fence holds. */
export interface RunClaim extends Leased {
  organizationId: string
  serviceId: string
  /** Name of the task. */
  name: string
  releaseId: string
  /** Who requested it; null for a scheduled run. */
  askedBy: string | null
}

/** A run that could not start within this time after it was due is skipped. */
const graceMs = 10 * 60_000
/** Finished runs of a task that are kept. */
export interface KeptRuns {
  succeeded?: number
  /** Canceled ones too. */
  failed?: number
}

/** As many of each as are kept unless a task says otherwise. */
export const usuallyKept = 20

const after = ({ expression, timeZone }: When, now: Date): Date | null => {
  const cron = parseCron(expression)
  return cron === null ? null : nextTime(cron, timeZone, now)
}

/**
 * Sets the schedules of all tasks of a service. An unchanged schedule keeps its next time. Runs of a stopped service are
 * skipped.
 */
export const setSchedules = async (
  tx: Queryable,
  serviceId: string,
  clocks: Readonly<Record<string, When>>,
  now: Date,
): Promise<void> => {
  await tx.query('delete from schedule where service_id = $1 and name <> all($2)', [serviceId, Object.keys(clocks)])
  for (const [name, when] of Object.entries(clocks))
    await tx.query(
      `insert into schedule (service_id, name, expression, time_zone, next_at, overlap) values ($1, $2, $3, $4, $5, $6)
       on conflict (service_id, name) do update set expression = excluded.expression, time_zone = excluded.time_zone,
         overlap = excluded.overlap,
         next_at = case when (schedule.expression, schedule.time_zone) = (excluded.expression, excluded.time_zone)
           then schedule.next_at else excluded.next_at end`,
      [serviceId, name, when.expression, when.timeZone, after(when, now), when.overlap ?? 'Forbid'],
    )
  await tx.query(`select pg_notify('slipway_schedule', '')`)
}

/** Runs are part of the status of their environment: its followers are notified as of any change of that status. */
const notifyRuns = async (tx: Queryable, serviceId: string): Promise<void> => {
  await tx.query(`select pg_notify('slipway_status', environment_id::text) from service_state where service_id = $1`, [
    serviceId,
  ])
}

/**
 * Ends the open runs of a service, or of one of its tasks, in the database; returns their ids, so that their executions
 * can be ended too.
 */
export const cancelRuns = async (tx: Queryable, serviceId: string, name?: string): Promise<string[]> => {
  const rows = await tx.query<{ id: string }>(
    `update task_run set state = 'CANCELED', finished_at = clock_timestamp() where service_id = $1 and state = 'RUNNING'
       and name = coalesce($2, name)
     returning id`,
    [serviceId, name],
  )
  if (rows.length > 0) await notifyRuns(tx, serviceId)
  return rows.map(({ id }) => id)
}

const columns = `id, organization_id as "organizationId", service_id as "serviceId", name, release_id as "releaseId",
  asked_by as "askedBy", fence`

export const runLeases: LeaseTable<RunClaim> = { name: 'task_run', columns }

/** Runs of one organization at once. */
export const runsEach = 16

/** Organizations that have all their runs in progress. */
const fullSql = `select organization_id from task_run
  where state = 'RUNNING' and lease_until >= clock_timestamp() group by organization_id having count(*) >= ${runsEach}`

const dueSql = `select d.service_id as "serviceId", d.name, d.expression, d.time_zone as "timeZone", d.next_at as "nextAt", d.overlap
  from schedule d join service_state s using (service_id)
  where d.next_at <= $1 and s.organization_id not in (${fullSql}) order by d.next_at limit 1 for update of d skip locked`

/** Requested, or left by a worker that has died. */
const openSql = `update task_run set worker = $1, fence = fence + 1, lease_until = ${leaseEnd(2)}
  where id = (select id from task_run where state = 'RUNNING' and lease_until < clock_timestamp()
    and organization_id not in (${fullSql}) order by lease_until, due_at limit 1 for update skip locked)
  returning ${columns}`

// Without a release there is nothing to run; while the last run continues, the next one is skipped.
const begin = `insert into task_run (id, organization_id, service_id, name, release_id, due_at, worker, lease_until, alone)
  select $1, s.organization_id, s.service_id, $7, s.current_release_id, $3, $4, ${leaseEnd(5)}, $6
  from service_state s where s.service_id = $2 and s.current_release_id is not null and s.desired = 'RUNNING'
  on conflict (service_id, name) where state = 'RUNNING' and alone do nothing
  returning ${columns}`

const ask = `insert into task_run (id, organization_id, service_id, name, release_id, due_at, lease_until, alone, asked_by)
  select $1, s.organization_id, s.service_id, $3, r.id, clock_timestamp(), '-infinity', true, $4
  from service_state s join release r on r.id = s.current_release_id
  where s.service_id = $2 and s.desired = 'RUNNING' and r.workload #> array['tasks', $3, 'on'] ? 'CRON'
  on conflict (service_id, name) where state = 'RUNNING' and alone do nothing
  returning id`

/**
 * Begins a run now, for any worker to claim. False while another one is in progress that it may not run beside, or
 * when no version with this task is deployed.
 */
export const askForRun = async (
  tx: Queryable,
  run: { id: string; serviceId: string; name: string; askedBy: string },
): Promise<boolean> => {
  const rows = await tx.query(ask, [run.id, run.serviceId, run.name, run.askedBy])
  await tx.query(`select pg_notify('slipway_schedule', '')`)
  if (rows.length > 0) await notifyRuns(tx, run.serviceId)
  return rows.length > 0
}

/** A new run, and those that it replaces, whose executions must be ended. */
interface Begun {
  run: RunClaim
  replaced: string[]
}

/**
 * Advances one due schedule and starts its run, unless it is too late or the last one continues. Null if nothing is
 * due.
 */
const takeDue = (database: Database, worker: string, now: Date): Promise<Begun | 'left out' | null> =>
  database.transaction(async (tx) => {
    const [due] = await tx.query<Required<When> & { serviceId: string; name: string; nextAt: Date }>(dueSql, [now])
    if (due === undefined) return null
    const { serviceId, name } = due
    await tx.query('update schedule set next_at = $3 where service_id = $1 and name = $2', [
      serviceId,
      name,
      after(due, now),
    ])
    if (now.getTime() - due.nextAt.getTime() > graceMs) return 'left out'
    const replaced = due.overlap === 'Replace' ? await cancelRuns(tx, serviceId, name) : []
    const alone = due.overlap !== 'Allow'
    const [run] = await tx.query<RunClaim>(begin, [newId(), serviceId, due.nextAt, worker, leaseMs, alone, name])
    if (run === undefined) return 'left out'
    await notifyRuns(tx, serviceId)
    return { run, replaced }
  })

/** Claims one run: first one that is requested or whose worker has died, then a due one; null if there is none. */
export const claimRun = async (database: Database, worker: string, now: Date): Promise<Begun | null> => {
  const [open] = await database.query<RunClaim>(openSql, [worker, leaseMs])
  if (open !== undefined) return { run: open, replaced: [] }
  for (;;) {
    const taken = await takeDue(database, worker, now)
    if (taken !== 'left out') return taken
  }
}

/** Renews the leases of these runs; returns those that continue, and whether here. */
export const prolongRuns = async (
  database: Database,
  worker: string,
  ids: readonly string[],
): Promise<Map<string, 'here' | 'elsewhere'>> => {
  const here = new Set((await renewLeases(database, runLeases, worker, ids)).map(({ id }) => id))
  const missing = ids.filter((id) => !here.has(id))
  const elsewhere =
    missing.length === 0
      ? []
      : await database.query<{ id: string }>(`select id from task_run where id = any($1) and state = 'RUNNING'`, [
          missing,
        ])
  return new Map([
    ...[...here].map((id) => [id, 'here'] as const),
    ...elsewhere.map(({ id }) => [id, 'elsewhere'] as const),
  ])
}

const finished = `select id from task_run where service_id = $1 and name = $2 and state`

/** How a run ended. */
interface RunEnd {
  error: { code: string; message: string } | null
  /** Null if its program did not end. */
  exitCode: number | null
  kept?: KeptRuns | undefined
}

/** Records how a run ended; false if it was no longer ours. Older runs are deleted, with their output. */
export const finishRun = async (
  tx: Queryable,
  run: RunClaim,
  { error, exitCode, kept = {} }: RunEnd,
): Promise<boolean> => {
  const rows = await tx.query(
    `update task_run set state = $3, error = $4, exit_code = $5, finished_at = clock_timestamp(), worker = null,
       lease_until = null
     where id = $1 and fence = $2 and state = 'RUNNING' returning id`,
    [
      run.id,
      run.fence,
      error === null ? 'SUCCEEDED' : 'FAILED',
      error === null ? null : JSON.stringify(error),
      exitCode,
    ],
  )
  await tx.query(
    `delete from task_run where service_id = $1 and name = $2 and state <> 'RUNNING' and id not in (
       (${finished} = 'SUCCEEDED' order by started_at desc limit $3)
       union all (${finished} in ('FAILED', 'CANCELED') order by started_at desc limit $4))`,
    [run.serviceId, run.name, kept.succeeded ?? usuallyKept, kept.failed ?? usuallyKept],
  )
  if (rows.length > 0) await notifyRuns(tx, run.serviceId)
  return rows.length > 0
}

/** When the next schedule is due, apart from those that wait for a place by now; null if there is none. */
export const nextDue = async (database: Database, now: Date): Promise<Date | null> => {
  const [row] = await database.query<{ at: Date | null }>(
    'select min(next_at) as at from schedule where next_at > $1',
    [now],
  )
  return row?.at ?? null
}
