/**
 * The status of clusters, and the actions on them. A Docker engine, local or remote, or a Kubernetes cluster with a
 * kubeconfig answers or does not, and is never itself deployed; one at a cloud provider is made by a module of the
 * operator (managed/); other clusters are not connected, and actions on them are refused with the reason.
 */
import Type from 'typebox'
import {
  type Context,
  type Fields,
  type Operation,
  operation,
  organizationInPath,
  reading,
} from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import {
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
import { isHeld } from '../../clusters/lines/line.ts'
import { isLocal, noEngineSentence } from '../../clusters/local.ts'
import { type ApiError, badRequest, conflict } from '../../lib/errors.ts'
import type { Queryable } from '../../store/database.ts'
import { readClusterLog } from './managed/log.ts'
import { askDeploy, askStop, askUpgrade, moduleOf, nextVersion, noModuleSentence } from './managed/requests.ts'
import { type Managed, readManaged } from './managed/rows.ts'
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
  is_deployed: boolean
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

const connectedState = async (cluster: Cluster, own: Cluster): Promise<State> => {
  if (!cluster.isConnected) {
    const why = cluster === own ? { error_message: noEngineSentence } : {}
    return { status: 'READY', is_deployed: false, ...why }
  }
  const held = cluster.line?.conflict() ?? null
  if (held !== null) {
    const message = `Nothing is changed on this cluster until an operator decides: ${held.message}.`
    return { status: 'DEPLOYMENT_ERROR', is_deployed: true, error_message: message.slice(0, 500) }
  }
  const problem = await engineProblem(cluster)
  if (problem === null) return { status: 'DEPLOYED', is_deployed: true }
  const status = problem.isRefusedLogin ? 'INVALID_CREDENTIALS' : 'DEPLOYMENT_ERROR'
  return { status, is_deployed: true, error_message: problem.message }
}

/** For a cluster that a module makes: the result of its last run and, while it should run, whether it answers. */
const stateOf = async ({ parts }: Context, id: string, managed: Managed | undefined): Promise<State> => {
  if (managed === undefined || managed.status === 'DEPLOYED') {
    const { of, own } = parts.clusters
    return connectedState(await of(id), own)
  }
  const { status, error, isConnected } = managed
  return { status, is_deployed: isConnected, ...(error === null ? {} : { error_message: error }) }
}

const statusesOf = async (context: Context, rows: readonly Row[]) => {
  const managed = await readManaged(
    context.db,
    rows.map(({ id }) => id),
  )
  return Promise.all(rows.map((row) => readStatus(context, row, managed.get(row.id))))
}

const readStatus = async (context: Context, { id, spec }: Row, managed: Managed | undefined) => {
  const lock = lockIn(spec, context.parts.clock.now())
  return {
    cluster_id: id,
    ...(await stateOf(context, id, managed)),
    next_k8s_available_version: nextVersion(moduleOf(context, spec), managed?.version ?? null),
    last_execution_id: managed?.lastRun ?? null,
    cluster_lock: lock === null ? null : { ...lock, cluster_id: id },
    last_deployment_date: managed?.deployedAt?.toISOString() ?? null,
    reason: 'UNSPECIFIED',
  }
}

const statusOf = async (context: Context, spec: Spec) =>
  (await statusesOf(context, [{ id: context.node.id, spec }]))[0]!

const noRuntime = (spec: Spec): ApiError => {
  if (isLocal(spec)) return badRequest(noEngineSentence)
  return badRequest(
    spec.kubernetes === 'PARTIALLY_MANAGED'
      ? 'This version of the server cannot deploy to clusters that are managed in part: use a cluster that is a Docker engine.'
      : 'This cluster has no credentials that this server can use: add a kubeconfig or the credentials of a Docker engine.',
  )
}

/** Whether a module of the operator makes the cluster of the path; refuses if there is none, or its tool is missing. */
const isManaged = async (context: Context): Promise<boolean> => {
  const spec = await readCluster(context, context.db)
  if (spec.kubernetes !== 'MANAGED' || isLocal(spec)) return false
  const module = moduleOf(context, spec)
  if (module === null) throw badRequest(noModuleSentence(spec))
  if (!context.parts.clusters.own.isConnected)
    throw badRequest(
      'A cluster at a cloud provider is made by a tool that runs on the Docker engine of this server, and this server has none (SLIPWAY_DOCKER=off).',
    )
  const missing = module.image === undefined ? await context.parts.builder.missingTool(module.engine) : null
  if (missing !== null) throw badRequest(missing)
  return true
}

/** Writes the requested action on a cluster that a module makes, and shows the cluster. */
const request = async (context: Context, write: (tx: Queryable) => Promise<void>) => {
  const spec = await readCluster(context, context.db)
  return context.transaction(async (tx) => {
    await write(tx)
    const managed = (await readManaged(tx, [context.node.id])).get(context.node.id)
    return readStatus(context, { id: context.node.id, spec }, managed)
  })
}

/** The status of a connected cluster, which needs no action; 409 if it is locked, 400 for any other cluster. */
const nothingToDo = async (context: Context) => {
  const spec = await readCluster(context, context.db)
  if ((await engineOf(context, context.db)) === null) throw noRuntime(spec)
  refuseLocked(spec, context.parts.clock.now())
  return statusOf(context, spec)
}

const DeployQuery = Type.Object({
  dry_run: Maybe(
    Flag({
      description:
        'Only plan what a deployment of a cluster at a cloud provider would change: the plan is in the log of the cluster. Other clusters have nothing to plan.',
    }),
  ),
})

const deploy = async (context: Context<Fields, Type.Static<typeof DeployQuery>>) =>
  (await isManaged(context))
    ? request(context, (tx) => askDeploy(tx, context, context.query.dry_run === true))
    : nothingToDo(context)

const upgrade = async (context: Context) => {
  if (await isManaged(context)) return request(context, (tx) => askUpgrade(tx, context))
  if ((await engineOf(context, context.db)) !== 'kubernetes') return nothingToDo(context)
  throw badRequest('This server does not upgrade Kubernetes clusters: use the tools that this one was made with.')
}

const stop = async (context: Context) => {
  if (await isManaged(context)) return request(context, (tx) => askStop(tx, context))
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
  ...reading,
  tag: 'Clusters',
  area: 'clusters' as const,
  cluster: 'VIEWER' as const,
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
      return { is_ready: cluster.isConnected && !isHeld(cluster) && (await engineProblem(cluster)) === null }
    },
  }),
  operation({
    ...read,
    id: 'listClusterLogs',
    path: `${path}/logs`,
    summary: 'List the last 1000 lines of the deployment log of a cluster; empty for one that this server did not make',
    owner: clusterInOrganization,
    answer: Type.Object({ results: List(Open(), 1000) }),
    run: async ({ db, node }) => ({ results: (await readClusterLog(db, node.id)) as Spec[] }),
  }),
]

const actions: Operation[] = [
  operation({
    ...act,
    id: 'deployCluster',
    path: `${path}/deploy`,
    summary:
      'Make a cluster at its cloud provider, or bring it up to date; does nothing for a Docker engine or a Kubernetes cluster of your own',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    query: DeployQuery,
    status: 201,
    run: deploy,
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
    summary:
      'Stop a cluster at a cloud provider, or cancel what is under way; refused for a Docker engine, because services run on it',
    scope: 'Deploy',
    area: 'clusters',
    cluster: 'ADMIN',
    owner: clusterInOrganization,
    status: 202,
    run: stop,
  }),
]

export const clusterStatusOperations: Operation[] = [...reads, ...actions]
