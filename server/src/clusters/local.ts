/**
 * Which clusters this server can connect to: the default ones, one for each organization, which are all the engine of
 * its own machine, if it has one; those whose credentials name a Docker engine; and those that are Kubernetes, with
 * the kubeconfig of their credentials or of their module's outputs. Only this file knows.
 */
import { isKubernetesSql, isLocalSql, namesSql } from '../store/cluster-rows.ts'
import type { Queryable } from '../store/database.ts'
import { hasEngineSql } from '../store/installation.ts'

/** The key of the engine of this machine, whichever organization's default cluster it serves. */
export const localKey = 'local'

/** Whether services on a cluster with this configuration run on this machine's engine. */
export const isLocal = (spec: object): boolean => (spec as { is_default?: unknown }).is_default === true

/** SQL: the key (`Cluster.key`) of a cluster's row. */
export const keySql = (row: string): string =>
  `case when ${isLocalSql(row)} then '${localKey}' else ${row}.id::text end`

/** SQL for the key of the cluster of the environment with this id. */
export const environmentKeySql = (id: string): string =>
  `(select ${keySql('c')} from node e join node c on c.id = (e.spec ->> 'cluster_id')::uuid where e.id = ${id})`

/** SQL: whether `k` are the credentials of a cluster's row, and name the Docker engine that the cluster is. */
export const namesEngineSql = (row: string): string => `${namesSql(row)} and k.spec ? 'engine_url'`

/** SQL: whether a row is a Docker engine that this server can connect to: its own, or one named in credentials. */
export const isEngineSql = (row: string): string =>
  `(case when ${isLocalSql(row)} then ${hasEngineSql} else exists (select from node k where ${namesEngineSql(row)}) end)`

/** SQL: whether this server can connect to the cluster of a row. */
export const isReachedSql = (row: string): string => `(${isEngineSql(row)} or ${isKubernetesSql(row)})`

/** Why nothing runs on the default cluster of a server that was started without an engine. */
export const noEngineSentence =
  'This server has no Docker engine of its own (SLIPWAY_DOCKER=off), so nothing runs on its default cluster: use a cluster whose credentials name a Docker engine or have a kubeconfig.'

/** Why nothing can be deployed to the cluster of an environment; null if it can. */
export const clusterRefusal = async (tx: Queryable, environmentId: string): Promise<string | null> => {
  const [row] = await tx.query<{ isReached: boolean; isDefault: boolean }>(
    `select ${isReachedSql('d')} as "isReached", ${isLocalSql('d')} as "isDefault"
     from node e join node d on d.id = (e.spec ->> 'cluster_id')::uuid and d.kind = 'cluster' where e.id = $1`,
    [environmentId],
  )
  if (row === undefined || row.isReached) return null
  if (row.isDefault) return noEngineSentence
  return 'This server cannot deploy to the cluster of this environment, because it does not know how to reach it. Give the cluster credentials that name a Docker engine or have a kubeconfig, or clone the environment to the default cluster.'
}
