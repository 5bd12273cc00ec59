/**
 * Where services run. A cluster is a runtime, with its ingress, images and capacity; code that acts on a service first
 * gets the cluster of its reference. Clusters are added and removed while the server runs.
 *
 * Promises: `of` returns every existing cluster. On one without a runtime nothing runs: starting something there is
 * refused with the reason. A cluster whose connection changes is a new object. Does not know: deployments and kinds.
 * When the process dies: nothing is lost; which cluster has which runtime follows from its row.
 */
import type { ImageBuilder } from '../builds/builder.ts'
import type { Images } from '../runtimes/images.ts'
import type { Ingress } from '../runtimes/ingress.ts'
import type { OpenKubernetes } from '../runtimes/kubernetes/kubernetes.ts'
import type { ClusterNode } from '../runtimes/kubernetes/nodes.ts'
import type { Capacity, Runtime, ServiceKey } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import { createLoop, type WorkParts } from '../work/loop.ts'
import { readCapacity } from './capacity.ts'
import { type ConnectedParts, createConnected } from './connected.ts'
import type { Engines } from './engines.ts'
import { guardBuilder, guardRuntime } from './lines/guard.ts'
import { createLine, type Line, type LineParts } from './lines/line.ts'
import { conflictChannel } from './lines/rows.ts'
import { isLocal, localKey } from './local.ts'
import { noBuilder, noRuntime } from './no-runtime.ts'
import { createPushedBuilder, type PushParts } from './pushed-builder.ts'

export interface ServiceRef extends ServiceKey {
  clusterId: string
}

export interface Cluster {
  /** Rows for the same engine share one key: see local.ts. */
  readonly key: string
  /** Whether this server can connect to it: services can run there. */
  readonly isConnected: boolean
  readonly runtime: Runtime
  readonly builder: Omit<ImageBuilder, 'close'>
  readonly ingress: Ingress
  readonly images: Images
  /** Its machines, as it reports them; null for a single machine. */
  readonly nodes: ((signal?: AbortSignal) => Promise<ClusterNode[]>) | null
  /** Whether this server may change anything there; absent where no other control plane can be at work. */
  readonly line?: Line
  /** Its capacity for services, as its engine last reported it; null until then. */
  capacity(): Promise<Capacity | null>
}

export interface Clusters {
  /** `db`: in a transaction, so that it needs no second connection. */
  of(clusterId: string, db?: Queryable): Promise<Cluster>
  /** All clusters that services can run on now, each once. */
  all(): readonly Cluster[]
  /** The default one: the engine of this machine. Not connected where there is none. */
  readonly own: Cluster
  /** Connections to engines of other machines; null where every cluster is this machine's. */
  readonly engines: Engines | null
  /** Connects to a Kubernetes cluster; null as above. */
  readonly openKubernetes: OpenKubernetes | null
  /** Connects to the engines of other machines, and keeps their clusters up to date. */
  start(): Promise<void>
  close(): Promise<void>
}

interface ClustersParts {
  database: Queryable
  /** The engine of this machine; null where there is none. */
  runtime: Runtime | null
  /** Without it, nothing is built there. */
  builder?: Cluster['builder']
  /** Without it, only the engine of this machine is ever connected. */
  others?: ConnectedParts
  /** Without it, nothing is built for clusters whose machines pull their images. */
  pushes?: PushParts
  /** Without it, no other control plane is expected on any engine. */
  lines?: Omit<LineParts, 'stopping'> & WorkParts
}

/** How often marks are read, and so how soon a control plane with a copy of the database is noticed. */
const beatMs = 5000

/** Reads the marks of all periodically, and when an operator has decided. */
const followLines = async (parts: NonNullable<ClustersParts['lines']>, all: () => readonly Cluster[]) => {
  // A cluster that does not answer delays no other.
  const look = async (): Promise<void> => {
    for (const { line } of all()) line?.check().catch(() => {})
  }
  const failed = 'the marks of clusters are not read'
  const loop = createLoop(parts, { name: 'cluster marks', periodMs: beatMs, failed, run: look })
  const leave = await parts.database.listen(conflictChannel, () => loop.wake())
  return async (): Promise<void> => {
    leave()
    await loop.stop()
  }
}

export const createClusters = (parts: ClustersParts): Clusters => {
  const { database, runtime, builder = noBuilder, others, pushes, lines } = parts
  const stopping = new AbortController()
  const make = (key: string, its: Runtime, more: Partial<Cluster>): Cluster => {
    const line =
      lines === undefined || its === noRuntime
        ? undefined
        : createLine({ ...lines, stopping: stopping.signal }, key, its)
    const guarded = line === undefined ? its : guardRuntime(line, its)
    const given = more.builder ?? noBuilder
    return {
      ...{ key, isConnected: true, nodes: null },
      ...more,
      ...(line === undefined ? {} : { line }),
      builder: line === undefined ? given : guardBuilder(line, given),
      runtime: guarded,
      ingress: guarded.ingress,
      images: guarded.images,
      capacity: () => readCapacity(database, key),
    }
  }
  const local = make(localKey, runtime ?? noRuntime, { builder, isConnected: runtime !== null })
  const pushedBuilder = (clusterId: string): Cluster['builder'] =>
    pushes === undefined ? noBuilder : createPushedBuilder({ ...pushes, database, of }, clusterId)
  const connected = others === undefined ? null : createConnected(others, make, pushedBuilder)
  /** Ids of rows for this machine; a row stays one for its life. */
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

  const all = (): Cluster[] => [...(local.isConnected ? [local] : []), ...(connected?.all() ?? [])]
  let leaveLines: (() => Promise<void>) | undefined

  return {
    of,
    all,
    own: local,
    engines: others?.engines ?? null,
    openKubernetes: others?.openKubernetes ?? null,
    async start() {
      await connected?.start()
      if (lines !== undefined) leaveLines = await followLines(lines, all)
    },
    async close() {
      stopping.abort()
      await leaveLines?.()
      await Promise.all([runtime?.close(), connected?.close()])
    },
  }
}
