/**
 * Taking a request: writes the deployment, the new states of its services and the STARTED events in the caller's
 * transaction, so that an accepted request is never lost and is readable before its answer is sent.
 */
import { badRequest, conflict } from '../lib/errors.ts'
import { newId } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import type { DeploymentEventKind, EnqueueDeploymentEvent } from '../webhooks/webhooks.ts'
import type {
  AcceptedDeployment,
  DeployableKind,
  DeploymentAction,
  DeploymentRequest,
  ServiceRequest,
} from './deployments.ts'
import type { EngineParts } from './engine-parts.ts'
import { readPlacement } from './stage-rows.ts'
import { actionStatusOf, isFinal, stateOf } from './states.ts'

interface ServiceRow {
  id: string
  kind: string
  name: string
  state: string
  action: string
  queued: number
  released: boolean
  spec: Record<string, unknown>
}

interface EnvironmentRow {
  projectId: string
  mode: string
}

export type KindFacts = Pick<DeployableKind, 'serviceType' | 'stage' | 'refusal' | 'task'>

export interface RequestParts {
  kindOf(kind: string): KindFacts
  clusterRefusal?: EngineParts['clusterRefusal']
  enqueue: EnqueueDeploymentEvent
}

/** Locks the environment, so that requests for it take turns. */
export const lockEnvironment = async (tx: Queryable, id: string): Promise<EnvironmentRow> => {
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
    `select s.service_id as id, s.kind, n.name, n.spec, s.state, s.action, s.current_release_id is not null as released,
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

const isTaskless = ({ task }: KindFacts, { spec }: ServiceRow, { forceEvent }: ServiceRequest): boolean =>
  forceEvent !== undefined && task?.(spec).on[forceEvent] === undefined

/** The services that a deploy can be about. Those of a whole environment that cannot be deployed are left as they are. */
const chooseDeployable = async (
  tx: Queryable,
  request: DeploymentRequest,
  services: readonly ServiceRow[],
  parts: RequestParts,
): Promise<ServiceRow[]> => {
  if (!deployingActions.has(request.action)) return [...services]
  const cluster = (await parts.clusterRefusal?.(tx, request.environmentId)) ?? null
  if (cluster !== null) throw badRequest(cluster, undefined, 'cluster_not_deployable')
  const asked = new Map(request.services.map((service) => [service.id, service]))
  const refusals = new Map<string, string>()
  for (const service of services) {
    const kind = parts.kindOf(service.kind)
    const refusal = kind.refusal?.(service.spec) ?? null
    if (refusal !== null) refusals.set(service.id, refusal)
    else if (request.action === 'RESTART' && kind.task !== undefined)
      throw badRequest(`The service ${service.name} has no instances to restart: deploy it to run it again.`)
    else if (isTaskless(kind, service, asked.get(service.id)!))
      throw badRequest(`The service ${service.name} does nothing at this event.`, undefined, 'event_missing')
  }
  const left = services.filter(({ id }) => !refusals.has(id))
  const [first] = refusals.values()
  if (first !== undefined && (!request.wholeEnvironment || left.length === 0))
    throw badRequest(first, undefined, 'not_deployable')
  return left
}

const signature = (services: readonly ServiceRequest[]): string =>
  JSON.stringify(
    services
      .map(({ id, commitId, redeploy, imageTag, forceEvent }) => [
        id,
        commitId ?? null,
        redeploy ?? false,
        imageTag ?? null,
        forceEvent ?? null,
      ])
      .sort((a, b) => String(a[0]).localeCompare(String(b[0]))),
  )

/** A request that equals the last one still waiting joins it. */
const findEqual = async (tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment | null> => {
  const [last] = await tx.query<{ id: string; n: number; action: string; whole: boolean; at: Date; services: string }>(
    `select d.id, d.execution_number as n, d.action, d.whole_environment as whole, d.created_at as at,
       (select json_agg(json_build_array(w.service_id, w.requested -> 'commitId', coalesce(w.requested -> 'redeploy', 'false'),
          w.requested -> 'imageTag', w.requested -> 'forceEvent')
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
  const placement = await readPlacement(tx, request.environmentId)
  for (const service of services) {
    const { id: _, ...requested } = asked.get(service.id)!
    const stage = placement.stageOf(service.id, parts.kindOf(service.kind).stage)
    await tx.query(
      `insert into deployment_service (deployment_id, service_id, organization_id, kind, name, stage, action, requested, state,
         stage_id, stage_name)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
      [
        deployment.deploymentId,
        service.id,
        request.organizationId,
        service.kind,
        service.name,
        stage.order,
        request.action,
        JSON.stringify(requested),
        queued,
        stage.id,
        stage.name,
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
  // What was uninstalled is as if nothing had ever been asked of it.
  const shown = state === 'READY' ? 'UNKNOWN' : action
  await tx.query(
    `update service_state set state = $2, action = $3, action_status = $4, deployment_id = $5, execution_id = $6,
       updated_at = clock_timestamp() where service_id = $1`,
    [serviceId, state, shown, actionStatusOf(state), deployment.deploymentId, deployment.executionId],
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

export const refuseWhileDeleting = async (tx: Queryable, environmentId: string): Promise<void> => {
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
  const found = await readServices(
    tx,
    request.services.map((service) => service.id),
  )
  const services = await chooseDeployable(tx, request, found, parts)
  const chosen = new Set(services.map(({ id }) => id))
  const joined = await findEqual(tx, { ...request, services: request.services.filter(({ id }) => chosen.has(id)) })
  if (joined !== null) return joined
  await refuseWhileDeleting(tx, request.environmentId)
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
