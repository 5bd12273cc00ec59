/**
 * Clusters on the websocket of the public API: whether the engine answers, and the usage of the caller's services
 * there. A cluster that this server has no runtime for ends the stream with a reason that begins with `NotFound`,
 * which is how clients know that there is nothing to wait for. Machines are shared by organizations: each gets its own
 * services only. Clients expect the words of Kubernetes: requests equal limits, and a number that Docker does not have
 * is 0.
 */
import Type from 'typebox'
import type { Mode, Place } from '../../api/auth/permissions.ts'
import { mayReadAt, rightsOf } from '../../api/operations/access.ts'
import { type Context, nodeInPath, type Operation, operation, reading } from '../../api/operations/operation.ts'
import { Discarded, Maybe, Text, Uuid } from '../../api/operations/schema.ts'
import type { Parts } from '../../api/parts.ts'
import { artifactOf } from '../../clusters/artifact.ts'
import type { Cluster } from '../../clusters/clusters.ts'
import { explainCluster } from '../../clusters/explain.ts'
import type { ClusterNode } from '../../runtimes/kubernetes/nodes.ts'
import type { Capacity, Instance, Usage } from '../../runtimes/runtime.ts'
import { followShared, type Shared, type View } from '../../streams/shared-read.ts'
import { endAway, type Sink, socketSink } from '../../streams/sink.ts'
import { asNodeFrame, nodeWarningsOf, usageOf } from './node-frames.ts'
import { engineProblem } from './status.ts'

const statusEveryMs = 10_000
const metricsEveryMs = 10_000
const engineMs = 15_000
/** Instances in one frame, of those that the caller may see; their usage is summed over all of them. */
const maxPods = 500

/** The one machine of a cluster that is an engine: its host name must not be shown to all organizations. */
const nodeName = 'docker-engine'

interface Service {
  id: string
  kind: string
  name: string
  environmentId: string
  environmentName: string
  projectId: string
  projectName: string
  mode: Mode | null
}

interface Pod {
  instance: Instance
  usage: Usage | null
  service: Service
}

interface Metrics {
  clusterId: string
  createdAt: Date
  /** When the engine was asked. */
  askedAt: Date
  capacity: Capacity | null
  problem: string | null
  pods: Pod[]
  /** Null for a cluster that is one machine. */
  nodes: ClusterNode[] | null
}

const servicesSql = `select s.service_id as id, s.kind, n.name, e.id as "environmentId", e.name as "environmentName",
    p.id as "projectId", p.name as "projectName", e.spec ->> 'mode' as mode
  from service_state s join node n on n.id = s.service_id join node e on e.id = s.environment_id
    join node p on p.id = e.parent_id
  where s.cluster_id = $1 order by n.created_at, n.id`

const problemOf = async (cluster: Cluster): Promise<string | null> => (await engineProblem(cluster))?.message ?? null

const readPods = async ({ runtime }: Cluster, services: readonly Service[]): Promise<Pod[]> => {
  if (services.length === 0) return []
  const byId = new Map(services.map((service) => [service.id, service]))
  const keys = services.map(({ id, kind, environmentId }) => ({
    ...{ serviceId: id, environmentId },
    artifact: artifactOf(kind),
  }))
  const instances = await runtime.observe(keys)
  const usage = await runtime.usage(instances, AbortSignal.timeout(engineMs))
  return instances.flatMap((instance) => {
    const service = byId.get(instance.serviceId)
    return service === undefined ? [] : [{ instance, usage: usage.get(instance.id) ?? null, service }]
  })
}

const readMetrics = async ({ clusters, clock, database }: Parts, clusterId: string): Promise<Metrics | null> => {
  const [row] = await database.query<{ createdAt: Date }>(
    `select created_at as "createdAt" from node where id = $1 and kind = 'cluster'`,
    [clusterId],
  )
  if (row === undefined) return null
  const cluster = await clusters.of(clusterId)
  const askedAt = clock.now()
  const [capacity, asked, services] = await Promise.all([
    cluster.capacity(),
    problemOf(cluster),
    database.query<Service>(servicesSql, [clusterId]),
  ])
  const nodes = cluster.nodes === null ? null : []
  const known = { clusterId, createdAt: row.createdAt, askedAt, capacity, nodes }
  if (asked !== null) return { ...known, problem: asked, pods: [] }
  try {
    const pods = await readPods(cluster, services)
    return { ...known, problem: null, pods, nodes: (await cluster.nodes?.()) ?? null }
  } catch (error) {
    return { ...known, problem: explainCluster(error), pods: [] }
  }
}

