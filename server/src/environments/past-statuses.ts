/** The final statuses, by stage, of an execution that is no longer the newest of its environment. */
import type { Context } from '../api/operations/operation.ts'
import type { ServiceStatus } from '../deployments/deployments.ts'
import { defaultStageId } from '../deployments/request/stages.ts'
import { actionStatusOf } from '../deployments/status/states.ts'
import { publicAction } from '../deployments/status/status.ts'
import { stepsFrom, stepsSql } from '../deployments/status/step-metrics.ts'
import { seconds } from '../facets/history.ts'
import type { Kind } from '../kinds.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'
import { stagesWith, stateOfDeployment } from './history.ts'
import { groupByType, readEnvironment, stageSteps } from './status.ts'

interface DeploymentRow {
  id: string
  isNewest: boolean
  executionId: string
  action: string
  state: string
  origin: string
  triggeredBy: string
  endedAt: string
  seconds: number
}

interface ServiceRow {
  id: string
  kind: Kind
  stage: number
  stageId: string | null
  stageName: string | null
  action: string
  subAction: string
  state: string
  startedAt: string
  steps: string | null
}

const readDeployment = (db: Queryable, environmentId: string, execution: number): Promise<DeploymentRow[]> =>
  db.query<DeploymentRow>(
    `select d.id, d.environment_id || '-' || d.execution_number as "executionId", d.action, d.state, d.origin,
       d.triggered_by as "triggeredBy", ${seconds('d')} as seconds,
       ${timestampSql('coalesce(d.finished_at, d.created_at)')} as "endedAt",
       d.id = (select l.id from deployment l where l.environment_id = $1
         order by l.created_at desc, l.id desc limit 1) as "isNewest"
     from deployment d where d.environment_id = $1 and d.execution_number = $2`,
    [environmentId, execution],
  )

const readServices = (db: Queryable, deploymentId: string): Promise<ServiceRow[]> =>
  db.query<ServiceRow>(
    `select service_id as id, kind, stage, stage_id as "stageId", stage_name as "stageName", action, sub_action as "subAction", state,
       ${timestampSql('coalesce(started_at, created_at)')} as "startedAt", ${stepsSql('mine')} as steps
     from deployment_service mine where deployment_id = $1 order by stage, created_at, service_id`,
    [deploymentId],
  )

/** `newest` if it is the one that is shown live, null if it does not belong to this environment. */
export const pastStatuses = async (
  { parts, db, node }: Context,
  execution: number,
): Promise<object | 'newest' | null> => {
  const [deployment] = await readDeployment(db, node.id, execution)
  if (deployment === undefined) return null
  if (deployment.isNewest) return 'newest'
  const now = await readEnvironment(parts.deployments, db, node.id)
  const known = new Map(now.services.map((each) => [each.status.id, each.status]))
  const statusOf = (row: ServiceRow): ServiceStatus => ({
    id: row.id,
    state: row.state,
    service_deployment_status: known.get(row.id)?.service_deployment_status ?? 'OUT_OF_DATE',
    is_part_last_deployment: true,
    status_details: {
      action: publicAction(row.action),
      status: actionStatusOf(row.state),
      sub_action: row.subAction as 'NONE',
    },
    deployment_request_id: null,
    deployment_requests_count: known.get(row.id)?.deployment_requests_count ?? 0,
    last_deployment_date: row.startedAt,
    execution_id: deployment.executionId,
    deployment_state: row.state,
    running_state: known.get(row.id)?.running_state ?? 'STOPPED',
    ...stepsFrom(row.steps),
  })
  const stages = stagesWith(await readServices(db, deployment.id), deployment.state).map(
    ({ name, status, members }) => {
      const { stage, stageId } = members[0]!
      const id = stageId ?? defaultStageId(node.id, stage)
      const services = members.map((member) => ({ kind: member.kind, status: statusOf(member) }))
      return { ...groupByType(services), stage: { id, name, description: '', status, steps: stageSteps(id, services) } }
    },
  )
  const state = stateOfDeployment(deployment.action, deployment.state)
  return {
    environment: {
      ...now.environment,
      state,
      last_deployment_state: state,
      last_deployment_id: deployment.executionId,
      last_deployment_date: deployment.endedAt,
      total_deployment_duration_in_seconds: deployment.seconds,
      origin: deployment.origin,
      triggered_by: deployment.triggeredBy,
      deployment_request_id: null,
    },
    stages,
    pre_check_stage: { status: 'SUCCESS', total_duration_sec: 0 },
  }
}
