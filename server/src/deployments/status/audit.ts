/**
 * Audit rows about a deployment: that it was requested, its queued parts, and how it ended, for each service and for a
 * whole environment. In the caller's transaction, so that no state is without its row.
 */
import { auditTargetOf } from '../../kinds.ts'
import type { Queryable } from '../../store/database.ts'
import { writeOwnAudit } from '../../store/own-audit.ts'
import type { DeploymentAction, DeploymentRequest, ServiceRequest, TaskEvent } from '../deployments.ts'

interface Words {
  asked: string
  /** Null: clients have no word for it. */
  queued: string | null
  done: string
  failed: string
}

const forceRun = (suffix: string): Words => ({
  asked: `TRIGGER_FORCE_RUN${suffix}`,
  queued: `FORCE_RUN_QUEUED${suffix}`,
  done: 'FORCE_RUN_SUCCEEDED',
  failed: 'FORCE_RUN_FAILED',
})

const ofTerraform = (word: string): Words => ({
  asked: `TRIGGER_TERRAFORM_${word}`,
  queued: null,
  done: `TERRAFORM_${word}_SUCCEEDED`,
  failed: `TERRAFORM_${word}_FAILED`,
})

const deploy = { queued: 'DEPLOY_QUEUED', done: 'DEPLOYED', failed: 'DEPLOY_FAILED' }

const table: Record<DeploymentAction | 'REDEPLOY' | `FORCE_${TaskEvent}`, Words> = {
  DEPLOY: { asked: 'TRIGGER_DEPLOY', ...deploy },
  REDEPLOY: { asked: 'TRIGGER_REDEPLOY', ...deploy },
  RESTART: { asked: 'TRIGGER_RESTART', queued: 'RESTART_QUEUED', done: 'RESTARTED', failed: 'RESTART_FAILED' },
  STOP: { asked: 'TRIGGER_STOP', queued: 'STOP_QUEUED', done: 'STOPPED', failed: 'STOP_FAILED' },
  UNINSTALL: {
    asked: 'TRIGGER_UNINSTALL',
    queued: 'UNINSTALL_QUEUED',
    done: 'UNINSTALLED',
    failed: 'UNINSTALL_FAILED',
  },
  DELETE: { asked: 'TRIGGER_DELETE', queued: 'DELETE_QUEUED', done: 'DELETED', failed: 'DELETE_FAILED' },
  FORCE_START: forceRun('_DEPLOY'),
  FORCE_STOP: forceRun('_STOP'),
  FORCE_DELETE: forceRun('_DELETE'),
  FORCE_CRON: forceRun(''),
  FORCE_PLAN: {
    asked: 'TRIGGER_DEPLOY_DRY_RUN',
    queued: 'DRY_RUN',
    done: 'DEPLOYED_DRY_RUN',
    failed: 'DEPLOYED_DRY_RUN_FAILED',
  },
  FORCE_UNLOCK: ofTerraform('FORCE_UNLOCK'),
  FORCE_MIGRATE: ofTerraform('MIGRATE_STATE'),
}

const keyOf = (action: DeploymentAction, { forceEvent, redeploy }: Omit<ServiceRequest, 'id'>): keyof typeof table => {
  if (action !== 'DEPLOY') return action
  if (forceEvent !== undefined) return `FORCE_${forceEvent}`
  return redeploy === true ? 'REDEPLOY' : action
}

/** The words for a request: the action's, or the narrower ones that apply to all of its services. */
export const wordsOf = (action: DeploymentAction, services: readonly Omit<ServiceRequest, 'id'>[]): Words => {
  const [key, ...others] = new Set(services.map((service) => keyOf(action, service)))
  return table[key === undefined || others.length > 0 ? action : key]
}

/** All words about states, which the live status reports too. */
export const stateWords: readonly string[] = [
  ...new Set(Object.values(table).flatMap(({ queued, done, failed }) => [queued ?? [], done, failed].flat())),
]

/** A service or an environment, with its event type; `change` is stored with the deployment's ids. */
export interface AuditRow {
  word: string | null
  /** Without a name: the environment. */
  target: { kind: string; id: string; name: string | null }
  change?: object
}

const insert = `insert into event (id, organization_id, event_type, target_type, target_id, target_name, project_id,
    environment_id, change, origin, triggered_by, request_id, actor_type)
  select gen_random_uuid(), d.organization_id, t.word, t.type, t.id, coalesce(t.name, e.name), e.parent_id, d.environment_id,
    jsonb_build_object('deployment_request_id', d.id, 'execution_id', d.environment_id || '-' || d.execution_number)
      || t.change::jsonb,
    d.origin, d.triggered_by, d.request_id, 'SYSTEM'
  from unnest($2::text[], $3::text[], $4::uuid[], $5::text[], $6::text[]) t (word, type, id, name, change)
    cross join deployment d left join node e on e.id = d.environment_id
  where d.id = $1`

/** Rows written by the server itself about parts of a deployment, in the name of its requester. */
export const writeAuditRows = async (tx: Queryable, deploymentId: string, all: readonly AuditRow[]): Promise<void> => {
  const rows = all.filter(({ word }) => word !== null)
  if (rows.length === 0) return
  const column = (value: (one: AuditRow) => unknown): unknown[] => rows.map(value)
  await tx.query(insert, [
    deploymentId,
    column(({ word }) => word),
    column(({ target }) => auditTargetOf(target.kind)),
    column(({ target }) => target.id),
    column(({ target }) => target.name),
    column(({ change = {} }) => JSON.stringify(change)),
  ])
}

/** The row about the end of a manual run, outside of deployments. */
export const writeRunEnd = async (
  tx: Queryable,
  run: { id: string; organizationId: string; serviceId: string; askedBy: string },
  error: { code: string; message: string } | null,
): Promise<void> => {
  const [target] = await tx.query<{ id: string; name: string; kind: string; environmentId: string; projectId: string }>(
    `select n.id, n.name, n.kind, e.id as "environmentId", e.parent_id as "projectId"
     from node n join node e on e.id = n.parent_id where n.id = $1`,
    [run.serviceId],
  )
  if (target === undefined) return
  const { done, failed } = table.FORCE_CRON
  await writeOwnAudit(tx, run.organizationId, {
    ...{ actor: 'SYSTEM', by: run.askedBy, eventType: error === null ? done : failed },
    ...{ targetType: auditTargetOf(target.kind), subTargetType: null, target, place: target },
    change: { run_id: run.id, ...(error === null ? {} : { error }) },
  })
}

/** Rows about services that a request deletes without a deployment. */
export const writeGone = async (
  tx: Queryable,
  request: DeploymentRequest,
  projectId: string,
  targets: readonly AuditRow['target'][],
): Promise<void> => {
  for (const target of targets)
    await writeOwnAudit(tx, request.organizationId, {
      ...{ actor: 'SYSTEM', by: request.triggeredBy, request, eventType: table.DELETE.done },
      ...{ targetType: auditTargetOf(target.kind), subTargetType: null, target },
      place: { projectId, environmentId: request.environmentId },
    })
}
