/**
 * Taking a request: writes the deployment, the new states of its services and the STARTED events in the caller's
 * transaction, so that an accepted request is never lost and is readable before its answer is sent.
 */
import { conflict } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import type { DeploymentEventKind, EnqueueDeploymentEvent } from '../webhooks/webhooks.ts'
import type { AcceptedDeployment, DeploymentAction, DeploymentRequest } from './deployments.ts'
import { actionStatusOf, isFinal, stateOf } from './states.ts'

interface ServiceRow {
  id: string
  kind: string
  name: string
  state: string
  action: string
  queued: number
  released: boolean
}

interface EnvironmentRow {
  projectId: string
  mode: string
}

export interface KindFacts {
  serviceType: string
  stage: number
}

export interface RequestParts {
  kindOf(kind: string): KindFacts
  enqueue: EnqueueDeploymentEvent
}

/** Locks the environment, so that requests for it take turns. */
const lockEnvironment = async (tx: Queryable, id: string): Promise<EnvironmentRow> => {
  const [row] = await tx.query<EnvironmentRow>(
    `select parent_id as "projectId", coalesce(spec ->> 'mode', 'DEVELOPMENT') as mode
     from node where id = $1 and kind = 'environment' for no key update`,
    [id],
  )
  if (row === undefined) throw conflict('environment_gone', 'The environment was deleted meanwhile.')
  return row
}

const readServices = (tx: Queryable, ids: readonly string[]): Promise<ServiceRow[]> =>
  tx.query<ServiceRow>(
    `select s.service_id as id, s.kind, n.name, s.state, s.action, s.current_release_id is not null as released,
       (select count(*)::int from deployment_service w join deployment d on d.id = w.deployment_id
        where w.service_id = s.service_id and d.state in ('QUEUED', 'RUNNING')) as queued
     from service_state s join node n on n.id = s.service_id
     where s.service_id = any($1) order by n.created_at, n.id for no key update of s`,
    [ids],
  )

const refuseImpossible = (action: DeploymentAction, services: readonly ServiceRow[]): void => {
  for (const service of services) {
    if (service.action === 'DELETE' && service.queued > 0)
      throw conflict('deletion_in_progress', `The service ${service.name} is being deleted.`)
    if (action === 'RESTART' && !service.released)
      throw conflict('not_deployed', `The service ${service.name} is not deployed, so it cannot be restarted.`)
  }
}

const signature = (services: readonly { id: string; commitId?: string; redeploy?: boolean }[]): string =>
  JSON.stringify(
    services
      .map((service) => [service.id, service.commitId ?? null, service.redeploy ?? false])
      .sort((a, b) => String(a[0]).localeCompare(String(b[0]))),
  )

