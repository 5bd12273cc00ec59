/** All deployments of an organization, in all of its environments: running ones first, then queued ones. */
import Type from 'typebox'
import { type Operation, operation, organizationInPath, reading } from '../api/operations/operation.ts'
import { OneOf, Results, Text, Timestamp, Uuid } from '../api/operations/schema.ts'
import { states } from '../facets/status-schema.ts'
import { timestampSql } from '../store/tree.ts'
import { stateOfDeployment, triggers } from './history.ts'

const most = 200

interface Row {
  environmentId: string
  environmentName: string
  projectId: string
  projectName: string
  executionId: string
  action: string
  state: string
  triggeredBy: string
  createdAt: string
}

/** Two parts, so that each is read by the index of its state. */
const activeSql = `select e.id as "environmentId", e.name as "environmentName", p.id as "projectId",
    p.name as "projectName", d.environment_id || '-' || d.execution_number as "executionId", d.action, d.state,
    d.triggered_by as "triggeredBy", ${timestampSql('d.created_at')} as "createdAt"
  from (select * from deployment where state = 'RUNNING' union all select * from deployment where state = 'QUEUED') d
    join node e on e.id = d.environment_id join node p on p.id = e.parent_id
  where d.organization_id = $1 order by d.state desc, d.seq limit ${most}`

export const listActiveDeployments: Operation = operation({
  id: 'listActiveDeployments',
  ...reading,
  path: '/organization/{organizationId}/activeDeployments',
  tag: 'Deployment Queue Main Calls',
  summary: `List the deployments of an organization that run or wait, those that run first; up to ${most}`,
  area: 'projects',
  owner: organizationInPath,
  answer: Results(
    Type.Object({
      execution_id: Text(),
      environment_id: Uuid(),
      environment_name: Text(),
      project_id: Uuid(),
      project_name: Text(),
      trigger_action: OneOf(triggers),
      status: OneOf(states),
      triggered_by: Text(),
      created_at: Timestamp(),
    }),
  ),
  async run({ db, node }) {
    const rows = await db.query<Row>(activeSql, [node.id])
    return {
      results: rows.map((row) => ({
        execution_id: row.executionId,
        environment_id: row.environmentId,
        environment_name: row.environmentName,
        project_id: row.projectId,
        project_name: row.projectName,
        trigger_action: row.action,
        status: stateOfDeployment(row.action, row.state),
        triggered_by: row.triggeredBy,
        created_at: row.createdAt,
      })),
    }
  },
})
