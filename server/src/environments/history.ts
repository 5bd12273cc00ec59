/** The deployments of an environment, with all their services: in the older and the newer form. */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, operation, reading } from '../api/operations/operation.ts'
import { OneOf, Open, Text, Timestamp, Uuid } from '../api/operations/schema.ts'
import type { DeploymentAction } from '../deployments/deployments.ts'
import { defaultStageName } from '../deployments/request/stages.ts'
import { actionStatusOf, type Phase, stateOf } from '../deployments/status/states.ts'
import {
  Auditing,
  answerPage,
  begun,
  commitOf,
  duration,
  OldPaging,
  Page,
  Paging,
  paging,
  readOfDeployments,
  ServiceEntry,
  type ServiceRow,
  seconds,
  serviceEntry,
} from '../facets/history.ts'
import { imageDetails, oldSchedule } from '../facets/history-details.ts'
import { origins, states } from '../facets/status-schema.ts'
import { kinds, kindsWith } from '../kinds.ts'
import { timestampSql } from '../store/tree.ts'

const actionStatuses = ['QUEUED', 'ONGOING', 'SUCCESS', 'ERROR', 'CANCELED', 'CANCELING', 'NEVER']
const subTriggers: Record<string, string> = {
  TERRAFORM_PLAN_ONLY: 'DEPLOY_DRY_RUN',
  TERRAFORM_FORCE_UNLOCK_STATE: 'TERRAFORM_FORCE_UNLOCK',
  TERRAFORM_MIGRATE_STATE: 'TERRAFORM_MIGRATE_STATE',
}

export const triggers = ['DEPLOY', 'DELETE', 'RESTART', 'STOP', 'UNINSTALL', 'UNKNOWN', ...Object.values(subTriggers)]

/** The trigger of a deployment: its action, or the one that all of its services have in common. */
export const triggerOf = (action: string, services: readonly { subAction: string | null }[]): string => {
  const words = new Set(services.map(({ subAction }) => subTriggers[subAction ?? ''] ?? action))
  return words.size === 1 ? [...words][0]! : action
}

export const stageStatuses = ['QUEUED', 'ONGOING', 'DONE', 'ERROR', 'SKIPPED', 'CANCELED']

const EnvironmentEntry = Type.Object(
  {
    identifier: Type.Object({ execution_id: Text(), environment_id: Uuid(), deployment_request_id: Uuid() }),
    auditing_data: Auditing,
    status: OneOf(states),
    trigger_action: OneOf(triggers),
    action_status: OneOf(actionStatuses),
    total_duration: Text(),
    stages: Type.Array(
      Type.Object({
        name: Text(),
        status: OneOf(stageStatuses),
        duration: Text(),
        services: Type.Array(ServiceEntry),
      }),
    ),
  },
  { title: 'DeploymentHistoryEnvironmentV2' },
)

interface DeploymentRow {
  id: string
  executionId: string
  action: string
  state: string
  origin: string
  triggeredBy: string
  createdAt: string
  updatedAt: string
  seconds: number
}

const readDeployments = ({ db, node, ...context }: Context): Promise<DeploymentRow[]> => {
  const { pageSize, offset, startId } = paging(context as Context)
  return db.query<DeploymentRow>(
    `select d.id, d.environment_id || '-' || d.execution_number as "executionId", d.action, d.state, d.origin,
       d.triggered_by as "triggeredBy", ${timestampSql('d.created_at')} as "createdAt",
       ${timestampSql('coalesce(d.finished_at, d.started_at, d.created_at)')} as "updatedAt", ${seconds('d')} as seconds
     from deployment d where d.environment_id = $1 and ${begun('d')}
       and ($4::uuid is null or (d.created_at, d.id) < (select s.created_at, s.id
         from deployment s where s.environment_id = $1 and s.id = $4))
     order by d.created_at desc, d.id desc limit $2 offset $3`,
    [node.id, pageSize, offset, startId],
  )
}

const phases: Record<string, Phase> = { SUCCEEDED: 'done', FAILED: 'failed', RUNNING: 'working', QUEUED: 'queued' }

export const stateOfDeployment = (action: string, state: string): string => {
  const phase = phases[state]
  return phase === undefined ? 'CANCELED' : stateOf(action as DeploymentAction, phase)
}

const statusWords: Record<string, string> = {
  QUEUED: 'QUEUED',
  RUNNING: 'ONGOING',
  SUCCEEDED: 'SUCCESS',
  FAILED: 'ERROR',
  CANCELED: 'CANCELED',
}

