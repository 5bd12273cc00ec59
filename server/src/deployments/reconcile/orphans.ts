/**
 * Orphans: objects on a cluster with our labels that have neither a row nor a recorded deletion. They are listed, keep
 * running, and are removed only when a user requests it, or by the age that the operator set.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { isHeld } from '../../clusters/lines/line.ts'
import { conflictChannel, readUnknownVersions } from '../../clusters/lines/rows.ts'
import { localKey } from '../../clusters/local.ts'
import { isUuid } from '../../lib/ids.ts'
import type { Owned } from '../../runtimes/owned.ts'
import type { Queryable } from '../../store/database.ts'
import type { DeploymentParts } from '../parts.ts'
import { servicesIn } from './sweeps.ts'

/** SERVICE: instances and volumes. ENVIRONMENT: network or namespace. VERSION: an unknown one of a known service. */
export type OrphanKind = 'SERVICE' | 'ENVIRONMENT' | 'VERSION'

export interface Orphan {
  /** Id of the service, or of the environment. */
  id: string
  kind: OrphanKind
  environmentId: string
  /** From its labels. */
  organizationId: string | null
  found: {
    instances: { name: string; state: string }[]
    volumes: { id: string; size_gb: number | null }[]
    /** RFC 3339; of its oldest object, null if the cluster does not say. */
    created_at: string | null
  }
}

const mostInstances = 20
const mostVolumes = 1000

/** Names come from the cluster: cut to the length of a name, and without characters that the database cannot store. */
const kept = (name: string): string => name.replaceAll('\0', '').slice(0, 255)

const oldest = (times: readonly (string | null | undefined)[]): string | null =>
  times.filter((time) => time != null && time.length < 40 && !Number.isNaN(Date.parse(time))).sort()[0] ?? null

type Parts = Pick<Owned, 'instances' | 'volumes'>

const describe = ({ instances, volumes }: Parts): Pick<Orphan, 'organizationId' | 'found'> => {
  const labelled = [...instances, ...volumes].map(({ organizationId }) => organizationId ?? '').find(isUuid)
  return {
    organizationId: labelled ?? null,
    found: {
      instances: instances.slice(0, mostInstances).map(({ name, state }) => ({ name: kept(name), state })),
      volumes: volumes.slice(0, mostVolumes).map(({ id, sizeGb }) => ({ id: kept(id), size_gb: sizeGb ?? null })),
      created_at: oldest([
        ...volumes.map(({ createdAt }) => createdAt),
        ...instances.map(({ startedAt }) => startedAt),
      ]),
    },
  }
}

/** The unknown ones among a cluster's objects. Pure, in linear time: a cluster may list any number. */
export const orphansIn = (owned: Owned, unknown: ReadonlySet<string>, versions: readonly string[] = []): Orphan[] => {
  const services = servicesIn(owned)
  const instances = Map.groupBy(
    owned.instances.filter(({ taskId }) => taskId === undefined),
    ({ serviceId }) => serviceId,
  )
  const volumes = Map.groupBy(owned.volumes, ({ serviceId }) => serviceId)
  const of = (id: string, kind: OrphanKind): Orphan[] => {
    const key = services.get(id)
    if (key === undefined || !isUuid(key.environmentId)) return []
    const parts = { instances: instances.get(id) ?? [], volumes: volumes.get(id) ?? [] }
    return [{ id, kind, environmentId: key.environmentId, ...describe(parts) }]
  }
  const inside = [...services.keys()].filter((id) => unknown.has(id)).flatMap((id) => of(id, 'SERVICE'))
  const ownIn = Map.groupBy(inside, ({ environmentId }) => environmentId)
  const around = [...new Set(owned.environments)]
    .filter((id) => unknown.has(id))
    .map((id): Orphan => {
      const own = ownIn.get(id) ?? []
      const organizationId = own[0]?.organizationId ?? null
      // At least as old as its content.
      const found = { instances: [], volumes: [], created_at: oldest(own.map((each) => each.found.created_at)) }
      return { id, kind: 'ENVIRONMENT', environmentId: id, organizationId, found }
    })
  return [...around, ...inside, ...versions.flatMap((id) => of(id, 'VERSION'))]
}

