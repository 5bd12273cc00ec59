/**
 * Which clusters this server has a runtime for: the default ones, one of each organization, which all stand for the
 * engine of its own machine. This is the one place that knows.
 */
import type { Queryable } from '../store/database.ts'

/** The key of the engine of this machine, whichever organization's default cluster it is asked for. */
export const localKey = 'local'

/** Whether services on a cluster with this configuration run on this machine's engine. */
export const isLocal = (spec: object): boolean => (spec as { is_default?: unknown }).is_default === true

/** SQL for the same, of a cluster's row. */
export const isLocalSql = (row: string): string => `coalesce((${row}.spec ->> 'is_default')::boolean, false)`

/** SQL: the key (`Cluster.key`) of a cluster's row. */
export const keySql = (row: string): string =>
  `case when ${isLocalSql(row)} then '${localKey}' else ${row}.id::text end`

/** Why nothing can be deployed to the cluster of an environment; null when it can. */
export const clusterRefusal = async (tx: Queryable, environmentId: string): Promise<string | null> => {
  const [row] = await tx.query<{ spec: object }>(
    `select c.spec from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid and c.kind = 'cluster'
     where e.id = $1`,
    [environmentId],
  )
  if (row === undefined || isLocal(row.spec)) return null
  return 'This server cannot deploy to the cluster of this environment. Clone the environment to a cluster that is a Docker engine to deploy it.'
}