/** A request that equals the last one still waiting joins it. */
const findEqual = async (tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment | null> => {
  const [last] = await tx.query<{ id: string; n: number; action: string; whole: boolean; at: Date; services: string }>(
    `select d.id, d.execution_number as n, d.action, d.whole_environment as whole, d.created_at as at,
       (select json_agg(json_build_array(w.service_id, w.requested -> 'commitId', coalesce(w.requested -> 'redeploy', 'false'))
          order by w.service_id)::text from deployment_service w where w.deployment_id = d.id) as services
     from deployment d where d.environment_id = $1 and d.state = 'QUEUED' order by d.seq desc limit 1`,
    [request.environmentId],
  )
  if (last === undefined || last.action !== request.action || last.whole !== request.wholeEnvironment) return null
  const equal = JSON.stringify(JSON.parse(last.services ?? '[]')) === signature(request.services)
  return equal ? accepted(request.environmentId, last.id, last.n, last.at) : null
}

const accepted = (environmentId: string, id: string, n: number, at: Date): AcceptedDeployment => ({
  deploymentId: id,
  executionId: `${environmentId}-${n}`,
  createdAt: at.toISOString(),
})

const insertDeployment = async (tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment> => {
  const [row] = await tx.query<{ id: string; n: number; at: Date }>(
    `insert into deployment (id, organization_id, environment_id, execution_number, action, whole_environment, origin,
       triggered_by, request_id)
     values ($1, $2, $3, 1 + (select coalesce(max(execution_number), 0) from deployment where environment_id = $3),
       $4, $5, $6, $7, $8)
     returning id, execution_number as n, created_at as at`,
    [
      newId(),
      request.organizationId,
      request.environmentId,
      request.action,
      request.wholeEnvironment,
      request.origin,
      request.triggeredBy,
      request.requestId,
    ],
  )
  return accepted(request.environmentId, row!.id, row!.n, row!.at)
}

const insertServices = async (
  tx: Queryable,
  request: DeploymentRequest,
  deployment: AcceptedDeployment,
  services: readonly ServiceRow[],
  parts: RequestParts,
): Promise<void> => {
  const queued = stateOf(request.action, 'queued')
  const asked = new Map(request.services.map((service) => [service.id, service]))
  for (const service of services) {
    const { commitId, redeploy } = asked.get(service.id)!
    await tx.query(
      `insert into deployment_service (deployment_id, service_id, organization_id, kind, name, stage, action, requested, state)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
      [
        deployment.deploymentId,
        service.id,
        request.organizationId,
        service.kind,
        service.name,
        parts.kindOf(service.kind).stage,
        request.action,
        JSON.stringify({ commitId, redeploy }),
        queued,
      ],
    )
    // What is under way keeps showing its own state; the end of it then shows this request's.
    if (service.queued === 0 || isFinal(service.state))
      await showState(tx, service.id, request.action, queued, deployment)
  }
}

/** Makes `state` the readable state of a service. */
export const showState = async (
  tx: Queryable,
  serviceId: string,
  action: string,
  state: string,
  deployment: { deploymentId: string; executionId: string },
): Promise<void> => {
  await tx.query(
    `update service_state set state = $2, action = $3, action_status = $4, deployment_id = $5, execution_id = $6,
       updated_at = clock_timestamp() where service_id = $1`,
    [serviceId, state, action, actionStatusOf(state), deployment.deploymentId, deployment.executionId],
  )
}

/** Actions that deploy a version; stops and deletes do not: webhooks are not told and the date does not change. */
export const deployingActions: ReadonlySet<string> = new Set(['DEPLOY', 'RESTART'])

/** Tells webhooks about one service of a deployment. */
export const tell = async (
  tx: Queryable,
  parts: RequestParts,
  kind: DeploymentEventKind,
  about: {
    organizationId: string
    projectId: string
    mode: string
    environmentId: string
    deploymentId: string
    executionId: string
    action: string
    service: { id: string; kind: string; name: string }
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
    serviceType: parts.kindOf(about.service.kind).serviceType,
    serviceName: about.service.name,
    deploymentId: about.deploymentId,
    executionId: about.executionId,
    state: about.state,
    reason: about.reason,
  })
}

/** Something never deployed needs no engine to be deleted: its rows are all there is. */
const deleteAtOnce = async (
  tx: Queryable,
  request: DeploymentRequest,
  services: readonly ServiceRow[],
): Promise<boolean> => {
  if (request.action !== 'DELETE') return false
  if (services.some((service) => service.state !== 'READY' || service.released || service.queued > 0)) return false
  if (request.wholeEnvironment) {
    const [busy] = await tx.query(
      `select 1 from deployment where environment_id = $1 and state in ('QUEUED', 'RUNNING')
       union all select 1 from deployment where environment_id = $1 and started_at is not null limit 1`,
      [request.environmentId],
    )
    if (busy !== undefined) return false
    await tx.query('delete from node where id = $1', [request.environmentId])
    return true
  }
  await tx.query('delete from node where id = any($1)', [services.map((service) => service.id)])
  return true
}

const refuseWhileDeleting = async (tx: Queryable, environmentId: string): Promise<void> => {
  const [row] = await tx.query(
    `select 1 from deployment where environment_id = $1 and whole_environment and action = 'DELETE'
       and state in ('QUEUED', 'RUNNING')`,
    [environmentId],
  )
  if (row !== undefined) throw conflict('deletion_in_progress', 'The environment is being deleted.')
}

/** See `Deployments.request`. */
export const requestDeployment = async (
  tx: Queryable,
  request: DeploymentRequest,
  parts: RequestParts,
): Promise<AcceptedDeployment> => {
  const environment = await lockEnvironment(tx, request.environmentId)
  const joined = await findEqual(tx, request)
  if (joined !== null) return joined
  await refuseWhileDeleting(tx, request.environmentId)
  const services = await readServices(
    tx,
    request.services.map((service) => service.id),
  )
  refuseImpossible(request.action, services)
  if (await deleteAtOnce(tx, request, services)) return accepted(request.environmentId, newId(), 0, new Date())
  const deployment = await insertDeployment(tx, request)
  await insertServices(tx, request, deployment, services, parts)
  const queued = stateOf(request.action, 'queued')
  for (const service of services)
    await tell(tx, parts, 'DEPLOYMENT_STARTED', {
      ...request,
      ...environment,
      ...deployment,
      service,
      state: queued,
      reason: null,
    })
  await tx.query(`select pg_notify('slipway_deployment', ''), pg_notify('slipway_status', $1)`, [request.environmentId])
  return deployment
}

interface WaitingService {
  deploymentId: string
  executionId: string
  organizationId: string
  action: string
  id: string
  kind: string
  name: string
}

/** Ends what still waits in the queue; none of its services was touched. */
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
    await tx.query(
      `update service_state s set state = 'CANCELED', action_status = 'CANCELED', updated_at = clock_timestamp()
       where service_id = $1 and deployment_id = $2`,
      [service.id, service.deploymentId],
    )
    await tell(tx, parts, 'DEPLOYMENT_CANCELLED', { ...service, service, state: 'CANCELED', reason: null })
  }
}

/** See `Deployments.cancel`. A running deployment is told to end; waiting ones end here. */
export const cancelDeployments = async (
  tx: Queryable,
  environmentId: string,
  parts: RequestParts,
  only?: string,
): Promise<void> => {
  await lockEnvironment(tx, environmentId)
  const waiting = await tx.query<{ id: string }>(
    `select id from deployment where environment_id = $1 and state = 'QUEUED' and ($2::uuid is null or id = $2)
     for update`,
    [environmentId, only ?? null],
  )
  const running = await tx.query<{ id: string }>(
    `update deployment set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
     where environment_id = $1 and state = 'RUNNING' and action <> 'DELETE' and ($2::uuid is null or id = $2)
     returning id`,
    [environmentId, only ?? null],
  )
  if (waiting.length + running.length === 0)
    throw conflict('nothing_to_cancel', 'No deployment of this environment is under way that could be canceled.')
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
  await tx.query(`select pg_notify('slipway_deployment', ''), pg_notify('slipway_status', $1)`, [environmentId])
}
