/** From a caller's request to a deployment: shared by all actions on services and environments. */
import Type from 'typebox'
import { type Context, OtherAnswer } from '../api/operations/operation.ts'
import { auditOf } from '../api/operations/resource.ts'
import { Discarded, Flag, Maybe, Nullable, Text } from '../api/operations/schema.ts'
import type {
  AcceptedDeployment,
  DeploymentAction,
  DeploymentRequest,
  ServiceRequest,
} from '../deployments/deployments.ts'
import { wordsOf } from '../deployments/status/audit.ts'
import { auditTargetOf } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import { writeAudit } from '../store/tree.ts'

/** A full commit id; clients that have read an empty one send ''. */
const CommitId = () =>
  Type.String({ pattern: '^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})?$', maxLength: 64, description: 'A full commit id.' })

export const MaybeCommitId = () => Maybe(Nullable(CommitId()))

const tagPattern = '(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|sha256:[0-9a-f]{64})'

/** A tag, or a digest, which never moves. */
export const ImageTag = () =>
  Text(128, { pattern: `^${tagPattern}$`, description: 'A tag, or a digest: `sha256:` and 64 hexadecimal digits.' })

/** The version that a deploy may specify; '' and null mean unspecified. */
export const MaybeImageTag = () => Maybe(Nullable(Text(128, { pattern: `^${tagPattern}?$` })))

/** The version of a chart; '' and null mean the configured one. */
export const MaybeChartVersion = () => Maybe(Nullable(Text(128)))

/** For deletes. */
export const SkipReconcile = Type.Object({
  skipReconcile: Maybe(
    Discarded(
      Flag({
        description:
          'Always as if true: a delete never applies a configuration first, and it succeeds for what is already gone.',
      }),
    ),
  ),
})

const textIn = (sent: Record<string, unknown>, field: string): string | undefined => {
  const value = sent[field]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** Names that clients use for requested events. */
const eventOfAction: Record<string, string> = { PLAN: 'PLAN', FORCE_UNLOCK: 'UNLOCK', MIGRATE_STATE: 'MIGRATE' }

/** One service of a request, from the fields of its body or query; empty fields are ignored. */
export const serviceToDeploy = (id: string, sent: Record<string, unknown>): ServiceRequest => {
  const commitId = textIn(sent, 'git_commit_id')?.toLowerCase()
  const imageTag = textIn(sent, 'image_tag')
  const chartVersion = textIn(sent, 'chart_version')
  const valuesCommitId = textIn(sent, 'values_override_git_commit_id')?.toLowerCase()
  const forceEvent = (textIn(sent, 'forceEvent') ??
    eventOfAction[textIn(sent, 'action') ?? '']) as ServiceRequest['forceEvent']
  return {
    id,
    ...(commitId === undefined ? {} : { commitId }),
    ...(imageTag === undefined ? {} : { imageTag }),
    ...(chartVersion === undefined ? {} : { chartVersion }),
    ...(valuesCommitId === undefined ? {} : { valuesCommitId }),
    ...(forceEvent === undefined ? {} : { forceEvent }),
  }
}

interface ActionRequest {
  environmentId: string
  action: DeploymentAction
  wholeEnvironment?: boolean
  services: DeploymentRequest['services']
}

const place = (context: Context): { projectId: string | null; environmentId: string | null } =>
  context.node.kind === 'environment'
    ? { projectId: context.node.parentId, environmentId: context.node.id }
    : { projectId: context.node.grandparentId, environmentId: context.node.parentId }

/** Requests the deployment and writes the audit row, both in the caller's transaction. */
export const request = async (tx: Queryable, context: Context, wish: ActionRequest): Promise<AcceptedDeployment> => {
  const { parts, principal, node, origin, requestId } = context
  const accepted = await parts.deployments.request(tx, {
    wholeEnvironment: false,
    ...wish,
    organizationId: principal.organizationId,
    origin,
    triggeredBy: principal.name,
    requestId,
  })
  const target = { target: auditTargetOf(node.kind) }
  const change = { deployment_request_id: accepted.deploymentId, execution_id: accepted.executionId }
  const audit = auditOf(context, 'UPDATE', target, place(context), change)
  const { asked } = wordsOf(wish.action, wish.services)
  await writeAudit(tx, principal.organizationId, node, { ...audit, eventType: asked })
  return accepted
}

/** The audit row of a cancel; `deploymentId` is null for all running and queued ones of the environment. */
export const noteCancel = async (
  tx: Queryable,
  context: Context,
  environmentId: string,
  deploymentId: string | null,
): Promise<void> => {
  const [environment] = await tx.query<{ id: string; name: string; projectId: string }>(
    'select id, name, parent_id as "projectId" from node where id = $1',
    [environmentId],
  )
  const where = { projectId: environment?.projectId ?? null, environmentId }
  const change = deploymentId === null ? null : { deployment_request_id: deploymentId }
  const audit = auditOf(context, 'UPDATE', { target: 'ENVIRONMENT' }, where, change)
  const target = { id: environmentId, name: environment?.name ?? null }
  await writeAudit(tx, context.principal.organizationId, target, { ...audit, eventType: 'TRIGGER_CANCEL' })
}

/** The effect of a request; nothing is written or done. */
export const planFor = async ({ parts, db, principal }: Context, wish: ActionRequest): Promise<OtherAnswer> => {
  const { organizationId } = principal
  return new OtherAnswer(await parts.deployments.plan(db, { wholeEnvironment: false, ...wish, organizationId }))
}

export const servicesOf = async (db: Queryable, environmentId: string): Promise<string[]> =>
  (
    await db.query<{ id: string }>('select service_id as id from service_state where environment_id = $1', [
      environmentId,
    ])
  ).map((row) => row.id)
