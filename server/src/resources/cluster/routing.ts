/**
 * Where traffic goes: on a connected cluster from host names of its services to their ports, as deployed; on other
 * clusters the network routes that were set. Also which environments are on a cluster.
 */
import Type from 'typebox'
import type { Mode } from '../../api/auth/permissions.ts'
import { isSelective, mayReadAt } from '../../api/operations/access.ts'
import { type Context, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { List, OneOf, Recorded, Results, Text, Uuid } from '../../api/operations/schema.ts'
import { changeInner, type InnerChange } from '../../facets/settings/inner-configuration.ts'
import { ownKinds, typeOf } from '../../kinds.ts'
import { badRequest } from '../../lib/errors.ts'
import { answerFrom } from '../answer-from.ts'
import { clusterInOrganization, clusterInPath, engineOf, readCluster } from './rows.ts'

const path = '/organization/{organizationId}/cluster/{clusterId}/routingTable'
const Route = Type.Object({ destination: Text(), target: Text(), description: Text(2048) })
type KeptRoute = Type.Static<typeof Route>

const hostsSql = `select r.host as destination, s.name || ':' || r.port as target,
    p.name || ' / ' || e.name || ' / ' || s.name as description, p.id as "projectId", e.spec ->> 'mode' as mode
  from node e join node s on s.parent_id = e.id join route r on r.service_id = s.id
    join node p on p.id = e.parent_id
  where e.kind = 'environment' and e.spec ->> 'cluster_id' = $1::text order by r.host`

const readRoutes = async (context: Context) => {
  const spec = await readCluster(context, context.db)
  if ((await engineOf(context, context.db)) === null) return { results: (spec.routes ?? []) as KeptRoute[] }
  const { db, node, principal } = context
  const rows = await db.query<KeptRoute & { projectId: string; mode: Mode }>(hostsSql, [node.id])
  // A route has no id by which the list could be filtered for a custom role.
  const seen = rows.filter((row) => !isSelective(principal) || mayReadAt(principal, { ...row, clusterId: node.id }))
  return { results: seen.map(({ destination, target, description }) => ({ destination, target, description })) }
}

const replaceRoutes = async (context: Context<{ routes: KeptRoute[] }>) => {
  if ((await engineOf(context, context.db)) !== null)
    throw badRequest(
      'The routes of a cluster that services run on follow from their ports and domains and cannot be set.',
    )
  const wanted: InnerChange<KeptRoute[]> = {
    field: 'routes',
    empty: [],
    eventType: 'UPDATE',
    subTarget: 'CLUSTER_ROUTING_TABLE',
    change: () => context.body.routes,
  }
  return changeInner(context, wanted, (results) => ({ results }))
}

const serviceTypes = ownKinds.map(typeOf)

const environmentsSql = `select '{"results":' || coalesce(json_agg(json_build_object('environment_id', e.id,
    'environment_name', e.name, 'project_id', p.id, 'project_name', p.name, 'services', (
      select coalesce(json_agg(json_build_object('id', s.id, 'name', s.name, 'type', upper(s.kind))
        order by s.created_at, s.id), '[]') from node s
      where s.parent_id = e.id and s.name_scope = 'service' and upper(s.kind) = any($2)))
    order by e.created_at, e.id)::text, '[]') || '}' as text
  from node e join node p on p.id = e.parent_id
  where e.kind = 'environment' and e.spec ->> 'cluster_id' = $1::text`

export const clusterRoutingOperations: Operation[] = [
  operation({
    id: 'getRoutingTable',
    ...reading,
    path,
    tag: 'Clusters',
    summary: 'List routes: from host names to services and ports, or the network routes of a cloud cluster',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    answer: Results(Route),
    run: readRoutes,
  }),
  operation({
    id: 'editRoutingTable',
    method: 'PUT',
    path,
    tag: 'Clusters',
    summary: 'Replace the network routes of a cloud cluster',
    scope: 'Write',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    body: Type.Object({ routes: Recorded(List(Route, 500), 'of a cluster that services run on they are refused.') }),
    status: 201,
    answer: Results(Route),
    run: replaceRoutes,
  }),
  operation({
    id: 'get-environments-by-cluster-id',
    ...reading,
    path: '/cluster/{clusterId}/environments',
    tag: 'Clusters',
    summary: 'List the environments of a cluster and their services',
    area: 'clusters',
    cluster: 'VIEWER',
    owner: clusterInPath,
    answer: Results(
      Type.Object({
        environment_id: Uuid(),
        environment_name: Text(),
        project_id: Uuid(),
        project_name: Text(),
        services: Type.Array(Type.Object({ id: Uuid(), name: Text(), type: OneOf(serviceTypes) })),
      }),
    ),
    run: ({ db, node }) => answerFrom(db, environmentsSql, [node.id, serviceTypes]),
  }),
]
