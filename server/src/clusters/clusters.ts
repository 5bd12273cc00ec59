/**
 * Where services run. A cluster is a runtime, with its ingress and images, and what it has for services; whoever acts on
 * a service asks for the cluster of its reference first. Clusters come and go while the server runs.
 *
 * Promises: `of` answers for every cluster that there is. Of one without a runtime nothing runs: it says so to whoever
 * wants to start something there. A cluster that is reached in another way than before is another object.
 * Refuses to know: deployments and kinds.
 * When the process dies: nothing is lost; which cluster has which runtime follows from its row.
 */
import type { ImageBuilder } from '../builds/builder.ts'
import type { Images } from '../runtimes/images.ts'
import type { Ingress } from '../runtimes/ingress.ts'
import type { OpenKubernetes } from '../runtimes/kubernetes/kubernetes.ts'
import type { ClusterNode } from '../runtimes/kubernetes/nodes.ts'
import type { Capacity, Runtime, ServiceKey } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import { readCapacity } from './capacity.ts'
import { type ConnectedParts, createConnected } from './connected.ts'
import type { Engines } from './engines.ts'
import { isLocal, localKey } from './local.ts'
import { noBuilder, noRuntime } from './no-runtime.ts'
import { createPushedBuilder, type PushParts } from './pushed-builder.ts'

/** A service, wherever it runs. */
export interface ServiceRef extends ServiceKey {
  /** Id of the cluster's row. */
  clusterId: string
}

export interface Cluster {
  /** Rows that stand for one engine have one key: see local.ts. */
  readonly key: string
  /** Whether this server knows how to reach it: services can run there. */
  readonly isConnected: boolean
  readonly runtime: Runtime
  /** Builds images for what runs there. */
  readonly builder: Pick<ImageBuilder, 'build' | 'built' | 'forget' | 'toolImage'>
  /** The runtime's. */
  readonly ingress: Ingress
  readonly images: Images
  /** The machines that it says it has; null for one that is a single machine. */
  readonly nodes: ((signal?: AbortSignal) => Promise<ClusterNode[]>) | null
  /** What it has for services, as its engine said last; null until it first said. */
  capacity(): Promise<Capacity | null>
}

export interface Clusters {
  /** `db`: in a transaction, so that it needs no second connection. */
  of(clusterId: string, db?: Queryable): Promise<Cluster>
  /** Every one that services can run on now, once. */
  all(): readonly Cluster[]
  /** The default one: the engine of this machine. Not connected where there is none. */
  readonly own: Cluster
  /** What this server does with engines of other machines; null where every cluster is this machine's. */
  readonly engines: Engines | null
  /** Connects to a Kubernetes cluster; null as above. */
  readonly openKubernetes: OpenKubernetes | null
  /** Connects to the engines of other machines, and follows their clusters from then on. */
  start(): Promise<void>
  close(): Promise<void>
}

export interface ClustersParts {
  database: Queryable
  /** The engine of this machine; null where there is none. */
  runtime: Runtime | null
  /** Without it, nothing is built there. */
  builder?: Cluster['builder']
  /** Without it, only the engine of this machine is ever connected. */
  others?: ConnectedParts
  /** Without it, nothing is built for clusters whose machines pull what they run. */
  pushes?: PushParts
}

export const createClusters = ({ database, runtime, builder = noBuilder, others, pushes }: ClustersParts): Clusters => {
  const make = (key: string, its: Runtime, more: Partial<Cluster>): Cluster => ({
    ...{ key, isConnected: true, nodes: null, builder: noBuilder, runtime: its },
    ...more,
    ingress: its.ingress,
    images: its.images,
    capacity: () => readCapacity(database, key),
  })
  const local = make(localKey, runtime ?? noRuntime, { builder, isConnected: runtime !== null })
  const pushedBuilder = (clusterId: string): Cluster['builder'] =>
    pushes === undefined ? noBuilder : createPushedBuilder({ ...pushes, database, of }, clusterId)
  const connected = others === undefined ? null : createConnected(others, make, pushedBuilder)
  /** Ids of rows that stand for this machine, which they do for their life. */
  const locals = new Set<string>()

  const of: Clusters['of'] = async (clusterId, db = database) => {
    if (locals.has(clusterId)) return local
    const [row] = await db.query<{ spec: object }>(`select spec from node where id = $1 and kind = 'cluster'`, [
      clusterId,
    ])
    if (row === undefined || !isLocal(row.spec))
      return (await connected?.find(clusterId)) ?? make(clusterId, noRuntime, { isConnected: false })
    locals.add(clusterId)
    return local
  }

  return {
    of,
    all: () => [...(local.isConnected ? [local] : []), ...(connected?.all() ?? [])],
    own: local,
    engines: others?.engines ?? null,
    openKubernetes: others?.openKubernetes ?? null,
    start: async () => connected?.start(),
    async close() {
      await Promise.all([runtime?.close(), connected?.close()])
    },
  }
}
