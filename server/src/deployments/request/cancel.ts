/** Cancels requests: queued ones end at once, running ones are asked to end. */
import type { Kind } from '../../kinds.ts'
import { type ApiError, conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { enqueueEvent, lockEnvironment, showNextRequest } from '../status/service-state.ts'
import { openStates } from '../status/states.ts'
import type { RequestParts } from './request.ts'

/** The payload of `slipway_cancel` for a part of a deployment; for a whole one it is the deployment's id. */
export const partKey = (deploymentId: string, serviceId: string): string => `${deploymentId}/${serviceId}`

interface WaitingService {
  deploymentId: string
  executionId: string
  organizationId: string
  action: string
  id: string
  kind: Kind
  name: string
}

/** Ends parts of queued deployments, all of each or only those of some services; none of these was touched. */
const endWaitingParts = async (
  tx: Queryable,
  ids: readonly string[],
  serviceIds: readonly string[] | null,
  parts: RequestParts,
): Promise<void> => {
  const services = await tx.query<WaitingService & { environmentId: string; projectId: string; mode: string }>(
    `update deployment_service w set state = 'CANCELED', finished_at = clock_timestamp(),
       end_requested_at = case when $2::uuid[] is null then end_requested_at else clock_timestamp() end
     from deployment d join node e on e.id = d.environment_id
     where w.deployment_id = any($1) and d.id = w.deployment_id and w.finished_at is null
       and ($2::uuid[] is null or w.service_id = any($2))
     returning w.deployment_id as "deploymentId", d.environment_id || '-' || d.execution_number as "executionId",
       d.organization_id as "organizationId", w.action, w.service_id as id, w.kind, w.name,
       d.environment_id as "environmentId", e.parent_id as "projectId", e.spec ->> 'mode' as mode`,
    [ids, serviceIds],
  )
  for (const service of services) {
    const [shown] = await tx.query(
      `update service_state s set state = 'CANCELED', action_status = 'CANCELED', updated_at = clock_timestamp()
       where service_id = $1 and deployment_id = $2 returning 1`,
      [service.id, service.deploymentId],
    )
    if (shown !== undefined) await showNextRequest(tx, service.id)
    await enqueueEvent(tx, parts, 'DEPLOYMENT_CANCELLED', { ...service, service, state: 'CANCELED', reason: null })
  }
}

/** Ends queued deployments; none of their services was touched. */
export const cancelWaiting = async (tx: Queryable, ids: readonly string[], parts: RequestParts): Promise<void> => {
  await tx.query(
    `update deployment set state = 'CANCELED', cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
     where id = any($1)`,
    [ids],
  )
  await endWaitingParts(tx, ids, null, parts)
}

/** `serviceIds`: null for all services that are not finished. */
const showCanceling = (tx: Queryable, ids: readonly string[], serviceIds: readonly string[] | null): Promise<unknown> =>
  tx.query(
    `update service_state s set state = 'CANCELING', action_status = 'CANCELING', updated_at = clock_timestamp()
     from deployment_service w
     where w.deployment_id = any($1) and w.finished_at is null and s.service_id = w.service_id
       and s.deployment_id = w.deployment_id and ($2::uuid[] is null or w.service_id = any($2))`,
    [ids, serviceIds],
  )

export const cancelRunning = async (tx: Queryable, ids: readonly string[], force: boolean): Promise<void> => {
  await tx.query(
    `update deployment set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       cancel_force = cancel_force or $2 where id = any($1)`,
    [ids, force],
  )
  await showCanceling(tx, ids, null)
  for (const id of ids) await tx.query(`select pg_notify('slipway_cancel', $1)`, [id])
}

/** Ends an open deployment's work for some of its services; it continues with the others. */
export const cancelParts = async (
  tx: Queryable,
  { id, isWaiting, serviceIds }: { id: string; isWaiting: boolean; serviceIds: readonly string[] },
  parts: RequestParts,
): Promise<void> => {
  if (isWaiting) return endWaitingParts(tx, [id], serviceIds, parts)
  await tx.query(
    `update deployment_service set end_requested_at = coalesce(end_requested_at, clock_timestamp())
     where deployment_id = $1 and service_id = any($2) and finished_at is null`,
    [id, serviceIds],
  )
  await showCanceling(tx, [id], serviceIds)
  for (const serviceId of serviceIds) await tx.query(`select pg_notify('slipway_cancel', $1)`, [partKey(id, serviceId)])
}

/** See `Deployments.cancel`. A running deployment is asked to end; queued ones end here. A deletion stays. */
export const cancelDeployments = async (
  tx: Queryable,
  environmentId: string,
  parts: RequestParts,
  { deploymentId: only, force = false }: { deploymentId?: string; force?: boolean } = {},
): Promise<void> => {
  await lockEnvironment(tx, environmentId)
  const open = await tx.query<{ id: string; state: string; action: string }>(
    `select id, state, action from deployment where environment_id = $1 and state in ${openStates}
       and ($2::uuid is null or id = $2) order by seq for update`,
    [environmentId, only ?? null],
  )
  const waiting = open.filter(({ state, action }) => state === 'QUEUED' && action !== 'DELETE')
  const running = open.filter(({ state, action }) => state === 'RUNNING' && !/^(DELETE|UNINSTALL)$/.test(action))
  if (waiting.length + running.length === 0) throw nothingToCancel(open.length > 0)
  await cancelWaiting(
    tx,
    waiting.map(({ id }) => id),
    parts,
  )
  await cancelRunning(
    tx,
    running.map(({ id }) => id),
    force,
  )
  await tx.query(`select pg_notify('slipway_deployment', '')`)
}

const nothingToCancel = (isRemoving: boolean): ApiError =>
  conflict(
    'nothing_to_cancel',
    isRemoving
      ? 'A deletion, and an uninstall that has begun, cannot be canceled.'
      : 'This environment has no running or queued deployment to cancel.',
  )
