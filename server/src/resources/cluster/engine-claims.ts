/**
 * Which cluster owns an engine, which is a Docker engine or a Kubernetes cluster. It belongs to one cluster of one
 * organization, and a cluster with environments keeps it as long as it answers.
 */
import type { Clusters } from '../../clusters/clusters.ts'
import { isKubernetesId } from '../../clusters/kubernetes.ts'
import { conflict } from '../../lib/errors.ts'
import { refuseManyEngines } from '../../limits/engine-room.ts'
import { type Limits, usualLimits } from '../../limits/limits.ts'
import { isLocalSql } from '../../store/cluster-rows.ts'
import { type Queryable, sqlState } from '../../store/database.ts'
import { nameHosts } from '../../store/installation.ts'

/** The identity of an engine, as it reports it. */
export interface MachineFacts {
  /** The engine's own id, the same over restarts. */
  id: string
  version: string
}

interface EngineUser {
  clusterId: string
  engineId: string | null
  hasEnvironments: boolean
}

const usersSql = `select c.id as "clusterId", u.engine_id as "engineId", exists (
    select from node e where e.kind = 'environment' and e.spec ->> 'cluster_id' = c.id::text) as "hasEnvironments"
  from node c left join cluster_engine u on u.cluster_id = c.id
  where c.kind = 'cluster' and not ${isLocalSql('c')}
    and c.spec ->> 'cloud_provider' = 'ON_PREMISE' and c.spec ->> 'kubernetes' = 'SELF_MANAGED'`

export const readUsers = (db: Queryable, credentialsId: string): Promise<EngineUser[]> =>
  db.query<EngineUser>(
    `${usersSql} and c.organization_id = (select organization_id from node where id = $1::uuid)
       and c.spec #>> '{cloud_provider_credentials,credentials,id}' = $1::text`,
    [credentialsId],
  )

export const readUser = (db: Queryable, clusterId: string): Promise<EngineUser[]> =>
  db.query<EngineUser>(`${usersSql} and c.id = $1`, [clusterId])

const answers = async (clusters: Clusters, clusterId: string): Promise<boolean> => {
  const { runtime } = await clusters.of(clusterId)
  return runtime.ping().then(
    () => true,
    () => false,
  )
}

const wordOf = (id: string): string => (isKubernetesId(id) ? 'Kubernetes cluster' : 'Docker engine')

/** Throws when a cluster with environments would lose an engine that still runs them. */
export const refuseMove = async (
  clusters: Clusters,
  users: readonly EngineUser[],
  facts: MachineFacts | null,
): Promise<void> => {
  for (const { clusterId, engineId, hasEnvironments } of users) {
    if (engineId === null || engineId === facts?.id || !hasEnvironments) continue
    const isOfItsKind = facts !== null && isKubernetesId(facts.id) === isKubernetesId(engineId)
    if (isOfItsKind && !(await answers(clusters, clusterId))) continue
    const word = wordOf(engineId)
    throw conflict(
      'cluster_in_use',
      `This cluster still has environments on its ${word}: delete them before you change or remove the ${word}.`,
    )
  }
}

const upsert = `insert into cluster_engine as u (cluster_id, engine_id, version) values ($1, $2, $3)
  on conflict (cluster_id) do update set engine_id = excluded.engine_id, version = excluded.version,
    read_at = clock_timestamp()
  returning xmax = 0 as connected, (select organization_id from node where id = $1) as "organizationId"`

const connect = async (
  tx: Queryable,
  limits: Limits,
  clusterId: string,
  { id, version }: MachineFacts,
): Promise<void> => {
  const [row] = await tx.query<{ connected: boolean; organizationId: string }>(upsert, [clusterId, id, version])
  // A cluster that already has an engine may change it above a lowered limit.
  if (row!.connected) await refuseManyEngines(tx, limits, row!.organizationId)
}

/** Assigns an engine to the cluster; null removes the cluster's engine. */
export const claim = async (
  tx: Queryable,
  limits: Limits = usualLimits,
  clusterId: string,
  facts: MachineFacts | null,
): Promise<void> => {
  if (facts === null) {
    await tx.query('delete from cluster_engine where cluster_id = $1', [clusterId])
    await nameHosts(tx, clusterId)
    return
  }
  try {
    await connect(tx, limits, clusterId, facts)
  } catch (error) {
    if (sqlState(error) !== '23505') throw error
    const word = wordOf(facts.id)
    throw conflict('engine_in_use', `Another cluster already uses this ${word}: it can belong to only one cluster.`)
  }
  await nameHosts(tx, clusterId)
}
