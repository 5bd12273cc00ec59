/**
 * The status of clusters, and what changes it. A Docker engine, the local one or another, answers or it does not, and
 * nothing is ever deployed to it; for the others this server has no runtime, and says what is missing when it is asked
 * to act on them.
 */
import Type from 'typebox'
import { type Context, type Operation, operation, organizationInPath } from '../api/operation.ts'
import type { Spec } from '../api/resource.ts'
import { Flag, List, Maybe, Nullable, OneOf, Open, Results, Text, Timestamp, Uuid, Whole } from '../api/schema.ts'
import type { Cluster } from '../clusters/clusters.ts'
import { explainEngine, isRefusedLogin } from '../lib/engine-errors.ts'
import { type ApiError, badRequest, conflict } from '../lib/errors.ts'
import { clusterInOrganization, clusterInPath, isDocker, lockIn, readCluster, refuseLocked } from './cluster-rows.ts'
import { clusterStates } from './cluster-schema.ts'

export const Lock = Type.Object(
  {
    reason: Text(2048),
    ttl_in_days: Maybe(Whole(-1, 3650)),
    cluster_id: Uuid(),
    locked_at: Timestamp(),
    owner_name: Text(),
  },
  { title: 'ClusterLock' },
)

const Status = Type.Object(
  {
    cluster_id: Uuid(),
    status: OneOf(clusterStates),
    is_deployed: Flag(),
    next_k8s_available_version: Nullable(Text()),
    last_execution_id: Nullable(Text()),
    cluster_lock: Nullable(Lock),
    last_deployment_date: Nullable(Timestamp()),
    reason: OneOf(['UNSPECIFIED', 'MAINTENANCE']),
    error_message: Maybe(Text(500, { description: 'Why the engine of the cluster cannot be used now.' })),
  },
  { title: 'ClusterStatus' },
)

interface Row {
  id: string
  spec: Spec
}

interface State {
  status: string
  error_message?: string
}

const stateOf = async ({ isConnected, runtime }: Cluster): Promise<State> => {
  if (!isConnected) return { status: 'READY' }
  try {
    await runtime.ping()
    return { status: 'DEPLOYED' }
  } catch (error) {
    const status = isRefusedLogin(error) ? 'INVALID_CREDENTIALS' : 'DEPLOYMENT_ERROR'
    return { status, error_message: explainEngine(error) }
  }
}

const statusesOf = (context: Context, rows: readonly Row[]) => Promise.all(rows.map((row) => readStatus(context, row)))

const readStatus = async ({ parts }: Context, { id, spec }: Row) => {
  const lock = lockIn(spec, parts.clock.now())
  const cluster = await parts.clusters.of(id)
  return {
    cluster_id: id,
    ...(await stateOf(cluster)),
    is_deployed: cluster.isConnected,
    next_k8s_available_version: null,
    last_execution_id: null,
    cluster_lock: lock === null ? null : { ...lock, cluster_id: id },
    last_deployment_date: null,
    reason: 'UNSPECIFIED',
  }
}

const statusOf = (context: Context, spec: Spec) => readStatus(context, { id: context.node.id, spec })

const noRuntime = ({ kubernetes }: Spec): ApiError =>
  badRequest(
    kubernetes === 'SELF_MANAGED'
      ? 'Services run on Docker engines: to deploy to this cluster, give it the credentials of one, for this version has no runtime for Kubernetes.'
      : 'To make this cluster at its provider, this server would need a runtime for Kubernetes and the means to order machines, which this version does not have.',
  )

/** The status of the local cluster, on which there is nothing to do; 409 under a lock, 400 for any other. */
const nothingToDo = async (context: Context) => {
  const spec = await readCluster(context, context.db)
  if (!(await isDocker(context, context.db))) throw noRuntime(spec)
  refuseLocked(spec, context.parts.clock.now())
  return statusOf(context, spec)
}

const stop = async (context: Context) => {
  if (!(await isDocker(context, context.db)))
    throw badRequest('This cluster was never deployed: there is nothing to stop.')
  throw conflict('local_cluster', 'This cluster is the engine that services run on: stop its environments instead.')
}

const path = '/organization/{organizationId}/cluster/{clusterId}'
const read = {
  method: 'GET' as const,
  tag: 'Clusters',
  scope: 'Read' as const,
  area: 'clusters' as const,
  cluster: 'VIEWER' as const,
  status: 200 as const,
}
const act = { method: 'POST' as const, tag: 'Clusters', answer: Status }

const reads: Operation[] = [
  operation({
    ...read,
    id: 'getClusterStatus',
    path: `${path}/status`,
    summary: 'Read the status of a cluster: whether its engine answers',
    owner: clusterInOrganization,
    answer: Status,
    run: async (context) => statusOf(context, await readCluster(context, context.db)),
  }),
  operation({
    ...read,
    id: 'getOrganizationClusterStatus',
    path: '/organization/{organizationId}/cluster/status',
    summary: 'Read the statuses of all clusters',
    owner: organizationInPath,
    answer: Results(Status),
    async run(context) {
      const rows = await context.db.query<Row>(
        `select id, spec from node where parent_id = $1 and kind = 'cluster' order by created_at, id`,
        [context.node.id],
      )
      return { results: await statusesOf(context, rows) }
    },
  }),
  operation({
    ...read,
    id: 'getClusterReadinessStatus',
    path: `${path}/isReady`,
    summary: 'Tell whether a cluster can be deployed to',
    owner: clusterInOrganization,
    answer: Type.Object({ is_ready: Flag() }),
    run: async (context) => {
      const { status } = await statusOf(context, await readCluster(context, context.db))
      return { is_ready: status === 'DEPLOYED' }
    },
  }),
  operation({
    ...read,
    id: 'listClusterLogs',
    path: `${path}/logs`,
    summary: 'List what was logged while a cluster was deployed; this server deploys none, so there is nothing',
    owner: clusterInOrganization,
    answer: Type.Object({ results: List(Open(), 1000) }),
    run: async () => ({ results: [] }),
  }),
]

const actions: Operation[] = [
  operation({
    ...act,
    id: 'deployCluster',
    path: `${path}/deploy`,
    summary: 'Deploy a cluster; on a Docker engine there is nothing to do',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    query: Type.Object({ dry_run: Maybe(Flag()) }),
    status: 201,
    run: nothingToDo,
  }),
  operation({
    ...act,
    id: 'upgradeCluster',
    path: '/cluster/{clusterId}/upgrade',
    summary: 'Move a cluster to the next version of Kubernetes; a Docker engine has none',
    scope: 'Write',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInPath,
    status: 201,
    run: nothingToDo,
  }),
  operation({
    ...act,
    id: 'StopCluster',
    path: `${path}/stop`,
    summary: 'Stop a cluster; refused for a Docker engine that services run on',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    status: 202,
    run: stop,
  }),
]

export const clusterStatusOperations: Operation[] = [...reads, ...actions]
