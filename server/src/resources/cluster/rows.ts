/** Reads of a cluster's row that several files share. Knows nothing of responses. */
import { type Context, nodeInPath } from '../../api/operations/operation.ts'
import type { Spec } from '../../api/operations/resource.ts'
import { isEngineSql } from '../../clusters/local.ts'
import { conflict, notFound } from '../../lib/errors.ts'
import { isKubernetesSql } from '../../store/cluster-rows.ts'
import type { Queryable } from '../../store/database.ts'

export const clusterInOrganization = nodeInPath('cluster', 'clusterId', 'organizationId')
export const clusterInPath = nodeInPath('cluster', 'clusterId')

export const readCluster = async ({ node }: Context, db: Queryable): Promise<Spec> => {
  const [row] = await db.query<{ spec: Spec }>(`select spec from node where id = $1 and kind = 'cluster'`, [node.id])
  if (row === undefined) throw notFound()
  return row.spec
}

const engineSql = `select case when ${isEngineSql('n')} then 'docker'
  when ${isKubernetesSql('n')} then 'kubernetes' end as engine from node n where n.id = $1`

/**
 * The kind of engine that this server has for the cluster of the path: an engine that services run on, or Kubernetes;
 * null for none.
 */
export const engineOf = async ({ node }: Context, db: Queryable): Promise<'docker' | 'kubernetes' | null> => {
  const [row] = await db.query<{ engine: 'docker' | 'kubernetes' | null }>(engineSql, [node.id])
  if (row === undefined) throw notFound()
  return row.engine
}

/**
 * Whether the cluster of the path is a Docker engine that services run on: this machine's, or one that credentials
 * name.
 */
export const isDocker = async (context: Context, db: Queryable): Promise<boolean> =>
  (await engineOf(context, db)) === 'docker'

export interface Lock {
  reason: string
  ttl_in_days?: number
  locked_at: string
  owner_name: string
}

/** The current lock of a cluster; null if there is none or it has expired. */
export const lockIn = (spec: Spec, now: Date): Lock | null => {
  const lock = (spec.lock ?? null) as Lock | null
  if (lock === null) return null
  const days = lock.ttl_in_days ?? -1
  const isOver = days > 0 && now.getTime() > Date.parse(lock.locked_at) + days * 86_400_000
  return isOver ? null : lock
}

/** Throws a 409 if the cluster is locked. */
export const refuseLocked = (spec: Spec, now: Date): void => {
  const lock = lockIn(spec, now)
  if (lock !== null) throw conflict('cluster_locked', 'This cluster is locked: unlock it first.')
}
