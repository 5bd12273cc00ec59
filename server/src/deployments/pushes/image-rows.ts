/** What the look at an image's tag reads and writes: who follows it, what it was last, and when the next look is due. */
import type { Kind } from '../../kinds.ts'
import type { DeploymentError } from '../../lib/errors.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { type Claimed, claimInTurns } from '../../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../../work/lease.ts'
import { leavingSql } from '../status/service-state.ts'

/** An image that this worker may look at as long as its fence is valid. */
export interface WatchedImage extends Leased {
  organizationId: string
  registryId: string | null
  name: string
  tag: string
  /** Grows whenever its registry has told of a push. */
  asked: string
}

const columns = `id, organization_id as "organizationId", registry_id as "registryId", name, tag, asked, fence`

export const imageLeases: LeaseTable<WatchedImage> = {
  name: 'watched_image',
  open: `lease_until > '-infinity'`,
  columns,
}

/** Looks of one organization at once. */
const perOrganization = 4

// What a tag is when a service begins to follow it did not move: it is remembered now.
const newFollowersSql = `update watched_image w set next_at = clock_timestamp()
  where w.next_at > clock_timestamp() and w.failures = 0
    and w.id in (select f.image_id from followed_image f where f.seen is null)`

const claim = claimInTurns({ table: imageLeases, dueAt: 'next_at', perOrganization })

export const claimImages = async (database: Database, worker: string, room: number): Promise<Claimed<WatchedImage>> => {
  await database.query(newFollowersSql)
  return claim(database, worker, room)
}

/** A service that follows the tag of an image. */
export interface ImageFollower {
  id: string
  kind: Kind
  name: string
  spec: Record<string, unknown>
  seen: string | null
  environmentId: string
  environmentName: string
  projectId: string
  clusterId: string
  isStopped: boolean
  /** The image that runs, by digest; null without. */
  deployed: string | null
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

/** Those of these services that still follow as they were read, and are not being deleted; locked. */
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

const longestPauseSeconds = 3600

// One look a second of each organization at most, however many images it has.
const finishSql = `update watched_image w set worker = null, lease_until = '-infinity',
    failures = case when $3::jsonb is null then 0 else failures + 1 end, error = $3,
    next_at = case when asked <> $6 and $3::jsonb is null then clock_timestamp()
      when $5 then clock_timestamp() + interval '1 minute'
      when $4::float8 = 0 and $3::jsonb is null then 'infinity'::timestamptz
      else clock_timestamp() + make_interval(secs => (0.9 + 0.2 * random()) * greatest($4::float8,
        (select count(*) from watched_image o where o.organization_id = w.organization_id),
        case when $3::jsonb is null then 0 else least(${longestPauseSeconds}, 15 * 2 ^ least(failures, 10)) end)) end
  where w.id = $1 and w.fence = $2`

/** Ends a look: `isUnfinished` when something is to be tried again soon. */
export const finishImageLook = (
  database: Database,
  watched: WatchedImage,
  pollSeconds: number,
  { error, isUnfinished }: { error: DeploymentError | null; isUnfinished: boolean },
): Promise<void> =>
  holdLease(database, imageLeases, watched, async (tx) => {
    const told = error === null ? null : JSON.stringify({ code: error.code, message: error.message })
    await tx.query(finishSql, [watched.id, watched.fence, told, pollSeconds, isUnfinished, watched.asked])
  })

/** Forgets an image that nobody follows any more. */
export const forgetImage = (database: Database, watched: WatchedImage): Promise<void> =>
  holdLease(database, imageLeases, watched, async (tx) => {
    const gone = `delete from watched_image w where w.id = $1 and not exists (select from followed_image f
      where f.image_id = w.id) returning 1`
    if ((await tx.query(gone, [watched.id])).length === 0)
      await tx.query(`update watched_image set lease_until = '-infinity', worker = null where id = $1`, [watched.id])
  })

/** Watches again what is followed and was forgotten at the moment in which somebody began to follow it. */
export const watchForgottenImages = async (db: Queryable): Promise<void> => {
  await db.query(
    `insert into watched_image (id, organization_id, registry_id, name, tag)
     select distinct f.image_id, n.organization_id, (i ->> 0)::uuid, i ->> 1, i ->> 2
     from followed_image f join node n on n.id = f.service_id cross join moving_image(n.kind, n.spec) i
     where i is not null and not exists (select from watched_image w where w.id = f.image_id)
     on conflict do nothing`,
  )
}
