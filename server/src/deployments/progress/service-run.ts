/**
 * One service in one claimed deployment: the data that the functions of deploy.ts get and may write. Every write
 * checks the claim, so that a worker that lost its lease changes nothing.
 */
import type { Cluster, ServiceRef } from '../../clusters/clusters.ts'
import type { Kind } from '../../kinds.ts'
import type { DeploymentError } from '../../lib/errors.ts'
import { measure } from '../../limits/service-room.ts'
import type { Queryable } from '../../store/database.ts'
import { type Claim, withClaim } from '../../work/queue.ts'
import { asideEvents, type DeploymentAction, type ServiceRequest } from '../deployments.ts'
import { specSql } from '../desired/owners-labels.ts'
import type { DeploymentParts } from '../parts.ts'
import { type AuditRow, wordsOf, writeAuditRows } from '../status/audit.ts'
import { enqueueEvent, setServiceState, showNextRequest } from '../status/service-state.ts'
import { type Phase, stateOf } from '../status/states.ts'
import type { DeploymentLog } from './log.ts'
import type { Step } from './steps.ts'

/** A service as it was when its turn in the deployment came. */
export interface ServiceRow {
  id: string
  kind: Kind
  name: string
  stage: number
  spec: Record<string, unknown>
  requested: Omit<ServiceRequest, 'id'>
  projectId: string
  clusterId: string
  mode: string
  currentReleaseId: string | null
  currentRevision: string | null
  deployedHash: string | null
  /** The release that this deployment has frozen before its process was killed. */
  frozenReleaseId: string | null
  desired: string
  /** A process has worked on it in this deployment. */
  started: boolean
  finished: boolean
  /** A deletion of the service ends this part. */
  endRequested: boolean
  outcome: string
}

export interface ServiceRun {
  parts: DeploymentParts
  claim: Claim
  service: ServiceRow
  cluster: Cluster
  ref: ServiceRef
  step: Step
  log: DeploymentLog
  signal: AbortSignal
  /** Set at the switch: from then on the new version is the current one and a cancel comes too late. */
  committed: boolean
  /** Nothing had to be changed: it keeps its release. */
  unchanged?: boolean
  /** It only inspected or repaired: the service keeps its release. */
  aside?: boolean
  /** The phase shown last: it determines the error state of a failure. */
  phase: Phase
}

export const readServices = (db: Queryable, deploymentId: string): Promise<ServiceRow[]> =>
  db.query<ServiceRow>(
    `select w.service_id as id, w.kind, n.name, w.stage, ${specSql('n')} as spec, w.requested, e.parent_id as "projectId", s.cluster_id as "clusterId",
       coalesce(e.spec ->> 'mode', 'DEVELOPMENT') as mode, s.current_release_id as "currentReleaseId",
       r.deployment_id as "currentRevision", own.id as "frozenReleaseId", s.deployed_hash as "deployedHash", s.desired, w.started_at is not null as started,
       w.finished_at is not null as finished, w.end_requested_at is not null as "endRequested", w.state as outcome
     from deployment_service w join node n on n.id = w.service_id join node e on e.id = n.parent_id
     join service_state s on s.service_id = w.service_id left join release r on r.id = s.current_release_id
     left join release own on own.service_id = w.service_id and own.deployment_id = w.deployment_id
     where w.deployment_id = $1 order by w.stage, n.created_at, n.id`,
    [deploymentId],
  )

const reference = (claim: Claim) => ({ deploymentId: claim.id, executionId: claim.executionId })

/**
 * The service's last deployment is the one that began last, however it ends; an inspection or a repair does not count,
 * nor does one that skipped it. Problems found before a deployment ended are deleted: its result is checked anew.
 */
const note = async (tx: Queryable, { claim, service }: ServiceRun, end: Outcome['kind'] | null): Promise<void> => {
  const { forceEvent } = service.requested
  const isLast = end !== 'skipped' && !(forceEvent !== undefined && asideEvents.has(forceEvent))
  await tx.query(
    `update service_state s set last_deployment_at = case when $3 then w.started_at else s.last_deployment_at end,
       problem = case when $4 then null else s.problem end
     from deployment_service w where s.service_id = $2 and w.deployment_id = $1 and w.service_id = $2
       and (($3 and s.last_deployment_at is distinct from w.started_at) or ($4 and s.problem is not null))`,
    [claim.id, service.id, isLast, end !== null],
  )
}

