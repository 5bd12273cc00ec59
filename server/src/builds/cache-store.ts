/** The caches of builds (`RUN --mount=type=cache`): one row in `build_cache` for each volume. */
import type { Queryable } from '../store/database.ts'
import type { ImageOwner } from './image-store.ts'

export interface KnownCache {
  volume: string
  organizationId: string
  sizeKb: number
  idleDays: number
  isOrphan: boolean
}

export interface CacheStore {
  /** Notes that the volume is used now, before it is made. */
  use(owner: ImageOwner, volume: string): Promise<void>
  /** Takes exclusive use of it for a time, or extends it; false if another step has it. */
  hold(volume: string, holder: string, ms: number): Promise<boolean>
  free(volume: string, holder: string): Promise<void>
  measure(volume: string, sizeKb: number): Promise<void>
  /** The caches of a cluster, the longest unused first. */
  list(clusterId: string): Promise<KnownCache[]>
  forget(volume: string): Promise<void>
}

interface Row {
  volume: string
  organization_id: string
  size_kb: string
  idle_days: string
  is_orphan: boolean
}

export const createCacheStore = (database: Queryable): CacheStore => ({
  async use({ organizationId, clusterId }, volume) {
    await database.query(
      `insert into build_cache (volume, organization_id, cluster_id) values ($1, $2, $3)
       on conflict (volume) do update set used_at = clock_timestamp()`,
      [volume, organizationId, clusterId],
    )
  },
  async hold(volume, holder, ms) {
    const rows = await database.query(
      `update build_cache set holder = $2, held_until = clock_timestamp() + $3 * interval '1 millisecond',
         used_at = clock_timestamp()
       where volume = $1 and (holder is null or holder = $2 or held_until < clock_timestamp()) returning volume`,
      [volume, holder, ms],
    )
    return rows.length > 0
  },
  async free(volume, holder) {
    await database.query('update build_cache set holder = null, held_until = null where volume = $1 and holder = $2', [
      volume,
      holder,
    ])
  },
  async measure(volume, sizeKb) {
    await database.query('update build_cache set size_kb = $2 where volume = $1', [volume, sizeKb])
  },
  async list(clusterId) {
    const rows = await database.query<Row>(
      `select volume, organization_id, size_kb, extract(epoch from clock_timestamp() - used_at) / 86400 as idle_days,
         not exists (select from node where id = organization_id) as is_orphan
       from build_cache where cluster_id = $1 order by used_at`,
      [clusterId],
    )
    return rows.map((row) => ({
      volume: row.volume,
      organizationId: row.organization_id,
      sizeKb: Number(row.size_kb),
      idleDays: Number(row.idle_days),
      isOrphan: row.is_orphan,
    }))
  },
  async forget(volume) {
    await database.query('delete from build_cache where volume = $1', [volume])
  },
})