/** Writes the present orphans of a cluster. Resolves to the number of new ones. */
export const writeOrphans = async (db: Queryable, cluster: string, orphans: readonly Orphan[]): Promise<number> => {
  const rows = await db.query<{ isNew: boolean }>(
    `with seen as (
       select * from jsonb_to_recordset($2::jsonb) as o (id uuid, kind text, environment_id uuid, organization_id uuid, found jsonb)
     ), gone as (
       delete from orphan where cluster = $1 and id not in (select id from seen)
     )
     insert into orphan as o (cluster, id, kind, environment_id, organization_id, found)
       select $1, id, kind, environment_id, organization_id, found from seen
       on conflict (cluster, id) do update set kind = excluded.kind, found = excluded.found
         where (o.kind, o.found) is distinct from (excluded.kind, excluded.found)
       returning xmax = 0 as "isNew"`,
    [
      cluster,
      JSON.stringify(
        orphans.map(({ id, kind, environmentId, organizationId, found }) => ({
          ...{ id, kind, found },
          environment_id: environmentId,
          organization_id: organizationId,
        })),
      ),
    ],
  )
  return rows.filter(({ isNew }) => isNew).length
}

export interface ListedOrphan extends Orphan {
  firstSeen: Date
  ignoredAt: Date | null
}

/** `organizationId`: only those with its label; null: all. */
export const readOrphans = (
  db: Queryable,
  cluster: string,
  organizationId: string | null = null,
): Promise<ListedOrphan[]> =>
  db.query<ListedOrphan>(
    `select id, kind, environment_id as "environmentId", organization_id as "organizationId", found,
       first_seen as "firstSeen", ignored_at as "ignoredAt"
     from orphan where cluster = $1 and ($2::uuid is null or organization_id = $2)
     order by environment_id, kind, id limit 1000`,
    [cluster, organizationId],
  )

/** Lists the unknown objects of a cluster. While nothing may be changed there, versions count too. */
export const listOrphans = async (
  parts: Pick<DeploymentParts, 'database' | 'log'>,
  cluster: Cluster,
  owned: Owned,
  unknown: ReadonlySet<string>,
): Promise<void> => {
  const { key } = cluster
  const versions = isHeld(cluster) ? await readUnknownVersions(parts.database, owned) : []
  const news = await writeOrphans(parts.database, key, orphansIn(owned, unknown, versions))
  if (news > 0)
    parts.log.warn(
      { cluster: key, orphans: news },
      'the cluster has services or environments that the database does not know: they are listed as its orphans and are left as they are',
    )
}

/**
 * Records the deletion of these orphans, with everything in an environment: the next sweep removes them. Resolves to
 * the ids that existed. A cluster can list any id as its orphan: the record of a row, or of an orphan of this machine,
 * is not replaced by it.
 */
export const deleteOrphans = async (tx: Queryable, cluster: string, ids: readonly string[]): Promise<string[]> => {
  const rows = await tx.query<{ id: string }>(
    `insert into deletion as d (id, kind, environment_id, cluster, organization_id)
       select o.id, 'ORPHAN', o.environment_id, o.cluster, o.organization_id from orphan o
       where o.cluster = $1 and (o.id = any($2) or o.environment_id = any($2)) and o.kind <> 'VERSION'
         and not exists (select from node n where n.id = o.id)
       on conflict (id) do update set done_at = null, deleted_at = excluded.deleted_at,
         environment_id = excluded.environment_id, cluster = excluded.cluster, organization_id = excluded.organization_id
         where d.kind = 'ORPHAN' and (d.cluster = excluded.cluster or d.cluster <> '${localKey}')
       returning d.id`,
    [cluster, ids],
  )
  await tx.query('delete from orphan where cluster = $1 and id = any($2)', [cluster, rows.map(({ id }) => id)])
  if (rows.length > 0) await tx.query(`select pg_notify('${conflictChannel}', $1)`, [cluster])
  return rows.map(({ id }) => id)
}

/** Orphans first seen so many days ago, if the operator set an age. */
export const deleteOldOrphans = async (
  { database, log, orphanDays = 0 }: Pick<DeploymentParts, 'database' | 'log' | 'orphanDays'>,
  cluster: string,
): Promise<void> => {
  if (orphanDays === 0) return
  const old = await database.query<{ id: string }>(
    `select id from orphan where cluster = $1 and ignored_at is null and first_seen < clock_timestamp() - $2 * interval '1 day'`,
    [cluster, orphanDays],
  )
  if (old.length === 0) return
  const ids = await database.transaction((tx) =>
    deleteOrphans(
      tx,
      cluster,
      old.map(({ id }) => id),
    ),
  )
  log.warn({ cluster, orphans: ids }, 'orphans are removed: they are older than SLIPWAY_ORPHANS_REMOVE_AFTER_DAYS')
}
