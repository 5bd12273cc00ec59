/**
 * The state of a service and its notifications: the one writer of `service_state` for requests, runs and cancels. All
 * of it happens in the caller's transaction, so that no state is visible without its deployment.
 */
import { type Kind, typeOf } from '../../kinds.ts'
import { conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import type { DeploymentEventKind, EnqueueDeploymentEvent } from '../../webhooks/webhooks.ts'
import type { DeploymentAction } from '../deployments.ts'
import { actionStatusOf, openStates, stateOf } from './states.ts'

interface EnvironmentRow {
  name: string
  projectId: string
  mode: string
}

/** Locks the environment, so that requests for it take turns. */
export const lockEnvironment = async (tx: Queryable, id: string): Promise<EnvironmentRow> => {
  const [row] = await tx.query<EnvironmentRow>(
    `select name, parent_id as "projectId", coalesce(spec ->> 'mode', 'DEVELOPMENT') as mode
     from node where id = $1 and kind = 'environment' for no key update`,
    [id],
  )
  if (row === undefined) throw conflict('environment_gone', 'The environment has been deleted in the meantime.')
  return row
}

/** SQL for whether a delete of the service of `s` is queued or runs, even if another state is shown meanwhile. */
export const leavingSql = `exists (select from deployment_service w join deployment d on d.id = w.deployment_id
  where w.service_id = s.service_id and w.action = 'DELETE' and d.state in ${openStates})`

/** 409 while a delete of the whole environment is queued or runs. */
export const refuseWhileDeleting = async (tx: Queryable, environmentId: string): Promise<void> => {
  const [row] = await tx.query(
    `select 1 from deployment where environment_id = $1 and whole_environment and action = 'DELETE'
       and state in ${openStates}`,
    [environmentId],
  )
  if (row !== undefined) throw conflict('deletion_in_progress', 'The environment is being deleted.')
}

/** Makes `state` the readable state of a service. */
export const setServiceState = async (
  tx: Queryable,
  serviceId: string,
  action: string,
  state: string,
  deployment: { deploymentId: string; executionId: string },
): Promise<void> => {
  // After an uninstall the service looks as if it had never had a request.
  const shown = state === 'READY' ? 'UNKNOWN' : action
  await tx.query(
    `update service_state set state = $2, action = $3, action_status = $4, deployment_id = $5, execution_id = $6,
       forced_event = (select requested ->> 'forceEvent' from deployment_service
         where deployment_id = $5 and service_id = $1),
       updated_at = clock_timestamp() where service_id = $1`,
    [serviceId, state, shown, actionStatusOf(state), deployment.deploymentId, deployment.executionId],
  )
}

/** Shows the next request that waits for a service; false if there is none. */
export const showNextRequest = async (tx: Queryable, serviceId: string): Promise<boolean> => {
  const [next] = await tx.query<{ id: string; executionId: string; action: DeploymentAction }>(
    `select d.id, d.environment_id || '-' || d.execution_number as "executionId", d.action
     from deployment_service w join deployment d on d.id = w.deployment_id
     where w.service_id = $1 and d.state = 'QUEUED' order by d.seq limit 1`,
    [serviceId],
  )
  if (next === undefined) return false
  const deployment = { deploymentId: next.id, executionId: next.executionId }
  await setServiceState(tx, serviceId, next.action, stateOf(next.action, 'queued'), deployment)
  return true
}

/** Actions that deploy a version; stops and deletes do not: they send no webhooks and leave the date unchanged. */
export const deployingActions: ReadonlySet<string> = new Set(['DEPLOY', 'RESTART'])

/** Queues webhook events about one service of a deployment. */
export const enqueueEvent = async (
  tx: Queryable,
  parts: { enqueue: EnqueueDeploymentEvent },
  kind: DeploymentEventKind,
  about: {
    organizationId: string
    projectId: string
    mode: string
    environmentId: string
    deploymentId: string
    executionId: string
    action: string
    service: { id: string; kind: Kind; name: string }
    state: string
    reason: string | null
  },
): Promise<void> => {
  if (!deployingActions.has(about.action)) return
  await parts.enqueue(tx, {
    kind,
    organizationId: about.organizationId,
    projectId: about.projectId,
    environmentId: about.environmentId,
    environmentMode: about.mode,
    serviceId: about.service.id,
    serviceType: typeOf(about.service.kind),
    serviceName: about.service.name,
    deploymentId: about.deploymentId,
    executionId: about.executionId,
    state: about.state,
    reason: about.reason,
  })
}
