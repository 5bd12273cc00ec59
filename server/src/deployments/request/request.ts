/**
 * Accepts a request: writes the deployment, the new states of its services and the STARTED events in the caller's
 * transaction, so that an accepted request is never lost and is readable before the response is sent.
 */
import { clusterRefusal, environmentKeySql } from '../../clusters/local.ts'
import type { Kind } from '../../kinds.ts'
import { badRequest, conflict, notFound } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Disk } from '../../limits/disk.ts'
import type { Limits } from '../../limits/limits.ts'
import { refuseLongQueue } from '../../limits/queue-room.ts'
import type { Queryable } from '../../store/database.ts'
import type { EnqueueDeploymentEvent } from '../../webhooks/webhooks.ts'
import type { Place } from '../artifacts/driver.ts'
import type { AcceptedDeployment, DeployableKind, DeploymentRequest, ServiceRequest, Source } from '../deployments.ts'
import { canonical } from '../desired/workload.ts'
import { writeDeploymentLines } from '../progress/log.ts'
import { type AuditRow, wordsOf, writeAuditRows, writeGone } from '../status/audit.ts'
import {
  deployingActions,
  enqueueEvent,
  leavingSql,
  lockEnvironment,
  refuseWhileDeleting,
  setServiceState,
} from '../status/service-state.ts'
import { isFinal, openStates, stateOf } from '../status/states.ts'
import { endForDeletion, openDeletion } from './deletion.ts'
import { deployRefusal, kindRefusal, stateRefusal } from './refusals.ts'
import { readPlacement } from './stage-rows.ts'
import { defaultOrder } from './stages.ts'

interface ServiceRow {
  id: string
  kind: Kind
  name: string
  clusterId: string
  state: string
  action: string
  queued: number
  leaving: boolean
  released: boolean
  spec: Record<string, unknown>
}

type KindFacts = Pick<DeployableKind, 'refusal' | 'tasks' | 'workload' | 'source' | 'subAction'>

export interface RequestParts {
  kindOf(kind: Kind): KindFacts
  enqueue: EnqueueDeploymentEvent
  /** For a cluster that services can be deployed to. */
  placeOf(tx: Queryable, clusterId: string): Promise<Place>
  /** Why a service with this source cannot be stopped. */
  stopRefusal(source: Source): string | null
  limits: Pick<Limits, 'queued'>
  /** Claims the published ports of services; returns why some cannot be deployed with theirs, by id. */
  claimPorts(tx: Queryable, organizationId: string, services: readonly ServiceRow[]): Promise<Map<string, string>>
  disk?: Pick<Disk, 'refuseDeploy'> | undefined
}

const readServices = (tx: Queryable, ids: readonly string[]): Promise<ServiceRow[]> =>
  tx.query<ServiceRow>(
    `select s.service_id as id, s.kind, n.name, s.cluster_id as "clusterId", n.spec, s.state, s.action, s.current_release_id is not null as released,
       (select count(*)::int from deployment_service w join deployment d on d.id = w.deployment_id
        where w.service_id = s.service_id and d.state in ${openStates}) as queued,
       ${leavingSql} as leaving
     from service_state s join node n on n.id = s.service_id
     where s.service_id = any($1) order by n.created_at, n.id for no key update of s`,
    [ids],
  )

const refuseImpossible = ({ action, wholeEnvironment }: DeploymentRequest, services: readonly ServiceRow[]): void => {
  for (const service of services) {
    const refusal = stateRefusal(action, service, wholeEnvironment)
    if (refusal !== null) throw refusal
  }
}

interface Chosen {
  services: ServiceRow[]
  /** Why the others of a whole environment are skipped. */
  leftOut: string[]
}

/** The services that a deploy includes. Those of a whole environment that cannot be deployed are skipped. */
const chooseDeployable = async (
  tx: Queryable,
  request: DeploymentRequest,
  services: readonly ServiceRow[],
  parts: RequestParts,
): Promise<Chosen> => {
  if (request.action === 'STOP') return chooseStoppable(services, parts)
  if (!deployingActions.has(request.action)) return { services: [...services], leftOut: [] }
  const cluster = await clusterRefusal(tx, request.environmentId)
  if (cluster !== null) throw badRequest(cluster, undefined, 'cluster_not_deployable')
  const asked = new Map(request.services.map((service) => [service.id, service]))
  const refusals = new Map<string, string>()
  const [one] = services
  const place = one && (await parts.placeOf(tx, one.clusterId))
  for (const service of services) {
    const kind = parts.kindOf(service.kind)
    const refusal = await deployRefusal(kind, place!, service.spec, asked.get(service.id)!)
    const error = kindRefusal(request.action, kind, service, asked.get(service.id)!)
    if (refusal !== null) refusals.set(service.id, refusal)
    else if (error !== null) throw error
  }
  const [first] = refusals.values()
  if (first !== undefined && (!request.wholeEnvironment || refusals.size === services.length))
    throw badRequest(first, undefined, 'not_deployable')
  const clashes = await claimWanted(tx, request, withoutRefused(services, refusals).services, asked, parts)
  return withoutRefused(services, new Map([...refusals, ...clashes]))
}

