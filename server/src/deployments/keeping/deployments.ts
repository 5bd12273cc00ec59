/**
 * How many deployments of an environment are kept, with their steps and logs: the newest ones; those of releases that
 * are kept, without which a rollback would not know that they ran; and of each service the last success before them,
 * so that a rollback of the environment knows what it ran. Deployments in progress are never touched.
 */
import type { Queryable } from '../../store/database.ts'
import { openStates } from '../status/states.ts'

/** Few enough not to block others: each may have many lines of logs. */
const batch = 100
/** Of deleted environments: for clients that still ask how the deletion ended. */
const deletedDays = 1

/** The deployments of environment $1 that are not among its $2 newest, and not needed by what is kept without releases $4. */
const oldSql = `horizon as (
    select execution_number as number from deployment where environment_id = $1
    order by execution_number desc offset $2 limit 1
  ), before as (
    select distinct on (w.service_id) w.deployment_id as id
    from deployment d join horizon h on d.execution_number <= h.number
      join deployment_service w on w.deployment_id = d.id join service_state s on s.service_id = w.service_id
    where d.environment_id = $1 and w.state in ('DEPLOYED', 'RESTARTED') and w.release_id is not null
    order by w.service_id, d.execution_number desc
  ), old as (
    select d.id, d.created_at from deployment d join horizon h on d.execution_number <= h.number
    where d.environment_id = $1 and d.state not in ${openStates}
      and d.id not in (select id from before)
      and not exists (select from service_state s where s.environment_id = $1 and s.deployment_id = d.id)
      and not exists (select from deployment_service w join release r on r.service_id = w.service_id
        and r.deployment_id = w.deployment_id where w.deployment_id = d.id and r.id <> all($4::uuid[]))
    order by d.execution_number limit $3
  )`

/** Deletes them in batches, at most so many; resolves to their number. Stops between two when `signal` aborts. */
export const deleteOldDeployments = async (
  db: Queryable,
  environmentId: string,
  kept: number,
  signal: AbortSignal,
  batches = Number.POSITIVE_INFINITY,
): Promise<number> => {
  let all = 0
  for (let turn = 0; turn < batches; turn += 1) {
    signal.throwIfAborted()
    const rows = await db.query(`with ${oldSql} delete from deployment where id in (select id from old) returning 1`, [
      environmentId,
      kept,
      batch,
      [],
    ])
    all += rows.length
    if (rows.length < batch) break
  }
  return all
}

export interface OldDeployments {
  count: number
  /** Of their logs and steps. */
  bytes: number
  oldest: Date | null
}

/** What would be deleted after the releases `going`, at most a hundred thousand. */
export const readOldDeployments = async (
  db: Queryable,
  environmentId: string,
  kept: number,
  going: readonly string[],
): Promise<OldDeployments> => {
  const [row] = await db.query<OldDeployments>(
    `with ${oldSql} select count(*)::int as count, min(created_at) as oldest,
       coalesce(sum((select sum(octet_length(l.lines::text)) from deployment_log l where l.deployment_id = o.id)), 0)::float8
         + coalesce(sum((select sum(octet_length(p.result::text)) from deployment_step p where p.deployment_id = o.id)), 0)::float8
         as bytes
     from old o`,
    [environmentId, kept, 100_000, going],
  )
  return row!
}

/** Environments that have more. */
export const environmentsWithMore = async (db: Queryable, kept: number): Promise<string[]> => {
  const rows = await db.query<{ id: string }>(
    'select environment_id as id from deployment group by environment_id having count(*) > $1',
    [kept],
  )
  return rows.map(({ id }) => id)
}

/** Those of deleted environments. */
export const deleteDeploymentsOfDeleted = async (db: Queryable, signal: AbortSignal): Promise<void> => {
  for (;;) {
    signal.throwIfAborted()
    const rows = await db.query(
      `delete from deployment where id in (select d.id from deployment d
         where d.state not in ${openStates} and d.finished_at < clock_timestamp() - $1 * interval '1 day'
           and not exists (select from node n where n.id = d.environment_id) limit $2) returning 1`,
      [deletedDays, batch],
    )
    if (rows.length < batch) return
  }
}
