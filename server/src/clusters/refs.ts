/** The clusters of services, read from their rows. */
import type { Queryable } from '../store/database.ts'
import { artifactOf } from './artifact.ts'
import type { ServiceRef } from './clusters.ts'

/** Null if the service no longer exists. */
export const readRef = async (db: Queryable, serviceId: string): Promise<ServiceRef | null> => {
  const [row] = await db.query<ServiceRef & { kind: string }>(
    `select cluster_id as "clusterId", environment_id as "environmentId", service_id as "serviceId", kind
     from service_state where service_id = $1`,
    [serviceId],
  )
  if (row === undefined) return null
  const { kind, ...ref } = row
  return { ...ref, artifact: artifactOf(kind) }
}

/** The cluster of an environment; null if the environment no longer exists. */
export const readClusterId = async (db: Queryable, environmentId: string): Promise<string | null> => {
  const [row] = await db.query<{ id: string | null }>(`select spec ->> 'cluster_id' as id from node where id = $1`, [
    environmentId,
  ])
  return row?.id ?? null
}
