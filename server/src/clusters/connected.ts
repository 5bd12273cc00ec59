/**
 * The clusters of other machines that this server is connected to: they come and go while it runs. Their rows are read
 * when something tells of a change, and every few seconds, so that every server follows what another one wrote.
 */
import { isIPv6 } from 'node:net'
import type { EngineConnection, Pin } from '../lib/docker/engine-connection.ts'
import type { Clock } from '../lib/time/clock.ts'
import type { Runtime } from '../runtimes/runtime.ts'
import type { Database } from '../store/database.ts'
import type { Sealer } from '../store/keys/seal.ts'
import { createLoop, type WorkParts } from '../work/loop.ts'
import type { Cluster } from './clusters.ts'
import { connectionOf, type EngineRow, type EngineSpec, type Engines, openSecrets, readEngineRows } from './engines.ts'

export interface ConnectedParts extends WorkParts {
  database: Database
  sealer: Sealer
  engines: Engines
}

export interface Connected {
  all(): Cluster[]
  /** Undefined for one that is no engine. */
  find(clusterId: string): Promise<Cluster | undefined>
  /** Begins to follow the rows. */
  start(): Promise<void>
  close(): Promise<void>
}

interface Entry {
  version: string
  cluster: Cluster
  connection: EngineConnection
  clear(): Promise<void>
  /** When its engine is to be asked again who it is. */
  asksAtMs: number
}

const everyMs = 10_000
/** An engine is updated now and then. */
const askEveryMs = 10 * 60_000
/** Whoever still works with a connection that was replaced may end that. */
const closeAfterMs = 15_000

const closeLater = (runtime: Runtime, clock: Clock, stopping: AbortSignal): Promise<void> =>
  clock
    .sleep(closeAfterMs, stopping)
    .catch(() => {})
    .then(() => runtime.close())

const anyPort = 22

/** Checked as the address of the engine itself: the router sends requests there, so it must be one that may be asked. */
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

export const createConnected = (
  parts: ConnectedParts,
  make: (clusterId: string, runtime: Runtime, builder: Cluster['builder']) => Cluster,
): Connected => {
  const { database, sealer, engines, clock, log } = parts
  const entries = new Map<string, Entry>()
  const closing = new Set<Promise<void>>()
  const stopping = new AbortController()

  const notCleared = (clusterId: string, error: unknown): void =>
    log.warn({ err: error, cluster: clusterId }, 'images of a deleted cluster are left on its engine')

  const letGo = (clusterId: string, isGone = false): void => {
    const entry = entries.get(clusterId)
    if (entry === undefined) return
    entries.delete(clusterId)
    const cleared = isGone ? entry.clear().catch((error: unknown) => notCleared(clusterId, error)) : undefined
    const closed = Promise.all([closeLater(entry.cluster.runtime, clock, stopping.signal), cleared])
      .then(() => {})
      .finally(() => closing.delete(closed))
    closing.add(closed)
  }
  const connect = async (row: EngineRow): Promise<void> => {
    if (entries.get(row.clusterId)?.version === row.version) return
    const connection = connectionOf(row.spec, await openSecrets(sealer, row), engines.pin)
    const { clusterId, organizationId, spec } = row
    const serviceAddress = await serviceAddressOf(spec, connection, engines.pin)
    const { runtime, builder, clear } = engines.open({ clusterId, organizationId, connection, serviceAddress })
    letGo(clusterId)
    entries.set(clusterId, {
      version: row.version,
      cluster: make(clusterId, runtime, builder),
      connection,
      clear,
      asksAtMs: 0,
    })
    log.info({ cluster: clusterId }, 'connected to the engine of a cluster')
  }
  const read = async (clusterId: string | null): Promise<void> => {
    const rows = await readEngineRows(database, clusterId)
    const there = new Set(rows.map((row) => row.clusterId))
    for (const id of clusterId === null ? [...entries.keys()] : [clusterId]) if (!there.has(id)) letGo(id, true)
    for (const row of rows)
      await connect(row).catch((error: unknown) => {
        log.warn({ err: error, cluster: row.clusterId }, 'the credentials of a cluster cannot be used')
      })
  }
  const learnVersion = async ([clusterId, entry]: [string, Entry]): Promise<void> => {
    if (clock.monotonicMs() < entry.asksAtMs) return
    entry.asksAtMs = clock.monotonicMs() + askEveryMs
    const { version } = await engines.identify(entry.connection, stopping.signal)
    await database.query(
      `update cluster_engine set version = $2, read_at = clock_timestamp() where cluster_id = $1 and version <> $2`,
      [clusterId, version],
    )
  }
  /** One that does not answer is asked again as late: its health says so meanwhile. */
  const learnVersions = () => Promise.allSettled([...entries].map(learnVersion))
  let last: Promise<void> = Promise.resolve()
  /** One at a time, so that nobody connects twice. */
  const refresh = (clusterId: string | null): Promise<void> => {
    const next = last.catch(() => {}).then(() => (stopping.signal.aborted ? undefined : read(clusterId)))
    last = next
    return next
  }
  const ends: (() => unknown)[] = []

  return {
    all: () => [...entries.values()].map(({ cluster }) => cluster),
    async find(clusterId) {
      if (!entries.has(clusterId)) await refresh(clusterId)
      return entries.get(clusterId)?.cluster
    },
    async start() {
      await refresh(null)
      const loop = createLoop(parts, {
        name: 'cluster connections',
        periodMs: everyMs,
        waits: true,
        failed: 'cluster connections could not be refreshed',
        run: async () => {
          await refresh(null)
          await learnVersions()
        },
      })
      ends.push(() => loop.stop())
      ends.push(await database.listen('slipway_cluster', () => loop.wake()))
    },
    async close() {
      await Promise.all(ends.map((end) => end()))
      stopping.abort()
      await last.catch(() => {})
      for (const id of [...entries.keys()]) letGo(id)
      await Promise.all(closing)
    },
  }
}