const stageWords: Record<string, string> = {
  QUEUED: 'QUEUED',
  ONGOING: 'ONGOING',
  CANCELING: 'ONGOING',
  ERROR: 'ERROR',
  CANCELED: 'CANCELED',
  SUCCESS: 'DONE',
  NEVER: 'SKIPPED',
}
const severity = ['ONGOING', 'QUEUED', 'ERROR', 'CANCELED', 'DONE', 'SKIPPED']

/**
 * The stages of a deployment that had something to do. In a failed one, services that were not started are shown as
 * canceled and their stages as skipped.
 */
export const stagesWith = <T extends { stage: number; stageName: string | null; state: string }>(
  rows: readonly T[],
  deploymentState: string,
): { name: string; status: string; members: T[] }[] => {
  const wordOf = ({ state }: T): string =>
    state === 'CANCELED' && deploymentState === 'FAILED' ? 'SKIPPED' : stageWords[actionStatusOf(state)]!
  const stages = [...Map.groupBy(rows, (row) => row.stage)].sort(([a], [b]) => a - b)
  return stages.map(([order, members]) => {
    const words = members.map(wordOf)
    const name = members[0]!.stageName ?? defaultStageName(order)
    return { name, status: severity.find((word) => words.includes(word))!, members }
  })
}

const environmentEntry = (environmentId: string, row: DeploymentRow, services: readonly ServiceRow[]) => ({
  identifier: { execution_id: row.executionId, environment_id: environmentId, deployment_request_id: row.id },
  auditing_data: {
    created_at: row.createdAt,
    updated_at: row.updatedAt,
    triggered_by: row.triggeredBy,
    origin: row.origin,
  },
  status: stateOfDeployment(row.action, row.state),
  trigger_action: triggerOf(row.action, services),
  action_status: statusWords[row.state]!,
  total_duration: duration(row.seconds),
  stages: stagesWith(services, row.state).map(({ name, status, members }) => ({
    name,
    status,
    duration: duration(Math.max(...members.map((member) => member.seconds))),
    services: members.map(serviceEntry),
  })),
})

const oldOf = (row: ServiceRow) => ({
  id: row.serviceId,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
  name: row.name,
  status: row.state,
  commit: commitOf(row),
  ...imageDetails(row),
  ...oldSchedule(row),
})

const oldLists = kindsWith(({ old }) => old !== null).map((kind) => [kinds[kind].plural, kind] as const)

const oldEnvironmentEntry = (row: DeploymentRow, services: readonly ServiceRow[]) => ({
  id: row.id,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
  status: stateOfDeployment(row.action, row.state),
  origin: row.origin,
  triggered_by: row.triggeredBy,
  ...Object.fromEntries(oldLists.map(([name, kind]) => [name, services.filter((one) => one.kind === kind).map(oldOf)])),
})

const OldEntry = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    status: OneOf(states),
    origin: OneOf(origins),
    triggered_by: Text(),
    ...Object.fromEntries(oldLists.map(([name]) => [name, Type.Array(Open())])),
  },
  { title: 'DeploymentHistoryEnvironment' },
)

const environmentHistory = async <Entry>(
  context: Context,
  entry: (row: DeploymentRow, services: ServiceRow[]) => Entry,
) => {
  const rows = await readDeployments(context)
  const services = await readOfDeployments(
    context.db,
    rows.map((row) => row.id),
  )
  const mine = Map.groupBy(services, (service) => service.deploymentId)
  return answerPage(
    context,
    rows.map((row) => entry(row, mine.get(row.id) ?? [])),
  )
}

const common = {
  ...reading,
  tag: 'Environment Deployment History',
  area: 'projects' as const,
  owner: nodeInPath('environment', 'environmentId'),
  query: Paging,
}

export const environmentHistories: Operation[] = [
  operation({
    ...common,
    id: 'listEnvironmentDeploymentHistory',
    path: '/environment/{environmentId}/deploymentHistory',
    summary: 'List deployments of an environment, newest first (older form)',
    query: OldPaging,
    answer: Page(OldEntry),
    run: (context) => environmentHistory(context, oldEnvironmentEntry),
  }),
  operation({
    ...common,
    id: 'listEnvironmentDeploymentHistoryV2',
    path: '/environment/{environmentId}/deploymentHistoryV2',
    summary: 'List deployments of an environment, newest first',
    answer: Page(EnvironmentEntry),
    run: (context) => environmentHistory(context, (row, services) => environmentEntry(context.node.id, row, services)),
  }),
]
