/** Reads and writes of polling an image's tag: its followers, its last digest, and when the next poll is due. */
import type { DeploymentError } from '../../../lib/errors.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { holdLease, type Leased } from '../../../work/lease.ts'
import { leavingSql } from '../../status/service-state.ts'
import { finishPollSql, type SourceFollower, watchedTable } from '../polls.ts'

/** An image that this worker may poll as long as its fence is valid. */
export interface WatchedImage extends Leased {
  organizationId: string
  registryId: string | null
  name: string
  tag: string
  /** Grows with every delivery of its registry. */
  asked: string
}

export const watchedImages = watchedTable<WatchedImage>({
  ...{ name: 'watched_image', followed: 'followed_image', key: 'image_id' },
  columns: `id, organization_id as "organizationId", registry_id as "registryId", name, tag, asked, fence`,
})

export interface ImageFollower extends SourceFollower {
  clusterId: string
}

export const readImageFollowers = (db: Queryable, { id }: Leased): Promise<ImageFollower[]> =>
  db.query<ImageFollower>(
    `select f.service_id as id, n.kind, n.name, n.spec, f.seen, e.id as "environmentId", e.name as "environmentName",
       e.parent_id as "projectId", s.cluster_id as "clusterId", s.action = 'STOP' as "isStopped", r.image as deployed
     from followed_image f join node n on n.id = f.service_id join node e on e.id = n.parent_id
       join service_state s on s.service_id = f.service_id left join release r on r.id = s.current_release_id
     where f.image_id = $1 order by e.id, n.created_at, n.id`,
    [id],
  )

/** Locks those whose following has not changed since it was read and that are not being deleted. */
export const lockImageFollowers = async (
  tx: Queryable,
  { id }: Leased,
  followers: readonly ImageFollower[],
): Promise<Set<string>> => {
  const rows = await tx.query<{ id: string }>(
    `select f.service_id as id from unnest($2::uuid[], $3::text[]) as t (id, seen)
       join followed_image f on f.service_id = t.id join service_state s on s.service_id = f.service_id
     where f.image_id = $1 and f.seen is not distinct from t.seen and not ${leavingSql} for no key update of f`,
    [id, followers.map((one) => one.id), followers.map(({ seen }) => seen)],
  )
  return new Set(rows.map((row) => row.id))
}

export const noteImageSeen = async (tx: Queryable, serviceIds: readonly string[], seen: string): Promise<void> => {
  await tx.query('update followed_image set seen = $2 where service_id = any($1)', [serviceIds, seen])
}

/** Ends a poll: `isUnfinished` if something must be retried soon. */
export const finishImagePoll = (
  database: Database,
  watched: WatchedImage,
  pollSeconds: number,
  { error, isUnfinished }: { error: DeploymentError | null; isUnfinished: boolean },
): Promise<void> =>
  holdLease(database, watchedImages.leases, watched, async (tx) => {
    const told = error === null ? null : JSON.stringify({ code: error.code, message: error.message })
    await tx.query(finishPollSql('watched_image'), [
      watched.id,
      watched.fence,
      told,
      pollSeconds,
      isUnfinished,
      watched.asked,
    ])
  })

/** Restores the rows of images that were deleted at the moment in which a service began to follow them. */
export const watchForgottenImages = async (db: Queryable): Promise<void> => {
  await db.query(
    `insert into watched_image (id, organization_id, registry_id, name, tag)
     select distinct f.image_id, n.organization_id, (i ->> 0)::uuid, i ->> 1, i ->> 2
     from followed_image f join node n on n.id = f.service_id cross join moving_image(n.kind, n.spec) i
     where i is not null and not exists (select from watched_image w where w.id = f.image_id)
     on conflict do nothing`,
  )
}
