/**
 * The clusters of other machines that this server is connected to: they are added and removed while it runs. Their
 * rows are read when a notification says that they changed, and every few seconds, so that every server follows the
 * changes of others.
 */
import { isIPv6 } from 'node:net'
import { createKeyedLock, withLock } from '../lib/concurrency/keyed-lock.ts'
import { waitAtMost } from '../lib/concurrency/waiting.ts'
import type { EngineConnection } from '../lib/docker/engine-connection.ts'
import type { Pin } from '../lib/net/pinned-connector.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { OpenKubernetes } from '../runtimes/kubernetes/kubernetes.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { createLoop, type WorkParts } from '../work/loop.ts'
import type { Cluster } from './clusters.ts'
import { connectionOf, type EngineRow, type EngineSpec, type Engines, openSecrets, readEngineRows } from './engines.ts'
import {
  connectKubernetes,
  type KubernetesRow,
  type KubernetesServices,
  openKubeconfig,
  readKubernetesRows,
} from './kubernetes.ts'
import { isHeld } from './lines/line.ts'

export interface ConnectedParts extends WorkParts {
  database: Database
  sealer: Sealer
  engines: Engines
  openKubernetes: OpenKubernetes
  services: KubernetesServices
}

interface Connected {
  all(): Cluster[]
  /** Undefined for a cluster that this server cannot connect to. */
  find(clusterId: string): Promise<Cluster | undefined>
  start(): Promise<void>
  close(): Promise<void>
}

interface Opened {
  cluster: Cluster
  /** Removes all objects made there, because the cluster was deleted. */
  clear(): Promise<void>
  version(signal: AbortSignal): Promise<string>
}

interface Entry extends Opened {
  /** Version of its row and credentials. */
  written: string
  /** When its version is to be read again. */
  asksAtMs: number
}

const everyMs = 10_000
/** How long a start waits for clusters that do not answer. */
const patienceMs = 3000
/** Engines are updated from time to time. */
const askEveryMs = 10 * 60_000
/** Work on a replaced connection may finish within this time. */
const closeAfterMs = 15_000

const closeLater = (runtime: Runtime, clock: Clock, stopping: AbortSignal): Promise<void> =>
  clock
    .sleep(closeAfterMs, stopping)
    .catch(() => {})
    .then(() => runtime.close())

/** Removes all objects made on a deleted cluster, unless another control plane may be at work there. */
const clearAway = async ({ cluster, clear }: Pick<Entry, 'cluster' | 'clear'>, signal: AbortSignal): Promise<void> => {
  const { key, runtime } = cluster
  if (isHeld(cluster)) return
  await clear()
  for (const mark of await runtime.marks.list(key, signal)) await runtime.marks.remove(key, mark, signal)
}

const anyPort = 22

/** Checked like the engine's own address: the router sends requests there, so connections must be allowed. */
const serviceAddressOf = async (
  { engine_service_address: named }: EngineSpec,
  connection: EngineConnection,
  pin: Pin,
): Promise<string | null> => {
  const host = named ?? (connection.kind === 'local' ? null : connection.host)
  if (host === null) return null
  const { address } = await pin(host, anyPort)
  if (!isIPv6(address)) return address
  throw new Error('services are published at IPv4 addresses only: engine_service_address must name one')
}

/** One refresh at a time for each cluster: it is connected once, and one that does not answer delays no other. */
const createRefresh = (readOne: (clusterId: string) => Promise<void>, stopping: AbortSignal) => {
  const turns = createKeyedLock()
  /** Refreshes that have not begun: they read the rows as they are then. */
  const waiting = new Map<string, Promise<void>>()
  const working = new Set<Promise<void>>()
  return {
    refresh(clusterId: string): Promise<void> {
      const before = waiting.get(clusterId)
      if (before !== undefined) return before
      const work = withLock(turns, clusterId, stopping, () => {
        waiting.delete(clusterId)
        return readOne(clusterId)
      })
      waiting.set(clusterId, work)
      const ended = work.catch(() => {}).then(() => void working.delete(ended))
      working.add(ended)
      return work
    },
    settled: () => Promise.all(working),
  }
}

