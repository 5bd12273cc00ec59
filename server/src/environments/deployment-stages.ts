/**
 * Deployment stages: the order in which the services of an environment are deployed. Every environment starts with
 * four; a service is in that of its kind until it is moved.
 */
import Type from 'typebox'
import {
  type Context,
  nodeInPath,
  type Operation,
  type Owner,
  operation,
  reading,
  removing,
} from '../api/operations/operation.ts'
import { auditOf, placeOf } from '../api/operations/resource.ts'
import {
  Flag,
  Maybe,
  Name,
  Nullable,
  Reference,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../api/operations/schema.ts'
import { stagesFrom } from '../deployments/request/stage-rows.ts'
import { defaultOrder, environmentsOfStage, type Stage, stageOf } from '../deployments/request/stages.ts'
import { type Kind, typeOf } from '../kinds.ts'
import { notFound } from '../lib/errors.ts'
import { isUuid } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import { type Node, timestampSql, writeAudit } from '../store/tree.ts'
import {
  addStage,
  moveStage,
  type Ordered,
  openStages,
  pickStage,
  placeService,
  removeStage,
  renameStage,
} from './stage-writes.ts'

const StageRecord = Type.Object(
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

/** Deployment stages in responses: one statement for all stages of an environment with their services. */
const readStages = async (db: Queryable, environmentId: string) => {
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

const readStage = async (db: Queryable, environmentId: string, id: string) => {
  const found = (await readStages(db, environmentId)).find((stage) => stage.id === id.toLowerCase())
  if (found === undefined) throw notFound()
  return found
}

const StageBody = Type.Object(
  { name: Name(), description: Maybe(Nullable(Text(2048))) },
  { title: 'DeploymentStageRequest' },
)

/**
 * Finds the environment of the stage in the path: by the stage's row or, for a default stage, by the environment's id,
 * from which its own id is derived.
 */
const stageInPath: Owner = {
  kind: 'deployment_stage',
  param: 'deploymentStageId',
  parentParam: null,
  async find(db, { deploymentStageId: id = '' }, { organizationId, memberships, isOperator }) {
    if (!isUuid(id)) return null
    // No table has the organization of a default stage, so all organizations of the caller are searched.
    const own = [organizationId, ...memberships.map((each) => each.organizationId)]
    const [row] = await db.query<Node>(
      `select e.id, e.organization_id as "organizationId", e.kind, e.parent_id as "parentId", e.name,
         null as "grandparentId"
       from node e where (e.organization_id = any($2) or $4) and e.kind = 'environment' and e.id = any(
         array(select g.environment_id from deployment_stage g where g.id = $1)
         || array(select c from unnest($3::uuid[]) c
              where not exists (select from deployment_stage g where g.environment_id = c)))`,
      [id, own, environmentsOfStage(id), isOperator],
    )
    return row ?? null
  },
}

/** One change in one transaction with its audit row; `work` returns the id of the stage, `show` the response. */
const change = <Answer>(
  context: Context,
  verb: 'CREATE' | 'UPDATE' | 'DELETE',
  work: (tx: Queryable, ordered: Ordered) => Promise<string>,
  show: (tx: Queryable, environmentId: string, stageId: string) => Answer | Promise<Answer>,
): Promise<Answer> =>
  context.transaction(async (tx) => {
    const { node, principal, body } = context
    const ordered = await openStages(tx, principal.organizationId, node.id)
    const id = await work(tx, ordered)
    const target = { target: 'ENVIRONMENT', subTarget: 'DEPLOYMENT_STAGE' }
    const audit = auditOf(context, verb, target, placeOf(node), { deployment_stage_id: id, ...body })
    await writeAudit(tx, principal.organizationId, node, audit)
    return show(tx, node.id, id)
  })

/** A change of the stage that the path names. */
const changeOne = <Answer>(
  context: Context,
  verb: 'UPDATE' | 'DELETE',
  work: (tx: Queryable, ordered: Ordered, stage: Stage) => Promise<unknown>,
  show: Parameters<typeof change<Answer>>[3],
): Promise<Answer> =>
  change(
    context,
    verb,
    async (tx, ordered) => {
      const stage = pickStage(ordered, context.params.deploymentStageId!)
      await work(tx, ordered, stage)
      return stage.id
    },
    show,
  )

const showAll = async (tx: Queryable, environmentId: string) => ({ results: await readStages(tx, environmentId) })

const read = {
  ...reading,
  tag: 'Deployment Stage Main Calls',
  area: 'projects' as const,
}
const write = { ...read, scope: 'Write' as const, area: 'projects' as const, owner: stageInPath }

const reads: Operation[] = [
  operation({
    ...read,
    id: 'ListEnvironmentDeploymentStage',
    path: '/environment/{environmentId}/deploymentStage',
    summary: 'List the deployment stages of an environment, in order',
    owner: nodeInPath('environment', 'environmentId'),
    answer: Results(StageRecord),
    run: async ({ db, node }) => ({ results: await readStages(db, node.id) }),
  }),
  operation({
    ...read,
    id: 'getDeploymentStage',
    path: '/deploymentStage/{deploymentStageId}',
    summary: 'Read a deployment stage',
    owner: stageInPath,
    answer: StageRecord,
    run: ({ db, node, params }) => readStage(db, node.id, params.deploymentStageId!),
  }),
  operation({
    ...read,
    id: 'getServiceDeploymentStage',
    path: '/service/{serviceId}/deploymentStage',
    summary: 'Read the deployment stage of a service',
    owner: nodeInPath('service', 'serviceId'),
    answer: StageRecord,
    async run({ db, node }) {
      const stages = await readStages(db, node.parentId!)
      return stages.find((stage) => stage.services.some((service) => service.service_id === node.id))
    },
  }),
]

const move = (where: 'before' | 'after', id: string, path: string): Operation =>
  operation({
    ...write,
    id,
    method: 'PUT',
    path,
    summary: `Move a deployment stage directly ${where} another one of its environment`,
    answer: Results(StageRecord),
    run: (context) =>
      changeOne(
        context,
        'UPDATE',
        (tx, ordered, stage) => moveStage(tx, ordered, stage, pickStage(ordered, context.params.stageId!), where),
        showAll,
      ),
  })

const writes: Operation[] = [
  operation({
    ...write,
    id: 'CreateEnvironmentDeploymentStage',
    method: 'POST',
    path: '/environment/{environmentId}/deploymentStage',
    summary: 'Add a deployment stage after the last one',
    owner: nodeInPath('environment', 'environmentId'),
    body: StageBody,
    answer: StageRecord,
    run: (context) =>
      change(
        context,
        'CREATE',
        (tx, ordered) => addStage(tx, context.principal.organizationId, ordered, context.body),
        readStage,
      ),
  }),
  operation({
    ...write,
    id: 'EditDeploymentStage',
    method: 'PUT',
    path: '/deploymentStage/{deploymentStageId}',
    summary: 'Change the name and description of a deployment stage',
    body: Type.Object({ name: Maybe(Name()), description: Maybe(Nullable(Text(2048))) }),
    answer: StageRecord,
    run: (context) =>
      changeOne(context, 'UPDATE', (tx, _ordered, stage) => renameStage(tx, stage, context.body), readStage),
  }),
  operation({
    ...write,
    id: 'DeleteDeploymentStage',
    ...removing,
    path: '/deploymentStage/{deploymentStageId}',
    summary: 'Delete a deployment stage without services',
    area: 'projects',
    run: (context) => changeOne(context, 'DELETE', removeStage, () => undefined),
  }),
  move('after', 'MoveAfterDeploymentStage', '/deploymentStage/{deploymentStageId}/moveAfter/{stageId}'),
  move('before', 'MoveBeforeDeploymentStage', '/deploymentStage/{deploymentStageId}/moveBefore/{stageId}'),
  operation({
    ...write,
    id: 'AttachServiceToDeploymentStage',
    method: 'PUT',
    path: '/deploymentStage/{deploymentStageId}/service/{serviceId}',
    summary: 'Move a service to a deployment stage, or skip it there; moving it ends the skipping',
    body: Type.Object({ is_skipped: Maybe(Flag()) }),
    bodyOptional: true,
    answer: Results(StageRecord),
    run: (context) =>
      changeOne(
        context,
        'UPDATE',
        (tx, ordered, stage) => placeService(tx, ordered, stage, context.params.serviceId, context.body.is_skipped),
        showAll,
      ),
  }),
]

export const deploymentStageOperations: Operation[] = [...reads, ...writes]