/** Claims published ports for services that are deployed with their present configuration. */
const claimWanted = async (
  tx: Queryable,
  { action, organizationId, wholeEnvironment }: DeploymentRequest,
  services: readonly ServiceRow[],
  asked: ReadonlyMap<string, ServiceRequest>,
  parts: RequestParts,
): Promise<Map<string, string>> => {
  if (action !== 'DEPLOY') return new Map()
  const current = services.filter(({ id }) => asked.get(id)!.releaseId === undefined)
  const clashes = await parts.claimPorts(tx, organizationId, current)
  const [first] = clashes.values()
  if (first !== undefined && (!wholeEnvironment || clashes.size === services.length))
    throw conflict('port_taken', first)
  return clashes
}

const withoutRefused = (services: readonly ServiceRow[], refusals: ReadonlyMap<string, string>): Chosen => ({
  services: services.filter(({ id }) => !refusals.has(id)),
  leftOut: services.flatMap(({ id, name }) => (refusals.has(id) ? [`${name} is left out: ${refusals.get(id)}`] : [])),
})

/** Of several services, those that cannot be stopped are skipped. */
const chooseStoppable = (services: readonly ServiceRow[], parts: RequestParts): Chosen => {
  const refusals = new Map<string, string>()
  for (const { id, kind, spec, released } of services) {
    const refusal = released ? parts.stopRefusal(parts.kindOf(kind).source(spec)) : null
    if (refusal !== null) refusals.set(id, refusal)
  }
  const chosen = withoutRefused(services, refusals)
  const [first] = refusals.values()
  if (first !== undefined && chosen.services.length === 0) throw badRequest(first, undefined, 'not_stoppable')
  return chosen
}

/** The complete request for each service. */
const signature = (services: readonly ServiceRequest[]): string =>
  canonical(Object.fromEntries(services.map(({ id, ...asked }) => [id, asked])))

interface WaitingRow {
  id: string
  n: number
  action: string
  whole: boolean
  at: Date
  services: ServiceRequest[]
}

/** A request that equals the last one still waiting joins it. */
const findEqual = async (tx: Queryable, request: DeploymentRequest): Promise<AcceptedDeployment | null> => {
  const [last] = await tx.query<WaitingRow>(
    `select d.id, d.execution_number as n, d.action, d.whole_environment as whole, d.created_at as at,
       (select coalesce(jsonb_agg(w.requested || jsonb_build_object('id', w.service_id)), '[]')
        from deployment_service w where w.deployment_id = d.id) as services
     from deployment d where d.environment_id = $1 and d.state = 'QUEUED' order by d.seq desc limit 1`,
    [request.environmentId],
  )
  if (last === undefined || last.action !== request.action || last.whole !== request.wholeEnvironment) return null
  const equal = signature(last.services) === signature(request.services)
  return equal ? accepted(request.environmentId, last.id, last.n, last.at) : null
}

const accepted = (environmentId: string, id: string, n: number, at: Date): AcceptedDeployment => ({
  deploymentId: id,
  executionId: `${environmentId}-${n}`,
  createdAt: at.toISOString(),
})

