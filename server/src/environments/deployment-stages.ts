/**
 * Deployment stages: the order in which the services of an environment are deployed. Every environment starts with
 * four; a service is in that of its kind until it is moved.
 */
import Type from 'typebox'
import { type Context, nodeInPath, type Operation, type Owner, operation } from '../api/operations/operation.ts'
import { auditOf, placeOf } from '../api/operations/resource.ts'
import { Flag, Maybe, Name, Nullable, Results, Text } from '../api/operations/schema.ts'
import { environmentsOfStage, type Stage } from '../deployments/request/stages.ts'
import { isUuid } from '../lib/ids.ts'
import type { Queryable } from '../store/database.ts'
import { type Node, writeAudit } from '../store/tree.ts'
import { readStage, readStages, StageRecord } from './stage-records.ts'
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

const StageBody = Type.Object(
  { name: Name(), description: Maybe(Nullable(Text(2048))) },
  { title: 'DeploymentStageRequest' },
)

/**
 * The environment of the stage in the path: found by the stage's row or, for a default stage, by the environment's id,
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
  method: 'GET' as const,
  tag: 'Deployment Stage Main Calls',
  scope: 'Read' as const,
  area: 'projects' as const,
  status: 200 as const,
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
    method: 'DELETE',
    path: '/deploymentStage/{deploymentStageId}',
    summary: 'Delete a deployment stage without services',
    scope: 'Admin',
    area: 'projects',
    status: 204,
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
