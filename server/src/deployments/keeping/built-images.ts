/**
 * Images that were built on an engine and that no release names: of older releases, of deleted services, previews and
 * organizations, and of deployments that failed. An image may have several names, and several services may run it: it
 * stays as long as one release of any of them names it.
 *
 * Promises: an image that runs, or that a deployment in progress may have built or found, stays. Only images that this
 * database knows to be built by one of its organizations on this engine are touched, and of those only the names below
 * the organization's own prefix: what others have on the same engine stays, whatever it is called. Images that were
 * pushed to a registry are not deleted there. If the process dies here, the row stays until the image is gone.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { keySql } from '../../clusters/local.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { openStates } from '../status/states.ts'

/** SQL: whether a row belongs to the engine with the key $1, also that of an organization that was deleted. */
export const onEngineSql = (row: string): string => `${row}.cluster_id in (
  select c.id from node c where c.kind = 'cluster' and ${keySql('c')} = $1
  union all select t.id from deletion t where t.kind = 'cluster' and t.cluster = $1)`

/**
 * SQL: whether a deployment in progress may need what its organization last used at this moment: it was requested
 * before. One that is requested later uses it first, and so changes the moment. When it began does not matter: after
 * the death of its process it begins again. Deployments that have never begun have used nothing.
 */
export const mayBeInUseSql = (row: string): string => `exists (select from deployment d
  where d.organization_id = ${row}.organization_id and d.state in ${openStates} and d.fence > 0
    and d.created_at <= ${row}.used_at)`

/**
 * SQL: whether an image is needed, also without the releases of the parameter `going`. What was pushed to a registry is
 * built again from the layers of the image that stays here.
 */
const isNeededSql = (going: string): string => `(exists (select from release r
    where r.image = i.reference and r.id <> all(${going}::uuid[]))
  or exists (select from image p join release r on r.image = p.reference
    where p.image_id = i.image_id and p.reference <> i.reference and r.id <> all(${going}::uuid[]))
  or ${mayBeInUseSql('i')})`

export interface BuiltImage {
  organizationId: string
  imageId: string
}

/** Built images on the engine with this key that nothing needs, or that only the releases `going` do. */
export const readUnneeded = (
  db: Queryable,
  key: string,
  organizationId: string | null,
  going: readonly string[] = [],
  most = 1000,
): Promise<BuiltImage[]> =>
  db.query<BuiltImage>(
    `select i.organization_id as "organizationId", i.image_id as "imageId" from image i
     where i.reference = i.image_id and ${onEngineSql('i')} and ($2::uuid is null or i.organization_id = $2)
     group by 1, 2 having not bool_or(${isNeededSql('$3')}) limit $4`,
    [key, organizationId, going, most],
  )

/**
 * Removes one image, if nothing needs it now. Its rows are locked meanwhile: a build of the same content waits, and
 * then builds it again. Resolves to whether it is gone.
 */
const removeOne = (database: Pick<Database, 'transaction'>, cluster: Cluster, image: BuiltImage): Promise<boolean> =>
  database.transaction(async (tx) => {
    const { organizationId, imageId } = image
    const ours = `i.image_id = $2 and i.organization_id = $3 and ${onEngineSql('i')}`
    const values = [cluster.key, imageId, organizationId]
    await tx.query(`select from image i where ${ours} for update`, values)
    const isNeeded = isNeededSql(`'{}'`)
    const rows = await tx.query<{ isNeeded: boolean }>(
      `select ${isNeeded} as "isNeeded" from image i where ${ours}`,
      values,
    )
    if (rows.length === 0 || rows.some(({ isNeeded }) => isNeeded)) return false
    const running = await cluster.builder.forget!(organizationId, [imageId])
    if (running.length > 0) return false
    await tx.query(`delete from image i where ${ours}`, values)
    return true
  })

/** Removes what nothing needs from a cluster's engine; resolves to the images that are gone. */
export const removeUnneeded = async (
  database: Database,
  cluster: Cluster,
  organizationId: string | null,
  signal: AbortSignal,
): Promise<BuiltImage[]> => {
  if (cluster.builder.forget === undefined) return []
  const gone: BuiltImage[] = []
  const failures: unknown[] = []
  for (const image of await readUnneeded(database, cluster.key, organizationId)) {
    signal.throwIfAborted()
    // One that cannot be removed does not keep the others.
    const isGone = await removeOne(database, cluster, image).catch((error: unknown) => void failures.push(error))
    if (isGone === true) gone.push(image)
  }
  if (failures.length > 0) throw failures[0]
  return gone
}

const pushedDays = 30

/** Forgets images in registries that no release names and that no deployment has looked for; they stay there. */
export const forgetPushed = async (db: Queryable): Promise<void> => {
  await db.query(
    `delete from image i where i.reference <> i.image_id and i.used_at < clock_timestamp() - $1 * interval '1 day'
       and not exists (select from release r where r.image = i.reference)`,
    [pushedDays],
  )
}