/** Begins a phase and shows its state. */
export const enter = (run: ServiceRun, phase: Phase): Promise<void> => {
  run.phase = phase
  return withClaim(run.parts.database, run.claim, async (tx) => {
    const state = stateOf(run.claim.action as DeploymentAction, phase)
    await tx.query(
      `update deployment_service set state = $3, started_at = coalesce(started_at, clock_timestamp())
       where deployment_id = $1 and service_id = $2`,
      [run.claim.id, run.service.id, state],
    )
    await note(tx, run, null)
    await setServiceState(tx, run.service.id, run.claim.action, state, reference(run.claim))
  })
}

export interface Outcome {
  kind: 'succeeded' | 'failed' | 'canceled' | 'skipped'
  state: string
  error: DeploymentError | null
}

const eventOf = { succeeded: 'DEPLOYMENT_SUCCESSFUL', failed: 'DEPLOYMENT_FAILURE' } as const

/** Shows the state of the next request that waits for this service; if none does, that of the outcome. */
const showOutcome = async (tx: Queryable, run: ServiceRun, state: string): Promise<void> => {
  if (!(await showNextRequest(tx, run.service.id)))
    await setServiceState(tx, run.service.id, run.claim.action, state, reference(run.claim))
}

/** The history keeps an uninstall; the service itself is like new. */
const historyState = (action: string, state: string): string =>
  action === 'UNINSTALL' && state === 'READY' ? 'DELETED' : state

const describeError = (error: DeploymentError | null): string | null =>
  error === null ? null : JSON.stringify({ code: error.code, message: error.message, lines: error.lines })

/** Ends one service's part: final state, history and event in one transaction. */
export const conclude = (run: ServiceRun, outcome: Outcome): Promise<void> =>
  withClaim(run.parts.database, run.claim, async (tx) => {
    const { claim, service } = run
    await tx.query(
      `update deployment_service set state = $3, error = $4, finished_at = clock_timestamp(),
         started_at = coalesce(started_at, clock_timestamp()),
         release_id = coalesce((select id from release where service_id = $2 and deployment_id = $1), $5)
       where deployment_id = $1 and service_id = $2`,
      [
        claim.id,
        service.id,
        historyState(claim.action, outcome.state),
        describeError(outcome.error),
        run.unchanged === true ? service.currentReleaseId : null,
      ],
    )
    await note(tx, run, outcome.kind)
    if (outcome.kind === 'succeeded' && claim.action === 'UNINSTALL')
      await tx.query('update service_state set current_release_id = null, deployed_hash = null where service_id = $1', [
        service.id,
      ])
    // A failed rollback no longer counts.
    if (service.requested.releaseId !== undefined) await measure(tx, service.id)
    await showOutcome(tx, run, outcome.kind === 'skipped' ? restingState(service) : outcome.state)
    await writeAuditRows(tx, claim.id, auditRowsOf(run, outcome))
    await enqueueEvent(tx, run.parts, eventKind(outcome), {
      ...claim,
      ...reference(claim),
      projectId: service.projectId,
      mode: service.mode,
      service,
      state: outcome.state,
      reason: outcome.error?.message ?? null,
    })
  })

/** For the audit log, where a cancel has its row already. */
const auditRowsOf = ({ claim, service }: ServiceRun, { kind, error }: Outcome): AuditRow[] => {
  const { done, failed } = wordsOf(claim.action as DeploymentAction, [service.requested])
  if (kind === 'succeeded') return [{ word: done, target: service }]
  if (kind !== 'failed') return []
  const change = error === null ? {} : { error: { code: error.code, message: error.message } }
  return [{ word: failed, target: service, change }]
}

const eventKind = (outcome: Outcome) =>
  outcome.kind === 'succeeded' || outcome.kind === 'failed' ? eventOf[outcome.kind] : 'DEPLOYMENT_CANCELLED'

/** The state of a skipped service: the one before the request. */
const restingState = (service: ServiceRow): string => {
  if (service.desired === 'STOPPED') return 'STOPPED'
  return service.currentReleaseId === null ? 'READY' : 'DEPLOYED'
}
