/** Clusters: where environments run. The local Docker engine is the default one; cloud ones need credentials. */
import Type from 'typebox'
import { type Context, JsonText, nodeInPath, type Operation, organizationInPath } from '../api/operation.ts'
import { type Change, resource, type Spec } from '../api/resource.ts'
import {
  Computed,
  Flag,
  List,
  Maybe,
  Name,
  Nullable,
  OneOf,
  Open,
  Reference,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../api/schema.ts'
import { badRequest, conflict, forbidden } from '../lib/errors.ts'
import type { Queryable } from '../store/database.ts'

const vendors = ['AWS', 'SCW', 'GCP', 'DO', 'AZURE', 'OVH', 'CIVO', 'HETZNER', 'ORACLE', 'IBM', 'ON_PREMISE']
const kinds = ['MANAGED', 'SELF_MANAGED', 'PARTIALLY_MANAGED']
const states = [
  'BUILDING',
  'BUILD_ERROR',
  'CANCELED',
  'CANCELING',
  'DELETED',
  'DELETE_ERROR',
  'DELETE_QUEUED',
  'DELETING',
  'DEPLOYED',
  'DEPLOYING',
  'DEPLOYMENT_ERROR',
  'DEPLOYMENT_QUEUED',
  'DRY_RUN',
  'QUEUED',
  'READY',
  'STOPPED',
  'STOPPING',
  'STOP_ERROR',
  'STOP_QUEUED',
  'RESTART_QUEUED',
  'RESTARTING',
  'RESTARTED',
  'RESTART_ERROR',
  'INVALID_CREDENTIALS',
]

const Charts = Type.Object({
  nginx_parameters: Maybe(
    Type.Object({
      replica_count: Maybe(Whole(0)),
      default_ssl_certificate: Maybe(Text()),
      publish_status_address: Maybe(Text()),
      annotation_metal_lb_load_balancer_ips: Maybe(Text()),
      annotation_external_dns_kubernetes_target: Maybe(Text()),
    }),
  ),
  cert_manager_parameters: Maybe(Type.Object({ kubernetes_namespace: Maybe(Text()) })),
  metal_lb_parameters: Maybe(Type.Object({ ip_address_pools: Maybe(List(Text())) })),
})

const spec = Type.Object({
  name: Name(),
  description: Maybe(Text(2048)),
  region: Text(100, { minLength: 1 }),
  cloud_provider: OneOf(vendors),
  cloud_provider_credentials: Maybe(
    Type.Object({
      cloud_provider: Maybe(OneOf(vendors)),
      credentials: Maybe(Type.Object({ id: Maybe(Uuid()), name: Maybe(Text()) })),
      region: Maybe(Text(100)),
    }),
  ),
  min_running_nodes: Maybe(Whole(0, 10_000, { default: 1 })),
  max_running_nodes: Maybe(Whole(0, 10_000, { default: 1 })),
  disk_size: Maybe(Whole(1, 1_000_000, { default: 40 })),
  disk_iops: Maybe(Whole(3000, 16_000)),
  disk_throughput: Maybe(Whole(125, 1000)),
  instance_type: Maybe(Text(100)),
  kubernetes: Maybe(OneOf(kinds, { default: 'MANAGED' })),
  production: Maybe(Flag({ default: false })),
  is_demo: Maybe(Flag({ default: false })),
  ssh_keys: Maybe(List(Text(16_384), 50)),
  features: Maybe(List(Open(), 50)),
  metrics_parameters: Maybe(Type.Object({ enabled: Maybe(Flag()), configuration: Maybe(Open()) })),
  infrastructure_charts_parameters: Maybe(Charts),
  keda: Maybe(Type.Object({ enabled: Maybe(Flag()) })),
  labels_groups: Maybe(List(Reference(), 50)),
  secret_manager_accesses: Maybe(List(Open(), 50)),
})

/** What the first start writes for the engine of this machine. */
export const localClusterSpec: Spec = {
  description: 'The Docker engine of this machine',
  region: 'on-premise',
  cloud_provider: 'ON_PREMISE',
  kubernetes: 'SELF_MANAGED',
  min_running_nodes: 1,
  max_running_nodes: 1,
  disk_size: 40,
  production: false,
  is_demo: false,
  is_default: true,
  ssh_keys: [],
  features: [],
}

const validate = (body: Spec, { principal }: Context, change: Change): Spec => {
  if (body.cloud_provider_credentials !== undefined && !principal.scopes.has('Admin'))
    throw forbidden('Cluster credentials need a token with the scope Admin.')
  if (Number(body.min_running_nodes ?? 1) > Number(body.max_running_nodes ?? 1))
    throw badRequest('min_running_nodes: must not be more than max_running_nodes', [
      { field: '/min_running_nodes', message: 'must not be more than max_running_nodes' },
    ])
  if (change.previous !== null) return body
  // Only this machine's engine is built in; a record of anything else would be a cluster that nothing can run on.
  if (body.cloud_provider !== 'ON_PREMISE')
    throw badRequest('A cloud cluster needs cloud credentials of its provider, which this server does not hold.')
  throw badRequest(
    'This server runs services on its own Docker engine; a further cluster needs a Kubernetes connection, which is not set up.',
  )
}

const refuseInUse = async (tx: Queryable, { node }: Context): Promise<undefined> => {
  const [row] = await tx.query<{ fallback: boolean; used: boolean }>(
    `select coalesce((spec ->> 'is_default')::boolean, false) as fallback,
       exists (select 1 from node e where e.kind = 'environment' and e.spec ->> 'cluster_id' = n.id::text) as used
     from node n where n.id = $1 for update`,
    [node.id],
  )
  if (row?.used === true) throw conflict('cluster_in_use', 'An environment still runs on this cluster.')
  if (row?.fallback === true)
    throw conflict('default_cluster', 'The default cluster of this machine cannot be deleted.')
  return undefined
}

const cluster = resource({
  kind: 'cluster',
  parent: { kind: 'organization', param: 'organizationId' },
  tag: 'Clusters',
  words: ['a cluster', 'clusters'],
  collection: '/organization/{organizationId}/cluster',
  item: '/organization/{organizationId}/cluster/{clusterId}',
  param: 'clusterId',
  ids: {
    list: 'listOrganizationCluster',
    create: 'createCluster',
    read: 'getOrganizationCluster',
    edit: 'editCluster',
    remove: 'deleteCluster',
  },
  spec,
  notEditable: ['cloud_provider', 'kubernetes', 'region', 'is_demo'],
  record: {
    region: Text(),
    cloud_provider: OneOf(vendors),
    organization: Computed(Reference()),
    status: Computed(OneOf(states)),
    deployment_status: Computed(OneOf(['NEVER_DEPLOYED', 'OUT_OF_DATE', 'UP_TO_DATE'])),
    has_access: Computed(Flag()),
    is_default: Computed(Flag()),
    is_demo: Computed(Flag()),
    cpu: Maybe(Computed(Whole(0))),
    memory: Maybe(Computed(Whole(0))),
    estimated_cloud_provider_cost: Maybe(Computed(Whole(0))),
    version: Maybe(Computed(Text())),
    infrastructure_outputs: Maybe(Computed(Nullable(Open()))),
  },
  columns: {
    organization: `json_build_object('id', n.organization_id)`,
    status: `'DEPLOYED'`,
    deployment_status: `'UP_TO_DATE'`,
    has_access: 'true',
    is_default: `coalesce((n.spec ->> 'is_default')::boolean, false)`,
    is_demo: `coalesce((n.spec ->> 'is_demo')::boolean, false)`,
    estimated_cloud_provider_cost: '0',
  },
  validate,
  onDelete: refuseInUse,
  audit: { target: 'CLUSTER' },
})

const inOrganization = nodeInPath('cluster', 'clusterId', 'organizationId')
const common = { method: 'GET' as const, tag: 'Clusters', scope: 'Read' as const, status: 200 as const }

/** Where each host name of this cluster's services leads. */
const routingTable: Operation = {
  ...common,
  id: 'getRoutingTable',
  path: '/organization/{organizationId}/cluster/{clusterId}/routingTable',
  summary: 'List routes: from a host name to a service and its port',
  owner: inOrganization,
  answer: Results(Type.Object({ destination: Text(), target: Text(), description: Text() })),
  async run({ db, node }) {
    const [row] = await db.query<{ text: string }>(
      `select '{"results":' || coalesce(json_agg(json_build_object('destination', r.host,
         'target', s.name || ':' || r.port, 'description', p.name || ' / ' || e.name || ' / ' || s.name)
         order by r.host)::text, '[]') || '}' as text
       from node e join route r on r.environment_id = e.id join node s on s.id = r.service_id
         join node p on p.id = e.parent_id
       where e.kind = 'environment' and e.spec ->> 'cluster_id' = $1::text`,
      [node.id],
    )
    return new JsonText(row!.text)
  },
}

const serviceTypes = ['APPLICATION', 'CONTAINER', 'DATABASE', 'JOB', 'HELM', 'TERRAFORM']

const environments: Operation = {
  ...common,
  id: 'get-environments-by-cluster-id',
  path: '/cluster/{clusterId}/environments',
  summary: 'List the environments of a cluster and their services',
  owner: nodeInPath('cluster', 'clusterId'),
  answer: Results(
    Type.Object({
      environment_id: Uuid(),
      environment_name: Text(),
      project_id: Uuid(),
      project_name: Text(),
      services: Type.Array(Type.Object({ id: Uuid(), name: Text(), type: OneOf(serviceTypes) })),
    }),
  ),
  async run({ db, node }) {
    const [row] = await db.query<{ text: string }>(
      `select '{"results":' || coalesce(json_agg(json_build_object('environment_id', e.id, 'environment_name', e.name,
         'project_id', p.id, 'project_name', p.name, 'services', (
           select coalesce(json_agg(json_build_object('id', s.id, 'name', s.name, 'type', upper(s.kind))
             order by s.created_at, s.id), '[]') from node s where s.parent_id = e.id and s.name_scope = 'service'))
         order by e.created_at, e.id)::text, '[]') || '}' as text
       from node e join node p on p.id = e.parent_id
       where e.kind = 'environment' and e.spec ->> 'cluster_id' = $1::text`,
      [node.id],
    )
    return new JsonText(row!.text)
  },
}

const Status = Type.Object({
  cluster_id: Uuid(),
  status: OneOf(states),
  is_deployed: Flag(),
  next_k8s_available_version: Nullable(Text()),
  last_execution_id: Nullable(Text()),
  cluster_lock: Nullable(Open()),
  last_deployment_date: Nullable(Timestamp()),
  reason: OneOf(['UNSPECIFIED', 'MAINTENANCE']),
})

/** The local engine is there or it is not: nothing is ever deployed to it. */
const statusOf = async ({ parts }: Context, ids: readonly string[]) => {
  const answers = await parts.runtime.ping().then(
    () => true,
    () => false,
  )
  return ids.map((id) => ({
    cluster_id: id,
    status: answers ? 'DEPLOYED' : 'DEPLOYMENT_ERROR',
    is_deployed: true,
    next_k8s_available_version: null,
    last_execution_id: null,
    cluster_lock: null,
    last_deployment_date: null,
    reason: 'UNSPECIFIED',
  }))
}

const oneStatus: Operation = {
  ...common,
  id: 'getClusterStatus',
  path: '/organization/{organizationId}/cluster/{clusterId}/status',
  summary: 'Read the status of a cluster: whether its engine answers',
  owner: inOrganization,
  answer: Status,
  run: async (context) => (await statusOf(context, [context.node.id]))[0],
}

const allStatuses: Operation = {
  ...common,
  id: 'getOrganizationClusterStatus',
  path: '/organization/{organizationId}/cluster/status',
  summary: 'Read the statuses of all clusters',
  owner: organizationInPath,
  answer: Results(Status),
  async run(context) {
    const rows = await context.db.query<{ id: string }>(
      `select id from node where parent_id = $1 and kind = 'cluster' order by created_at, id`,
      [context.node.id],
    )
    return {
      results: await statusOf(
        context,
        rows.map((row) => row.id),
      ),
    }
  },
}

const isReady: Operation = {
  ...common,
  id: 'getClusterReadinessStatus',
  path: '/organization/{organizationId}/cluster/{clusterId}/isReady',
  summary: 'Tell whether a cluster can be deployed to',
  owner: inOrganization,
  answer: Type.Object({ is_ready: Flag() }),
  run: async (context) => ({ is_ready: (await statusOf(context, ['']))[0]!.status === 'DEPLOYED' }),
}

export const clusterOperations: Operation[] = [
  ...cluster.operations,
  routingTable,
  environments,
  oneStatus,
  allStatuses,
  isReady,
]