const phases: Record<Instance['state'], string> = {
  created: 'PENDING',
  starting: 'PENDING',
  running: 'RUNNING',
  restarting: 'FAILED',
  exited: 'FAILED',
  missing: 'UNKNOWN',
}

const sum = (values: readonly (number | null | undefined)[]): number =>
  values.reduce<number>((total, value) => total + (value ?? 0), 0)

const millisecondsOf = (at: string | null): number => (at === null ? 0 : Date.parse(at))

const asPod = ({ instance, usage, service }: Pod) => ({
  created_at: millisecondsOf(instance.startedAt),
  name: instance.name,
  namespace: service.environmentId,
  error_container_statuses: [],
  metrics_usage: usage === null ? {} : usageOf(usage, usage.cpuLimitMillicores, usage.memoryLimitMb),
  cpu_milli_limit: usage?.cpuLimitMillicores ?? null,
  cpu_milli_request: usage?.cpuLimitMillicores ?? null,
  memory_mib_limit: usage?.memoryLimitMb ?? null,
  memory_mib_request: usage?.memoryLimitMb ?? null,
  images_version: {},
  restart_count: instance.restarts,
  status_phase: phases[instance.state],
  qovery_service_info: {
    project_id: service.projectId,
    project_name: service.projectName,
    environment_id: service.environmentId,
    environment_name: service.environmentName,
    service_id: service.id,
    service_name: service.name,
  },
})

const conditionOf = ({ problem, askedAt, createdAt }: Metrics) => ({
  type: 'Ready',
  status: problem === null ? 'True' : 'False',
  last_heartbeat_time: askedAt.getTime(),
  last_transition_time: createdAt.getTime(),
  reason: problem === null ? 'EngineAnswers' : 'EngineUnavailable',
  message: problem ?? 'The engine answers.',
})

/** As far as their limits are known. */
const allocatedTo = (pods: readonly Pod[]) => {
  const known = pods.flatMap(({ usage }) => usage ?? [])
  const cpu = sum(known.map(({ cpuLimitMillicores }) => cpuLimitMillicores))
  const memory = sum(known.map(({ memoryLimitMb }) => memoryLimitMb))
  return { request_cpu_milli: cpu, limit_cpu_milli: cpu, request_memory_mib: memory, limit_memory_mib: memory }
}

const asNode = (metrics: Metrics, pods: readonly Pod[]) => {
  const { capacity, createdAt, problem } = metrics
  const known = pods.flatMap(({ usage }) => usage ?? [])
  const used = {
    cpuMillicores: sum(known.map(({ cpuMillicores }) => cpuMillicores)),
    memoryMb: sum(known.map(({ memoryMb }) => memoryMb)),
    memoryRssMb: sum(known.map(({ memoryRssMb }) => memoryRssMb)),
  }
  const has = {
    cpu_milli: capacity?.cpuMillicores ?? 0,
    memory_mib: capacity?.memoryMb ?? 0,
    ephemeral_storage_mib: 0,
    pods: 0,
  }
  return {
    created_at: createdAt.getTime(),
    name: nodeName,
    architecture: capacity?.architecture ?? '',
    // Clients leave out machines without a type.
    instance_type: 'docker',
    ...{ kernel_version: '', kubelet_version: '', operating_system: 'linux', os_image: '', unschedulable: false },
    resources_allocatable: has,
    resources_capacity: has,
    resources_allocated: allocatedTo(pods),
    ...{ taints: [], labels: {}, annotations: {}, addresses: [] },
    conditions: [conditionOf(metrics)],
    metrics_usage: problem === null ? usageOf(used, capacity?.cpuMillicores, capacity?.memoryMb) : {},
    pods: pods.slice(0, maxPods).map(asPod),
  }
}

const asMetrics = (metrics: Metrics, pods: readonly Pod[]) => {
  const { nodes, askedAt } = metrics
  const byMachine = Map.groupBy(pods.slice(0, maxPods), ({ instance }) => instance.machine)
  const frameOf = (node: ClusterNode) => {
    const own = byMachine.get(node.name) ?? []
    return asNodeFrame(node, askedAt, allocatedTo(own), own.map(asPod))
  }
  return { nodes: nodes === null ? [asNode(metrics, pods)] : nodes.map(frameOf), pvcs: [], node_pools: [] }
}