/** A redeploy and a rollback use existing images. */
const needsImage = ({ action, services }: DeploymentRequest): boolean =>
  action === 'DEPLOY' && services.some(({ redeploy, releaseId }) => redeploy !== true && releaseId === undefined)

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
    const kind = parts.kindOf(service.kind)
    const stage = placement.stageOf(service.id, defaultOrder(service.kind))
    await tx.query(
      `insert into deployment_service (deployment_id, service_id, organization_id, kind, name, stage, action, requested, state,
         stage_id, stage_name, sub_action)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
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
        kind.subAction?.(request.action, requested.forceEvent ?? null) ?? 'NONE',
      ],
    )
    // A deployment in progress keeps showing its own state; its end then shows this request's.
    if (service.queued === 0 || isFinal(service.state))
      await setServiceState(tx, service.id, request.action, queued, deployment)
  }
}

/** Targets of the audit rows: the services, and a whole environment before them. */
const targetsOf = (request: DeploymentRequest, name: string, services: readonly ServiceRow[]): AuditRow['target'][] =>
  request.wholeEnvironment ? [{ kind: 'environment', id: request.environmentId, name }, ...services] : [...services]

const queuedOf = ({ action, services }: DeploymentRequest, targets: readonly AuditRow['target'][]): AuditRow[] => {
  const asked = new Map(services.map((service) => [service.id, [service]]))
  return targets.map((target) => ({ word: wordsOf(action, asked.get(target.id) ?? services).queued, target }))
}

/** Whether nothing was ever done for these services, so that no engine has any of their objects. */
const areUntouched = async (tx: Queryable, services: readonly ServiceRow[]): Promise<boolean> => {
  if (services.some(({ state, released, queued }) => !/^(READY|CANCELED)$/.test(state) || released || queued > 0))
    return false
  const [trace] = await tx.query(
    `select from task_state where id = any($1)
     union all select from deployment_service where service_id = any($2) and started_at is not null limit 1`,
    [services.map(({ id }) => id), services.flatMap(({ id, state }) => (state === 'READY' ? [] : [id]))],
  )
  return trace === undefined
}

/** A service that was never deployed needs no engine to be deleted: it has only rows. */
const deleteAtOnce = async (
  tx: Queryable,
  request: DeploymentRequest,
  services: readonly ServiceRow[],
): Promise<boolean> => {
  if (request.action !== 'DELETE') return false
  if (!(await areUntouched(tx, services))) return false
  const ids = services.map(({ id }) => id)
  if (request.wholeEnvironment) {
    const [busy] = await tx.query(
      `select 1 from deployment where environment_id = $1 and state in ${openStates}
       union all select 1 from deployment where environment_id = $1 and started_at is not null limit 1`,
      [request.environmentId],
    )
    if (busy !== undefined) return false
    await tx.query('delete from node where id = $1', [request.environmentId])
    return true
  }
  await tx.query('delete from node where id = any($1)', [ids])
  return true
}

/** Before deployments to a cluster with a conflict, an operator must decide. */
const refuseConflict = async (tx: Queryable, environmentId: string): Promise<void> => {
  const [found] = await tx.query<{ message: string }>(
    `select message from cluster_conflict where cluster = ${environmentKeySql('$1')}`,
    [environmentId],
  )
  if (found !== undefined)
    throw conflict(
      'cluster_conflict',
      `Nothing is changed on the cluster of this environment until an operator decides about it: ${found.message}.`,
    )
}

/** One that is no longer kept since its caller was checked; what is in the queue is kept. */
const refuseOldReleases = async (tx: Queryable, { services }: DeploymentRequest): Promise<void> => {
  const wanted = new Set(services.flatMap(({ releaseId }) => releaseId ?? []))
  if (wanted.size === 0) return
  const there = await tx.query('select from release where id = any($1)', [[...wanted]])
  if (there.length < wanted.size)
    throw conflict('release_not_usable', 'This release is no longer kept: list the releases and choose another one.')
}

/** See `Deployments.request`. */
export const requestDeployment = async (
  tx: Queryable,
  wanted: DeploymentRequest,
  parts: RequestParts,
): Promise<AcceptedDeployment> => {
  const environment = await lockEnvironment(tx, wanted.environmentId)
  const { joined: deletion, left } = await openDeletion(tx, wanted)
  if (deletion !== null) return deletion
  const request = { ...wanted, services: wanted.services.filter(({ id }) => left.has(id)) }
  if (request.action === 'DELETE') await endForDeletion(tx, request, parts)
  const asked = await readServices(
    tx,
    request.services.map((service) => service.id),
  )
  // Another request has deleted it since its caller was checked.
  if (!request.wholeEnvironment && asked.length < request.services.length) throw notFound()
  // An action on a whole environment ignores services that are being deleted.
  const found = asked.filter(({ leaving }) => !(request.wholeEnvironment && leaving))
  const { services, leftOut } = await chooseDeployable(tx, request, found, parts)
  const chosen = new Set(services.map(({ id }) => id))
  const joined = await findEqual(tx, { ...request, services: request.services.filter(({ id }) => chosen.has(id)) })
  if (joined !== null) return joined
  await refuseWhileDeleting(tx, request.environmentId)
  await refuseOldReleases(tx, request)
  refuseImpossible(request, services)
  if (needsImage(request)) parts.disk?.refuseDeploy(request.organizationId)
  if (await deleteAtOnce(tx, request, services)) {
    await writeGone(tx, request, environment.projectId, targetsOf(request, environment.name, services))
    return accepted(request.environmentId, newId(), 0, new Date())
  }
  await refuseConflict(tx, request.environmentId)
  const deployment = await insertDeployment(tx, request)
  await insertServices(tx, request, deployment, services, parts)
  await writeAuditRows(tx, deployment.deploymentId, queuedOf(request, targetsOf(request, environment.name, services)))
  if (leftOut.length > 0) await writeDeploymentLines(tx, deployment.deploymentId, 'compare', leftOut)
  const queued = stateOf(request.action, 'queued')
  for (const service of services)
    await enqueueEvent(tx, parts, 'DEPLOYMENT_STARTED', {
      ...request,
      ...environment,
      ...deployment,
      service,
      state: queued,
      reason: null,
    })
  await tx.query(`select pg_notify('slipway_deployment', '')`)
  await refuseLongQueue(tx, parts.limits, request.organizationId)
  return deployment
}
