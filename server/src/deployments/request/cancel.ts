/** Cancels requests: queued ones end at once, running ones are asked to end. */
import type { Kind } from '../../kinds.ts'
import { conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { enqueueEvent, lockEnvironment, showNextRequest } from '../status/service-state.ts'
import type { RequestParts } from './request.ts'

interface WaitingService {
  deploymentId: string
  executionId: string
  organizationId: string
  action: string
  id: string
  kind: Kind
  name: string
}

/** Ends a queued deployment; none of its services was touched. */
const cancelWaiting = async (tx: Queryable, ids: readonly string[], parts: RequestParts): Promise<void> => {
  const services = await tx.query<WaitingService & { environmentId: string; projectId: string; mode: string }>(
    `update deployment_service w set state = 'CANCELED', finished_at = clock_timestamp()
     from deployment d join node e on e.id = d.environment_id
     where w.deployment_id = any($1) and d.id = w.deployment_id
     returning w.deployment_id as "deploymentId", d.environment_id || '-' || d.execution_number as "executionId",
       d.organization_id as "organizationId", w.action, w.service_id as id, w.kind, w.name,
       d.environment_id as "environmentId", e.parent_id as "projectId", e.spec ->> 'mode' as mode`,
    [ids],
  )
  await tx.query(
    `update deployment set state = 'CANCELED', cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()
     where id = any($1)`,
    [ids],
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

/** See `Deployments.cancel`. A running deployment is asked to end; queued ones end here. */
export const cancelDeployments = async (
  tx: Queryable,
  environmentId: string,
  parts: RequestParts,
  { deploymentId: only, force = false }: { deploymentId?: string; force?: boolean } = {},
): Promise<void> => {
  await lockEnvironment(tx, environmentId)
  const waiting = await tx.query<{ id: string }>(
    `select id from deployment where environment_id = $1 and state = 'QUEUED' and ($2::uuid is null or id = $2)
     for update`,
    [environmentId, only ?? null],
  )
  const running = await tx.query<{ id: string }>(
    `update deployment set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()),
       cancel_force = cancel_force or $3
     where environment_id = $1 and state = 'RUNNING' and action not in ('DELETE', 'UNINSTALL') and ($2::uuid is null or id = $2)
     returning id`,
    [environmentId, only ?? null, force],
  )
  if (waiting.length + running.length === 0)
    throw conflict('nothing_to_cancel', 'This environment has no running or queued deployment to cancel.')
  await cancelWaiting(
    tx,
    waiting.map((row) => row.id),
    parts,
  )
  await tx.query(
    `update service_state s set state = 'CANCELING', action_status = 'CANCELING', updated_at = clock_timestamp()
     from deployment_service w
     where w.deployment_id = any($1) and w.finished_at is null and s.service_id = w.service_id
       and s.deployment_id = w.deployment_id`,
    [running.map((row) => row.id)],
  )
  for (const { id } of running) await tx.query(`select pg_notify('slipway_cancel', $1)`, [id])
  await tx.query(`select pg_notify('slipway_deployment', '')`)
}
