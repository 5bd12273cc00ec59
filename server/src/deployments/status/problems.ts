/**
 * The failures in a service's status: the sentence of a failed deployment, the present problem, and how an instance
 * ended last. The first belongs to the deployment; the others are stored with the service's state by the code that
 * finds them: the reconciler, and a deployment that waits for something.
 */
import type { Queryable } from '../../store/database.ts'
import type { Problem, ServiceStatus, StateRow } from '../deployments.ts'

/** SQL for the members of a JSON object that `problemFrom` reads, of a row `m` of `service_state`. */
export const problemSql = (m: string): string => `'problem', ${m}.problem, 'restarts', ${m}.restarts,
    'failure', case when right(${m}.state, 6) = '_ERROR' then (select json_build_object('code', w.error ->> 'code',
        'message', w.error ->> 'message')
      from deployment_service w where w.deployment_id = ${m}.deployment_id and w.service_id = ${m}.service_id
        and w.error is not null) end`

/** SQL: whether any of them exists. */
export const hasProblemSql = (m: string): string =>
  `(${m}.problem is not null or ${m}.restarts is not null or right(${m}.state, 6) = '_ERROR')`

/** For a minimum of 0 that is impossible. */
export const neverSleeps =
  'One instance always runs: only a service with a public HTTP or gRPC port, and without a public TCP or UDP port, can be woken by a request.'

const unknown: Problem = {
  code: 'cluster_unavailable',
  message: 'The cluster does not answer: the state of its services is unknown.',
}

const isNow = ({ deploymentId }: Problem, row: StateRow): boolean =>
  deploymentId === undefined || deploymentId === row.deploymentId

const errorOf = (row: StateRow): Problem | null => {
  const { failure = null, problem = null } = row.exceptions ?? {}
  // A failed deploy takes precedence over problems of the version that it was to replace.
  if (failure !== null && row.action === 'DEPLOY') return failure
  if (row.runningState === 'UNAVAILABLE') return unknown
  return problem !== null && isNow(problem, row) ? problem : failure
}

export const problemFrom = (row: StateRow): Pick<ServiceStatus, 'error' | 'restarts'> => {
  const error = errorOf(row)
  const restarts = row.exceptions?.restarts ?? null
  return {
    ...(error === null ? {} : { error: { code: error.code, message: error.message } }),
    ...(restarts === null ? {} : { restarts }),
  }
}

/** Shows in a service's status which system its deployment waits for, until that continues or ends. */
export const noteProblem = (
  db: Queryable,
  deploymentId: string,
  serviceId: string,
  message: string,
): Promise<unknown> =>
  db.query(
    `update service_state s set problem = $3 from deployment_service w
     where s.service_id = $2 and w.service_id = $2 and w.deployment_id = $1 and w.finished_at is null`,
    [deploymentId, serviceId, JSON.stringify({ code: 'not_ready', message, deploymentId } satisfies Problem)],
  )