export const createConnected = (
  parts: ConnectedParts,
  make: (clusterId: string, runtime: Runtime, more: Partial<Cluster>) => Cluster,
  /** For a cluster whose machines pull their images. */
  pushedBuilder: (clusterId: string) => Cluster['builder'],
): Connected => {
  const { database, sealer, engines, openKubernetes, services, clock, log } = parts
  const entries = new Map<string, Entry>()
  const closing = new Set<Promise<void>>()
  const stopping = new AbortController()

  const notCleared = (clusterId: string, error: unknown): void =>
    log.warn({ err: error, cluster: clusterId }, 'images of a deleted cluster are left on its engine')

  const letGo = (clusterId: string, isGone = false): void => {
    const entry = entries.get(clusterId)
    if (entry === undefined) return
    entries.delete(clusterId)
    const cleared = isGone
      ? clearAway(entry, stopping.signal).catch((error) => notCleared(clusterId, error))
      : undefined
    const closed = Promise.all([closeLater(entry.cluster.runtime, clock, stopping.signal), cleared])
      .then(() => {})
      .finally(() => closing.delete(closed))
    closing.add(closed)
  }
  const openEngine = async (row: EngineRow): Promise<Opened> => {
    const connection = connectionOf(row.spec, await openSecrets(sealer, row), engines.pin)
    const { clusterId, organizationId, spec } = row
    const serviceAddress = await serviceAddressOf(spec, connection, engines.pin)
    const { runtime, builder, clear } = engines.open({ clusterId, organizationId, connection, serviceAddress })
    const version = async (signal: AbortSignal) => (await engines.identify(connection, signal)).version
    return { cluster: make(clusterId, runtime, { builder }), clear, version }
  }
  const openOther = async (row: KubernetesRow): Promise<Opened> => {
    const kubeconfig = await openKubeconfig(sealer, row)
    const { kubernetes, runtime } = await connectKubernetes(row, kubeconfig, openKubernetes, services)
    const cluster = make(row.clusterId, runtime, { nodes: kubernetes.nodes, builder: pushedBuilder(row.clusterId) })
    const version = async (signal: AbortSignal) => (await kubernetes.look(signal)).version
    return { cluster, clear: async () => {}, version }
  }
  const connect = async (row: { clusterId: string; version: string }, open: () => Promise<Opened>): Promise<void> => {
    const { clusterId, version: written } = row
    if (entries.get(clusterId)?.written === written) return
    const opened = await open()
    letGo(clusterId)
    entries.set(clusterId, { ...opened, written, asksAtMs: 0 })
    log.info({ cluster: clusterId }, 'connected to a cluster')
  }
  const read = async (clusterId: string | null) => {
    const [docker, kubernetes] = [
      await readEngineRows(database, clusterId),
      await readKubernetesRows(database, clusterId),
    ]
    return [
      ...docker.map((row) => ({ row, open: () => openEngine(row) })),
      ...kubernetes.map((row) => ({ row, open: () => openOther(row) })),
    ]
  }
  const readOne = async (clusterId: string): Promise<void> => {
    const [found] = await read(clusterId)
    if (found === undefined) return letGo(clusterId, true)
    await connect(found.row, found.open).catch((error: unknown) => {
      log.warn({ err: error, cluster: clusterId }, 'the credentials of a cluster cannot be used')
    })
  }
  const { refresh, settled } = createRefresh(readOne, stopping.signal)
  /** Starts a refresh of each cluster whose row differs from its connection; `begun` resolves with the last of them. */
  const refreshAll = async (): Promise<{ begun: Promise<unknown> }> => {
    const there = new Map((await read(null)).map(({ row }) => [row.clusterId, row.version]))
    const others = [...there].flatMap(([id, version]) => (entries.get(id)?.written === version ? [] : [id]))
    const gone = [...entries.keys()].filter((id) => !there.has(id))
    return { begun: Promise.allSettled([...others, ...gone].map(refresh)) }
  }
  const learnVersion = async ([clusterId, entry]: [string, Entry]): Promise<void> => {
    if (clock.monotonicMs() < entry.asksAtMs) return
    entry.asksAtMs = clock.monotonicMs() + askEveryMs
    const version = await entry.version(stopping.signal)
    await database.query(
      `update cluster_engine set version = $2, read_at = clock_timestamp() where cluster_id = $1 and version <> $2`,
      [clusterId, version],
    )
  }
  /** A cluster that does not answer is asked again an interval later: its health is unknown meanwhile. */
  const learnVersions = () => Promise.allSettled([...entries].map(learnVersion)).then(() => {})
  const ends: (() => unknown)[] = []

  return {
    all: () => [...entries.values()].map(({ cluster }) => cluster),
    async find(clusterId) {
      if (!entries.has(clusterId)) await refresh(clusterId)
      return entries.get(clusterId)?.cluster
    },
    async start() {
      const { begun } = await refreshAll()
      // Clusters that answer are available to everything that starts next.
      await waitAtMost(clock, patienceMs, begun)
      const common = { periodMs: everyMs, waits: true, failed: 'cluster connections could not be refreshed' }
      // A loop of its own, so that a cluster that does not answer keeps no other from being connected.
      const versions = createLoop(parts, { ...common, name: 'cluster versions', run: learnVersions })
      const loop = createLoop(parts, {
        ...common,
        name: 'cluster connections',
        run: async () => {
          const { begun: connecting } = await refreshAll()
          void connecting.then(() => versions.wake())
        },
      })
      ends.push(async () => {
        await loop.stop()
        await versions.stop()
      })
      ends.push(await database.listen('slipway_cluster', () => loop.wake()))
    },
    async close() {
      await Promise.all(ends.map((end) => end()))
      stopping.abort()
      await settled()
      for (const id of [...entries.keys()]) letGo(id)
      await Promise.all(closing)
    },
  }
}
