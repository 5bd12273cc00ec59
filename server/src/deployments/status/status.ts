/**
 * Reads statuses: one statement over the table `service_state`. Whether a service is out of date is computed once
 * after each change of its inputs, and stored (freshness.ts).
 */
import type { Kind } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { instantSql, toTimestamp } from '../../store/long-list.ts'
import { timestampSql } from '../../store/tree.ts'
import type { Deployments, ServiceStatus, StateRow } from '../deployments.ts'
import { type DeploymentParts, kindOf } from '../parts.ts'
import { renewWantedHashes } from './freshness.ts'
import { hasProblemSql, neverSleeps, problemFrom, problemSql } from './problems.ts'
import { isFinal, openStates } from './states.ts'
import { stepsFrom, stepsSql } from './step-metrics.ts'

/** In one column: each column costs in every row, even if empty. */
const exceptionsSql = `case when m.forced_event is not null or m.scaling is not null or ${hasProblemSql('m')}
    then json_build_object('forcedEvent', m.forced_event, 'scale', m.scale,
      'scaling', case when m.desired = 'RUNNING' and m.current_release_id is not null then m.scaling end,
      ${problemSql('m')}) end`

const stateColumns = `m.service_id as id, m.kind, m.state, m.action, m.action_status as "actionStatus",
    m.running_state as "runningState", m.deployment_id as "deploymentId", m.execution_id as "executionId",
    m.current_release_id is not null as released, m.deployed_hash as "deployedHash", m.wanted_hash as "desiredHash",
    ${exceptionsSql} as exceptions`

const readByIds = `
  with mine as (select * from service_state where service_id = any($1)),
  last as (select e.environment_id, (select d.id from deployment d where d.environment_id = e.environment_id
      order by d.created_at desc, d.id desc limit 1) as id
    from (select distinct environment_id from mine) e),
  open as (select w.service_id, count(*)::int as n
    from last l join deployment d on d.environment_id = l.environment_id
      join deployment_service w on w.deployment_id = d.id
    where d.state in ${openStates} group by w.service_id)
  select ${stateColumns}, coalesce(m.deployment_id = last.id, false) as "isPart", coalesce(open.n, 0) as requests,
    ${timestampSql('m.last_deployment_at')} as "lastAt", ${stepsSql('m')} as steps
  from mine m left join last on last.environment_id = m.environment_id left join open on open.service_id = m.service_id`

/** Scalar subselects run once a statement; the two partial indexes contain only open deployments. */
const openOf = (state: string): string =>
  `select w.service_id from deployment d join deployment_service w on w.deployment_id = d.id
   where d.environment_id = $1 and d.state = '${state}'`

const environmentSql = (more: string): string => `
  select ${stateColumns}${more}, ${instantSql('m.last_deployment_at')} as "lastAt",
    coalesce(m.deployment_id = (select d.id from deployment d where d.environment_id = $1
      order by d.created_at desc, d.id desc limit 1), false) as "isPart",
    (select json_object_agg(o.service_id, o.n)::text
      from (select service_id, count(*)::int as n from (${openOf('RUNNING')} union all ${openOf('QUEUED')}) w
        group by service_id) o) as open
  from service_state m where m.environment_id = $1`

const readByEnvironment = environmentSql(`, m.is_skipped as "isSkipped", ${stepsSql('m')} as steps`)

const readOwn = `${environmentSql('')} and m.organization_id = $2 and m.kind = $3`

type EnvironmentRow = StateRow & { open: string | null }

const readEnvironmentRows = async (db: Queryable, text: string, values: readonly unknown[]): Promise<StateRow[]> => {
  const rows = await db.query<EnvironmentRow>(text, values)
  const open = rows[0]?.open == null ? null : (JSON.parse(rows[0].open) as Record<string, number>)
  for (const row of rows) {
    if (open !== null) row.requests = open[row.id] ?? 0
    if (row.lastAt !== null) row.lastAt = toTimestamp(row.lastAt)
  }
  return rows
}

/** Rows of an environment's services of one kind, none when it is not the organization's. */
export const readStates = (db: Queryable, environmentId: string, organizationId: string, kind: Kind) =>
  readEnvironmentRows(db, readOwn, [environmentId, organizationId, kind])

const deploymentStatus = (row: StateRow): ServiceStatus['service_deployment_status'] => {
  if (!row.released) return 'NEVER_DEPLOYED'
  const lastFailed = row.state === 'BUILD_ERROR' || row.state === 'DEPLOYMENT_ERROR'
  return row.desiredHash === row.deployedHash && !lastFailed ? 'UP_TO_DATE' : 'OUT_OF_DATE'
}

/** The public list of actions has no word for an uninstall. */
export const publicAction = (action: string): string => (action === 'UNINSTALL' ? 'DELETE' : action)

const subActionOf = (
  parts: Pick<DeploymentParts, 'kinds'>,
  { kind, action, exceptions }: Pick<StateRow, 'kind' | 'action' | 'exceptions'>,
): string =>
  (action === 'UNKNOWN' ? undefined : kindOf(parts, kind).subAction?.(action, exceptions?.forcedEvent ?? null)) ??
  'NONE'

const toStatus = (parts: DeploymentParts, row: StateRow): ServiceStatus => ({
  id: row.id,
  state: row.state,
  service_deployment_status: deploymentStatus(row),
  is_part_last_deployment: row.isPart,
  status_details: { action: publicAction(row.action), status: row.actionStatus, sub_action: subActionOf(parts, row) },
  deployment_request_id: row.deploymentId === null || isFinal(row.state) ? null : row.deploymentId,
  deployment_requests_count: row.requests ?? 0,
  ...(row.lastAt === null ? {} : { last_deployment_date: row.lastAt }),
  ...(row.executionId === null ? {} : { execution_id: row.executionId }),
  deployment_state: row.state,
  running_state: row.runningState,
  ...scalingOf(row),
  ...problemFrom(row),
  ...stepsFrom(row.steps),
})

const scalingOf = ({ exceptions }: StateRow): Pick<ServiceStatus, 'scaling'> => {
  const { scaling = null, scale = null } = exceptions ?? {}
  if (scaling === null || scale === null) return {}
  const { min, max, sleeps } = scaling
  const isAsleep = scale === 0
  return {
    scaling: {
      running_instances: scale,
      minimum: min,
      maximum: max,
      asleep: isAsleep,
      ...(min === 0 && !sleeps ? { message: neverSleeps } : {}),
    },
  }
}

type Statuses = Pick<Deployments, 'statuses' | 'environmentStatuses' | 'statusesOf'>

export const createStatuses = (parts: DeploymentParts): Statuses => {
  const renew = (db: Queryable, rows: readonly StateRow[]): Promise<void> =>
    renewWantedHashes(
      parts,
      db,
      rows.filter((row) => row.released && row.desiredHash === null),
    )
  return {
    async statuses(db, serviceIds) {
      const all = await db.query<StateRow>(readByIds, [serviceIds])
      await renew(db, all)
      const rows = new Map(all.map((row) => [row.id, row]))
      return serviceIds.flatMap((id) => rows.get(id) ?? []).map((row) => toStatus(parts, row))
    },
    async environmentStatuses(db, environmentId) {
      const rows = await readEnvironmentRows(db, readByEnvironment, [environmentId])
      await renew(db, rows)
      return rows.map((row) => ({ kind: row.kind, isSkipped: row.isSkipped === true, status: toStatus(parts, row) }))
    },
    async statusesOf(db, rows) {
      await renew(db, rows)
      return rows.map((row) => toStatus(parts, row))
    },
  }
}