/** Only services that the caller may see. Callers with the same rights share the result. */
const seenBy = ({ principal }: Context): View<Metrics> => {
  const placeOf = (clusterId: string, { projectId, mode }: Service): Place => ({ projectId, mode, clusterId })
  return {
    name: `seen by ${rightsOf(principal)}`,
    show: (metrics) =>
      asMetrics(
        metrics,
        metrics.pods.filter(({ service }) => mayReadAt(principal, placeOf(metrics.clusterId, service))),
      ),
  }
}

interface Status {
  problem: string | null
  /** Problems of the machines; a problem of the whole cluster is listed under the engine's name. */
  warnings: ReturnType<typeof nodeWarningsOf>
}

const awayBecause = (problem: string, name: string): Status => ({
  problem,
  warnings: { [name]: [{ type: 'Ready', reason: 'EngineUnavailable', message: problem, node_attributes: {} }] },
})

const asStatus = (status: Status) => ({
  computed_status: {
    global_status: status.problem === null ? 'RUNNING' : 'ERROR',
    is_max_nodes_size_reached: false,
    kube_version_status: { type: 'UNKNOWN' },
    node_warnings: status.warnings,
    qovery_components: [],
    qovery_components_in_failure: [],
  },
  tls_certificate: null,
})

/** A cluster that answers, but does not list its machines, has a problem too. */
const readClusterStatus = async (cluster: Cluster): Promise<Status> => {
  const name = cluster.nodes === null ? nodeName : 'api-server'
  const problem = await problemOf(cluster)
  if (problem !== null) return awayBecause(problem, name)
  if (cluster.nodes === null) return { problem, warnings: {} }
  return cluster.nodes().then(
    (nodes) => ({ problem, warnings: nodeWarningsOf(nodes) }),
    (error: unknown) => awayBecause(explainCluster(error), name),
  )
}

const never = async (): Promise<() => void> => () => {}

const statusOf = ({ clusters, database }: Parts, id: string): Shared<Status> => ({
  everyMs: statusEveryMs,
  subscribe: never,
  async read() {
    const rows = await database.query('select 1 from node where id = $1', [id])
    return rows.length === 0 ? null : readClusterStatus(await clusters.of(id))
  },
})

const metricsOf = (parts: Parts, id: string): Shared<Metrics> => ({
  everyMs: metricsEveryMs,
  subscribe: never,
  read: () => readMetrics(parts, id),
})

/** Begins the stream of a connected cluster. */
const follow = async (context: Context, sink: Sink, begin: () => void): Promise<void> => {
  const { parts, node } = context
  try {
    const { isConnected } = await parts.clusters.of(node.id)
    if (isConnected) begin()
    else sink.end('NotFound: this server has no runtime for this cluster.')
  } catch (error) {
    parts.log.warn({ err: error, clusterId: node.id }, 'a stream of a cluster could not start')
    endAway(sink, 'cluster')
  }
}

const common = {
  ...reading,
  tag: 'Websocket',
  area: 'clusters' as const,
  cluster: 'VIEWER' as const,
  owner: { ...nodeInPath('cluster', 'cluster'), inQuery: true },
  query: Type.Object({ cluster: Uuid(), organization: Maybe(Discarded(Text())) }),
  produces: 'websocket' as const,
}

export const clusterStreamOperations: Operation[] = [
  operation({
    ...common,
    id: 'handleClusterStatus',
    path: '/cluster/status',
    summary: 'Follow whether the engine of a cluster answers',
    socket(context, socket) {
      const { parts, node } = context
      const sink = socketSink(socket)
      const view = { name: 'status', show: asStatus }
      void follow(context, sink, () =>
        followShared(parts, `cluster status ${node.id}`, () => statusOf(parts, node.id), { sink, view }),
      )
    },
  }),
  operation({
    ...common,
    id: 'handleClusterMetrics',
    path: '/cluster/metrics',
    summary: `Follow what the services of the organization use on a cluster, as one machine with up to ${maxPods} instances`,
    socket(context, socket) {
      const { parts, node } = context
      const sink = socketSink(socket)
      void follow(context, sink, () =>
        followShared(parts, `cluster metrics ${node.id}`, () => metricsOf(parts, node.id), {
          sink,
          view: seenBy(context),
        }),
      )
    },
  }),
]
