/**
 * The capacity of clusters, as last reported by their engines: stored in the database, because an engine may be
 * unavailable.
 */
import type { Capacity } from '../runtimes/runtime.ts'
import type { Queryable } from '../store/database.ts'
import type { Cluster } from './clusters.ts'
import { keySql } from './local.ts'

const columns = `k.cpu_millicores as "cpuMillicores", k.memory_mb as "memoryMb", k.architecture,
  k.limits_volumes as "limitsVolumes"`

export const readCapacity = async (db: Queryable, key: string): Promise<Capacity | null> => {
  const [row] = await db.query<Capacity>(`select ${columns} from cluster_capacity k where k.cluster = $1`, [key])
  return row ?? null
}

/** The capacity of the cluster of an environment; null while its engine has never reported any. */
export const readCapacityFor = async (db: Queryable, environmentId: string): Promise<Capacity | null> => {
  const [row] = await db.query<Capacity>(
    `select ${columns} from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid
       join cluster_capacity k on k.cluster = ${keySql('c')} where e.id = $1`,
    [environmentId],
  )
  return row ?? null
}

const shown = `json_build_object('cpu', k.cpu_millicores, 'memory', k.memory_mb)`

/** SQL: the capacity of a cluster's row as `{cpu, memory}`. */
export const capacitySql = (row: string): string =>
  `(select ${shown} from cluster_capacity k where k.cluster = ${keySql(row)})`

export const serviceCapacitySql = (row: string): string =>
  `(select ${shown} from node ce join node cc on cc.id = (ce.spec ->> 'cluster_id')::uuid
    join cluster_capacity k on k.cluster = ${keySql('cc')} where ce.id = ${row}.parent_id)`

/** Asks the cluster's engine for its capacity, and stores it. Rejects if it does not answer. */
export const learnCapacity = async (db: Queryable, { key, runtime }: Cluster): Promise<void> => {
  const { cpuMillicores, memoryMb, architecture, limitsVolumes } = await runtime.capacity()
  await db.query(
    `insert into cluster_capacity as k (cluster, cpu_millicores, memory_mb, architecture, limits_volumes) values ($1, $2, $3, $4, $5)
     on conflict (cluster) do update set cpu_millicores = excluded.cpu_millicores, memory_mb = excluded.memory_mb,
       architecture = excluded.architecture, limits_volumes = excluded.limits_volumes, read_at = excluded.read_at
     where (k.cpu_millicores, k.memory_mb, k.architecture, k.limits_volumes)
       <> (excluded.cpu_millicores, excluded.memory_mb, excluded.architecture, excluded.limits_volumes)`,
    [key, cpuMillicores, memoryMb, architecture, limitsVolumes],
  )
}
