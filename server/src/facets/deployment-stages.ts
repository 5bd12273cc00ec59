/** The default stages as records: every environment has the same four, and a service is in that of its kind. */
import Type from 'typebox'
import { nodeInPath, type Operation } from '../api/operation.ts'
import { Flag, Reference, Results, Text, Timestamp, Uuid, Whole } from '../api/schema.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'
import { stageOfKind, stagesOf } from './stages.ts'

const Record = Type.Object({
  id: Uuid(),
  created_at: Timestamp(),
  updated_at: Timestamp(),
  environment: Reference(),
  name: Text(),
  description: Text(),
  deployment_order: Whole(0),
  services: Type.Array(
    Type.Object({
      id: Uuid(),
      created_at: Timestamp(),
      updated_at: Timestamp(),
      service_id: Uuid(),
      service_type: Text(),
      is_skipped: Flag(),
    }),
  ),
})

interface ServiceRow {
  id: string
  kind: string
  createdAt: string
}

const readStages = async (db: Queryable, environmentId: string) => {
  const rows = await db.query<ServiceRow & { isEnvironment: boolean }>(
    `select id, kind, ${timestampSql('created_at')} as "createdAt", id = $1 as "isEnvironment" from node
     where id = $1 or (parent_id = $1 and name_scope = 'service') order by created_at, id`,
    [environmentId],
  )
  const since = rows.find((row) => row.isEnvironment)!.createdAt
  const services = rows.filter((row) => !row.isEnvironment)
  return stagesOf(environmentId).map((stage) => ({
    id: stage.id,
    created_at: since,
    updated_at: since,
    environment: { id: environmentId },
    name: stage.name,
    description: stage.description,
    deployment_order: stage.order,
    services: services
      .filter(({ kind }) => (stageOfKind[kind] ?? 3) === stage.order)
      .map(({ id, kind, createdAt }) => ({
        id,
        created_at: createdAt,
        updated_at: createdAt,
        service_id: id,
        service_type: kind.toUpperCase(),
        is_skipped: false,
      })),
  }))
}

const common = {
  method: 'GET' as const,
  tag: 'Deployment Stage Main Calls',
  scope: 'Read' as const,
  status: 200 as const,
}

export const deploymentStageOperations: Operation[] = [
  {
    ...common,
    id: 'ListEnvironmentDeploymentStage',
    path: '/environment/{environmentId}/deploymentStage',
    summary: 'List the deployment stages of an environment, in order',
    owner: nodeInPath('environment', 'environmentId'),
    answer: Results(Record),
    run: async ({ db, node }) => ({ results: await readStages(db, node.id) }),
  },
  {
    ...common,
    id: 'getServiceDeploymentStage',
    path: '/service/{serviceId}/deploymentStage',
    summary: 'Read the deployment stage of a service',
    owner: nodeInPath('service', 'serviceId'),
    answer: Record,
    async run({ db, node }) {
      const stages = await readStages(db, node.parentId!)
      return stages.find((stage) => stage.services.some((service) => service.service_id === node.id))
    },
  },
]
