/**
 * The status of clusters, and the actions on them. A Docker engine, local or remote, or a Kubernetes cluster with a
 * kubeconfig answers or does not, and is never itself deployed; other clusters are not reached, and actions on them are
 * refused with the reason.
 */
import Type from 'typebox'
import { type Context, type Operation, operation, organizationInPath } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import {
  Discarded,
  Flag,
  List,
  Maybe,
  Nullable,
  OneOf,
  Open,
  Results,
  Text,
  Timestamp,
  Uuid,
  Whole,
} from '../../api/operations/schema.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { explainCluster, isRefusedByCluster } from '../../clusters/explain.ts'
import { type ApiError, badRequest, conflict } from '../../lib/errors.ts'
import { clusterInOrganization, clusterInPath, engineOf, lockIn, readCluster, refuseLocked } from './rows.ts'
import { clusterStates } from './schema.ts'

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
    error_message: Maybe(Text(500, { description: 'Why the cluster is currently unavailable.' })),
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

/** Why the engine of a cluster does not answer, as a sentence; null while it does. */
export const engineProblem = async ({
  runtime,
}: Cluster): Promise<{ message: string; isRefusedLogin: boolean } | null> => {
  try {
    await runtime.ping()
    return null
  } catch (error) {
    return { message: explainCluster(error).slice(0, 500), isRefusedLogin: isRefusedByCluster(error) }
  }
}

const stateOf = async (cluster: Cluster): Promise<State> => {
  if (!cluster.isConnected) return { status: 'READY' }
  const problem = await engineProblem(cluster)
  if (problem === null) return { status: 'DEPLOYED' }
  const status = problem.isRefusedLogin ? 'INVALID_CREDENTIALS' : 'DEPLOYMENT_ERROR'
  return { status, error_message: problem.message }
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
      ? 'This version of the server has no runtime for Kubernetes and cannot deploy to this cluster: give it the credentials of a Docker engine, or use a cluster that is one.'
      : 'This version of the server cannot create clusters at a cloud provider or deploy to Kubernetes: use a cluster that is a Docker engine.',
  )

/** The status of a cluster that is reached, which needs no action; 409 if it is locked, 400 for any other cluster. */
const nothingToDo = async (context: Context) => {
  const spec = await readCluster(context, context.db)
  if ((await engineOf(context, context.db)) === null) throw noRuntime(spec)
  refuseLocked(spec, context.parts.clock.now())
  return statusOf(context, spec)
}

const upgrade = async (context: Context) => {
  if ((await engineOf(context, context.db)) !== 'kubernetes') return nothingToDo(context)
  throw badRequest('This server does not upgrade Kubernetes clusters: use the tools that this one was made with.')
}

const stop = async (context: Context) => {
  const engine = await engineOf(context, context.db)
  if (engine === 'kubernetes')
    throw badRequest('This server does not stop Kubernetes clusters: use the tools that this one was made with.')
  if (engine === null) throw badRequest('This cluster has never been deployed: there is nothing to stop.')
  throw conflict(
    'local_cluster',
    'This cluster is a Docker engine that services run on and cannot be stopped: stop its environments instead.',
  )
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
    summary: 'Read the status of a cluster: whether it answers',
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
    summary: 'Check whether a cluster is ready for deployments',
    owner: clusterInOrganization,
    answer: Type.Object({ is_ready: Flag() }),
    run: async (context) => {
      const cluster = await context.parts.clusters.of(context.node.id)
      return { is_ready: cluster.runsServices && (await engineProblem(cluster)) === null }
    },
  }),
  operation({
    ...read,
    id: 'listClusterLogs',
    path: `${path}/logs`,
    summary: 'List the deployment log of a cluster; always empty, because this server does not deploy clusters',
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
    summary: 'Deploy a cluster; does nothing for a Docker engine or a Kubernetes cluster of your own',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    query: Type.Object({ dry_run: Maybe(Discarded(Flag())) }),
    status: 201,
    run: nothingToDo,
  }),
  operation({
    ...act,
    id: 'upgradeCluster',
    path: '/cluster/{clusterId}/upgrade',
    summary: 'Upgrade a cluster to the next version of Kubernetes; does nothing for a Docker engine',
    scope: 'Write',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInPath,
    status: 201,
    run: upgrade,
  }),
  operation({
    ...act,
    id: 'StopCluster',
    path: `${path}/stop`,
    summary: 'Stop a cluster; refused for a Docker engine, because services run on it',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    status: 202,
    run: stop,
  }),
]

export const clusterStatusOperations: Operation[] = [...reads, ...actions]
