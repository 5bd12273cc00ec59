/** What uses a backup storage: such a storage is not deleted, and stays where it is. */
import type { Queryable } from '../../store/database.ts'

/**
 * SQL for one row of something that uses the storage `$1` of the organization `$2`. A table whose rows name a storage
 * gets its line here.
 */
const uses: readonly string[] = [
  // A `Ref('backup_storage')` in the configuration of a service.
  `select 1 from node u where u.organization_id = $2 and node_refs(u.spec) @> array[$1::text]
    and (u.name_scope = 'service' or u.kind = 'cluster')`,
  'select 1 from backup u where u.storage_id = $1::uuid and u.organization_id = $2',
  'select 1 from backup_schedule u where u.storage_id = $1::uuid and u.organization_id = $2',
]

const anyUse = `select ${uses.map((sql) => `exists (${sql})`).join(' or ')} as "isUsed"`

export const isStorageUsed = async (db: Queryable, organizationId: string, storageId: string): Promise<boolean> => {
  const [row] = await db.query<{ isUsed: boolean }>(anyUse, [storageId, organizationId])
  return row!.isUsed
}
