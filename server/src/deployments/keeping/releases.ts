/**
 * How many releases of a service are kept: those that it can be rolled back to. Releases of the same content, as a
 * restart or a rollback makes them, count once: of them the first one stays, whose id clients know, and the newest.
 *
 * Promises: what runs, is being deployed, or is wanted by a deployment in the queue stays. A request for a rollback
 * and this take turns per environment, so that an accepted rollback finds its release. Does not know images: those that
 * no release names are removed by built-images.ts.
 */
import type { Database, Queryable } from '../../store/database.ts'
import { wasSuccessfulSql } from '../release/rollback.ts'
import { openStates } from '../status/states.ts'

/** Says that images may have become superfluous. */
export const unneededChannel = 'slipway_unneeded'

/** What is kept of the services $1, of each $2 different releases. */
const chosenSql = `own as (
    select r.id, r.service_id, r.hash, r.image, r.created_at, r.deployment_id, ${wasSuccessfulSql} as ran
    from release r where r.service_id = any($1)
  ), content as (
    select distinct on (service_id, hash, image) id, service_id, hash, image, created_at from own where ran
    order by service_id, hash, image, created_at desc, id desc
  ), chosen as (
    select * from (select *, row_number() over (partition by service_id order by created_at desc, id desc) as place
      from content) placed where place <= $2
  ), kept as (
    select id from chosen
    union (select distinct on (o.service_id, o.hash, o.image) o.id from own o
      join chosen c on (c.service_id, c.hash, c.image) = (o.service_id, o.hash, o.image) where o.ran
      order by o.service_id, o.hash, o.image, o.created_at, o.id)
    union (select distinct on (service_id) id from own order by service_id, created_at desc, id desc)
    union select current_release_id from service_state where service_id = any($1)
    union select o.id from own o join deployment d on d.id = o.deployment_id where d.state in ${openStates}
    union select (w.requested ->> 'releaseId')::uuid from deployment_service w join deployment d on d.id = w.deployment_id
      where w.service_id = any($1) and d.state in ${openStates}
    union select release_id from task_run where service_id = any($1) and state = 'RUNNING'
    union select release_id from task_state where id = any($1)
  ), gone as (
    select * from own o where not exists (select from kept k where k.id = o.id)
  )`

/** Deployments that refer to a repeated release then refer to the newest of its content. */
const deleteSql = `with ${chosenSql}, moved as (
    update deployment_service w set release_id = c.id from gone g
      join content c on (c.service_id, c.hash, c.image) = (g.service_id, g.hash, g.image)
    where w.service_id = g.service_id and w.release_id = g.id and c.id in (select id from kept)
  )
  delete from release r using gone g where r.id = g.id returning r.id`

export interface OldRelease {
  id: string
  serviceId: string
  image: string
  bytes: number
}

/** What would be deleted. */
export const readOldReleases = (db: Queryable, serviceIds: readonly string[], kept: number): Promise<OldRelease[]> =>
  db.query<OldRelease>(
    `with ${chosenSql} select r.id, r.service_id as "serviceId", r.image,
       octet_length(r.sealed_env) + octet_length(r.workload::text) as bytes
     from gone g join release r on r.id = g.id order by r.service_id, r.created_at`,
    [serviceIds, kept],
  )

const tell = (tx: Queryable): Promise<unknown> => tx.query(`select pg_notify('${unneededChannel}', '')`)

/** Deletes the superfluous releases of services of one environment; resolves to their number. */
export const deleteOldReleases = (
  database: Pick<Database, 'transaction'>,
  environmentId: string,
  serviceIds: readonly string[],
  kept: number,
): Promise<number> =>
  database.transaction(async (tx) => {
    // As every request for a deployment does: one that wants a release has been written, or will not find it.
    await tx.query(`select from node where id = $1 and kind = 'environment' for no key update`, [environmentId])
    const gone = await tx.query(deleteSql, [serviceIds, kept])
    if (gone.length > 0) await tell(tx)
    return gone.length
  })

/**
 * SQL: releases of deleted services. A service that is restored from its instances gets its row and its release in one
 * transaction.
 */
const ofDeletedSql = (where: string): string => `delete from release where id in (select r.id from release r
  where ${where} and not exists (select from node n where n.id = r.service_id)
    and not exists (select from deployment d where d.id = r.deployment_id and d.state in ${openStates})
  limit $2) returning 1`

const batch = 500

const deleteDeleted = async (db: Queryable, sql: string, value: unknown): Promise<void> => {
  for (;;) {
    const gone = await db.query(sql, [value, batch])
    if (gone.length > 0) await tell(db)
    if (gone.length < batch) return
  }
}

/** The releases of those of these services that are deleted. */
export const deleteReleasesOf = (db: Queryable, serviceIds: readonly string[]): Promise<void> =>
  deleteDeleted(db, ofDeletedSql('r.service_id = any($1)'), serviceIds)

/** The releases of all deleted services. */
export const deleteReleasesOfDeleted = (db: Queryable): Promise<void> =>
  deleteDeleted(db, ofDeletedSql('r.created_at < $1'), new Date())

/** Services with more releases than are kept, by environment. */
export const servicesWithMore = async (db: Queryable, kept: number): Promise<Map<string, string[]>> => {
  const rows = await db.query<{ environmentId: string; serviceId: string }>(
    `select s.environment_id as "environmentId", s.service_id as "serviceId" from service_state s
       join (select service_id from release group by service_id having count(*) > $1) r using (service_id)`,
    [kept],
  )
  const groups = Map.groupBy(rows, ({ environmentId }) => environmentId)
  return new Map([...groups].map(([id, services]) => [id, services.map(({ serviceId }) => serviceId)]))
}
