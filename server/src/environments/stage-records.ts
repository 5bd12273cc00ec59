/** Deployment stages in responses: one statement for all stages of an environment with their services. */
import Type from 'typebox'
import { Flag, Reference, Text, Timestamp, Uuid, Whole } from '../api/operations/schema.ts'
import { stagesFrom } from '../deployments/request/stage-rows.ts'
import { defaultOrder, type Stage, stageOf } from '../deployments/request/stages.ts'
import { type Kind, typeOf } from '../kinds.ts'
import { notFound } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'
import { timestampSql } from '../store/tree.ts'

export const StageRecord = Type.Object(
  {
    id: Uuid(),
    created_at: Timestamp(),
    updated_at: Timestamp(),
    environment: Reference(),
    name: Text(),
    description: Text(2048),
    deployment_order: Whole(0),
    services: Type.Array(
      Type.Object({
        id: Uuid(),
        created_at: Timestamp(),
        updated_at: Timestamp(),
        service_id: Uuid(),
        service_type: Text(),
        is_skipped: Flag({ description: 'Excluded from deploying, stopping and restarting the whole environment.' }),
      }),
    ),
  },
  { title: 'DeploymentStage' },
)

interface ServiceRow {
  id: string
  kind: Kind
  stageId: string | null
  isSkipped: boolean
  createdAt: string
  updatedAt: string
}

type StageRow = Stage & { createdAt?: string; updatedAt?: string }

interface ReadRow {
  since: string
  stages: StageRow[] | null
  services: ServiceRow[] | null
}

const stampsSql = (alias: string): string =>
  `'createdAt', ${timestampSql(`${alias}.created_at`)}, 'updatedAt', ${timestampSql(`${alias}.updated_at`)}`

const readSql = `
  select ${timestampSql('e.created_at')} as since,
    (select json_agg(json_build_object('id', g.id, 'name', g.name, 'description', g.description, 'order', g.position,
       ${stampsSql('g')}) order by g.position, g.id) from deployment_stage g where g.environment_id = e.id) as stages,
    (select json_agg(json_build_object('id', n.id, 'kind', n.kind, 'stageId', s.stage_id, 'isSkipped', s.is_skipped,
       ${stampsSql('n')}) order by n.created_at, n.id)
     from service_state s join node n on n.id = s.service_id where s.environment_id = e.id) as services
  from node e where e.id = $1`

const showMember = ({ id, kind, isSkipped, createdAt, updatedAt }: ServiceRow) => ({
  id,
  created_at: createdAt,
  updated_at: updatedAt,
  service_id: id,
  service_type: typeOf(kind),
  is_skipped: isSkipped,
})

export const readStages = async (db: Queryable, environmentId: string) => {
  const [row] = await db.query<ReadRow>(readSql, [environmentId])
  if (row === undefined) throw notFound()
  const stages: StageRow[] = stagesFrom(environmentId, row.stages)
  const services = (row.services ?? []).map((service) => {
    const place = { stageId: service.stageId, defaultOrder: defaultOrder(service.kind) }
    return { service, stage: stageOf(environmentId, stages, place) }
  })
  return stages.map((stage) => ({
    id: stage.id,
    created_at: stage.createdAt ?? row.since,
    updated_at: stage.updatedAt ?? row.since,
    environment: { id: environmentId },
    name: stage.name,
    description: stage.description,
    deployment_order: stage.order,
    services: services.filter((each) => each.stage === stage).map((each) => showMember(each.service)),
  }))
}

export const readStage = async (db: Queryable, environmentId: string, id: string) => {
  const found = (await readStages(db, environmentId)).find((stage) => stage.id === id.toLowerCase())
  if (found === undefined) throw notFound()
  return found
}
