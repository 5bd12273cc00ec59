/**
 * Deployment requests: those that are queued, by service and by environment, and each one by itself. A running one has
 * an execution: it is in the histories, and no longer here.
 */
import Type from 'typebox'
import { nodeInPath, type Operation, type Owner, operation, reading } from '../api/operations/operation.ts'
import { Maybe, OneOf, Results, Text, Uuid } from '../api/operations/schema.ts'
import { publicAction } from '../deployments/status/status.ts'
import { noteCancel } from '../facets/deployment-request.ts'
import { origins, StatusDetails, states } from '../facets/status-schema.ts'
import { type Kind, serviceTypes, typeOf } from '../kinds.ts'
import { notFound } from '../lib/errors.ts'
import { isUuid } from '../lib/ids.ts'
import type { Node } from '../store/tree.ts'
import { stageStatuses, stagesWith, stateOfDeployment, triggerOf, triggers } from './history.ts'

const Auditing = Type.Object({ triggered_by: Text(), origin: OneOf(origins) })

interface Row {
  deploymentId: string
  serviceId: string
  name: string
  kind: Kind
  stage: number
  stageName: string | null
  action: string
  subAction: string
  trigger: string
  state: string
  triggeredBy: string
  origin: string
  icon: string | null
}

const columns = `d.id as "deploymentId", w.service_id as "serviceId", w.name, w.kind, w.stage,
  w.stage_name as "stageName", w.action, w.sub_action as "subAction",
  d.action as trigger, w.state, d.triggered_by as "triggeredBy", d.origin, n.spec ->> 'icon_uri' as icon`

const iconOf = (row: Row): string => row.icon ?? `app://slipway/${row.kind}`

const ofService = operation({
  id: 'listDeploymentRequestByServiceId',
  ...reading,
  path: '/service/{serviceId}/deploymentQueue',
  tag: 'Deployment Queue Main Calls',
  summary: 'List the queued deployment requests of a service, oldest first; running ones are in the history',
  area: 'projects',
  owner: nodeInPath('service', 'serviceId'),
  answer: Results(
    Type.Object({
      identifier: Type.Object({
        deployment_request_id: Uuid(),
        service_id: Uuid(),
        service_type: OneOf(serviceTypes),
        name: Text(),
      }),
      auditing_data: Auditing,
      status_details: StatusDetails,
      icon_uri: Text(),
    }),
  ),
  async run({ db, node }) {
    const rows = await db.query<Row>(
      `select ${columns} from deployment d join deployment_service w on w.deployment_id = d.id
         join node n on n.id = w.service_id
       where d.environment_id = $1 and d.state = 'QUEUED' and w.service_id = $2 order by d.seq`,
      [node.parentId, node.id],
    )
    return {
      results: rows.map((row) => ({
        identifier: {
          deployment_request_id: row.deploymentId,
          service_id: row.serviceId,
          service_type: typeOf(row.kind),
          name: row.name,
        },
        auditing_data: { triggered_by: row.triggeredBy, origin: row.origin },
        status_details: {
          action: publicAction(row.action),
          status: 'QUEUED',
          sub_action: row.subAction,
        },
        icon_uri: iconOf(row),
      })),
    }
  },
})

const ofEnvironment = operation({
  id: 'listDeploymentRequestByEnvironmentId',
  ...reading,
  path: '/environment/{environmentId}/deploymentQueue',
  tag: 'Deployment Queue Main Calls',
  summary: 'List the queued deployment requests of an environment, oldest first; running ones are in the history',
  area: 'projects',
  owner: nodeInPath('environment', 'environmentId'),
  answer: Results(
    Type.Object({
      identifier: Type.Object({ deployment_request_id: Uuid(), environment_id: Uuid() }),
      auditing_data: Auditing,
      trigger_action: OneOf(triggers),
      stages: Type.Array(
        Type.Object({
          name: Text(),
          status: OneOf(stageStatuses),
          services: Type.Array(
            Type.Object({
              identifier: Type.Object({ service_id: Uuid(), service_type: OneOf(serviceTypes), name: Text() }),
              status: OneOf(stageStatuses),
              icon_uri: Maybe(Text()),
            }),
          ),
        }),
      ),
    }),
  ),
  async run({ db, node }) {
    const rows = await db.query<Row>(
      `select ${columns} from deployment d left join deployment_service w on w.deployment_id = d.id
         left join node n on n.id = w.service_id
       where d.environment_id = $1 and d.state = 'QUEUED' order by d.seq, w.stage, w.created_at`,
      [node.id],
    )
    const requests = [...Map.groupBy(rows, (row) => row.deploymentId)]
    return {
      results: requests.map(([id, members]) => ({
        identifier: { deployment_request_id: id, environment_id: node.id },
        auditing_data: { triggered_by: members[0]!.triggeredBy, origin: members[0]!.origin },
        trigger_action: triggerOf(members[0]!.trigger, members),
        stages: stagesWith(
          members.filter((row) => row.serviceId !== null),
          'QUEUED',
        ).map((stage) => ({
          name: stage.name,
          status: stage.status,
          services: stage.members.map((row) => ({
            identifier: { service_id: row.serviceId, service_type: typeOf(row.kind), name: row.name },
            status: stage.status,
            icon_uri: iconOf(row),
          })),
        })),
      })),
    }
  },
})

/** A deployment by its request id; its environment is the parent. */
const deploymentOwner = (param: string, inQuery: boolean): Owner => ({
  kind: 'deployment',
  param,
  parentParam: null,
  inQuery,
  async find(db, params, { organizationId }) {
    const id = params[param]
    if (typeof id !== 'string' || !isUuid(id)) return null
    const [row] = await db.query<Node>(
      `select d.id, d.organization_id as "organizationId", 'deployment' as kind, d.environment_id as "parentId",
         null as "grandparentId", d.environment_id || '-' || d.execution_number as name
       from deployment d where d.id = $1 and d.organization_id = $2`,
      [id, organizationId],
    )
    return row ?? null
  },
})

const cancelOne = operation({
  id: 'cancelDeploymentRequest',
  method: 'POST',
  path: '/deploymentQueue/{deploymentRequestId}/cancelDeployment',
  tag: 'Deployment Queue Actions',
  summary: 'Cancel a queued or running deployment request',
  scope: 'Deploy',
  area: 'projects',
  cluster: 'ENV_CREATOR',
  owner: deploymentOwner('deploymentRequestId', false),
  status: 202,
  run: (context) =>
    context.transaction(async (tx) => {
      await context.parts.deployments.cancel(tx, context.node.parentId!, { deploymentId: context.node.id })
      await noteCancel(tx, context, context.node.parentId!, context.node.id)
      return undefined
    }),
})

const statusOfOne = operation({
  id: 'getDeploymentStatusByDeploymentRequestId',
  ...reading,
  path: '/environment/deploymentStatus',
  tag: 'Environment Main Calls',
  summary: 'Read a deployment request',
  area: 'projects',
  owner: deploymentOwner('deploymentRequestId', true),
  query: Type.Object({ deploymentRequestId: Uuid() }),
  answer: Type.Object({ deployment_request_id: Uuid(), environment_id: Uuid(), status: OneOf(states) }),
  async run({ db, node }) {
    const [row] = await db.query<{ action: string; state: string }>(
      'select action, state from deployment where id = $1',
      [node.id],
    )
    if (row === undefined) throw notFound()
    return {
      deployment_request_id: node.id,
      environment_id: node.parentId!,
      status: stateOfDeployment(row.action, row.state),
    }
  },
})

export const queueOperations: Operation[] = [ofService, ofEnvironment, cancelOne, statusOfOne]
