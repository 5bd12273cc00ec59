/** Reads and writes of polling a repository: its followers, hints of git hosts, and when the next poll is due. */
import type { DeploymentError } from '../../../lib/errors.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { holdLease, type Leased } from '../../../work/lease.ts'
import { leavingSql } from '../../status/service-state.ts'
import { failurePauseSql, type SourceFollower, watchedTable } from '../polls.ts'

/** A repository that this worker may poll as long as its fence is valid. */
export interface Watched extends Leased {
  organizationId: string
  url: string
  gitTokenId: string | null
}

export const watchedRepositories = watchedTable<Watched>(
  {
    ...{ name: 'watched_repository', followed: 'followed_branch', key: 'repository_id' },
    columns: `id, organization_id as "organizationId", url, git_token_id as "gitTokenId", fence`,
  },
  {
    due: 'select repository_id from push_hint where due_at <= clock_timestamp()',
    next: 'select min(due_at) from push_hint where due_at > clock_timestamp()',
  },
)

export interface Follower extends SourceFollower {
  branch: string
}

export const readFollowers = (db: Queryable, { id }: Leased): Promise<Follower[]> =>
  db.query<Follower>(
    `select f.service_id as id, n.kind, n.name, f.branch, f.seen, n.spec, e.id as "environmentId", e.name as "environmentName",
       e.parent_id as "projectId", s.action = 'STOP' as "isStopped", r.commit ->> 'git_commit_id' as deployed
     from followed_branch f join node n on n.id = f.service_id join node e on e.id = n.parent_id
       join service_state s on s.service_id = f.service_id left join release r on r.id = s.current_release_id
     where f.repository_id = $1 order by e.id, n.created_at, n.id`,
    [id],
  )

export interface Hint {
  id: string
  branch: string
  commitId: string | null
  pusher: string
  tries: number
}

/** The newest first. */
export const readHints = (db: Queryable, { id }: Leased): Promise<Hint[]> =>
  db.query<Hint>(
    `select id, branch, commit_id as "commitId", coalesce(pusher, '') as pusher, tries from push_hint
     where repository_id = $1 order by due_at desc, id`,
    [id],
  )

export interface Judged {
  commit_id: string
  at: string
  outcome: 'DEPLOYED' | 'SKIPPED' | 'REFUSED' | 'WAITING'
  reason: string | null
  deployment_request_id: string | null
}

/** Locks those whose following has not changed since it was read and that are not being deleted. */
export const lockFollowers = async (
  tx: Queryable,
  { id }: Leased,
  followers: readonly Follower[],
): Promise<Set<string>> => {
  const column = (value: (one: Follower) => unknown): unknown[] => followers.map(value)
  const rows = await tx.query<{ id: string }>(
    `select f.service_id as id from unnest($2::uuid[], $3::text[], $4::text[]) as t (id, branch, seen)
       join followed_branch f on f.service_id = t.id join service_state s on s.service_id = f.service_id
     where f.repository_id = $1 and f.branch = t.branch and f.seen is not distinct from t.seen and not ${leavingSql}
     for no key update of f`,
    [id, column((one) => one.id), column(({ branch }) => branch), column(({ seen }) => seen)],
  )
  return new Set(rows.map((row) => row.id))
}

/** Stores the judged head; `judged` null: there was nothing to judge. */
export const noteSeen = async (
  tx: Queryable,
  serviceIds: readonly string[],
  seen: string | null,
  judged: Judged | null,
): Promise<void> => {
  await tx.query(
    `update followed_branch set seen = coalesce($2, seen), judged = coalesce($3::jsonb, judged) where service_id = any($1)`,
    [serviceIds, seen, judged === null ? null : JSON.stringify(judged)],
  )
}

/** How often a hint without a new head leads to another poll: a host may notify before the commit is visible. */
const hintPausesSeconds = [5, 20, 60, 300, 1800]
const heardDays = 7
/** For repositories whose host sends deliveries. */
const heardPollSeconds = 600

// At most one poll a second for each organization, however many repositories it has.
const pollSql = `make_interval(secs => (0.9 + 0.2 * random()) * greatest($4::float8,
  (select count(*) from watched_repository o where o.organization_id = w.organization_id),
  case when coalesce($5::timestamptz, w.heard_at) > clock_timestamp() - interval '${heardDays} days' and not $6
    then ${heardPollSeconds} else 0 end))`

const finishSql = `update watched_repository w set worker = null, lease_until = '-infinity',
    failures = case when $3::jsonb is null then 0 else failures + 1 end, error = $3,
    heard_at = case when $6 then null else coalesce($5::timestamptz, heard_at) end,
    next_at = least(
      case when $4::float8 = 0 then 'infinity'::timestamptz else clock_timestamp() + ${pollSql} end
        + case when $3::jsonb is null then interval '0' else
          make_interval(secs => ${failurePauseSql}) end,
      case when $7 then clock_timestamp() + interval '1 minute' else 'infinity'::timestamptz end)
  where w.id = $1 and w.fence = $2`

interface Polled {
  /** Services that were polled for the first time, with the heads of their branches, '' without one. */
  first: readonly { id: string; branch: string; head: string }[]
  error: DeploymentError | null
  /** Answered hints, and those that must be polled again. */
  answered: readonly Hint[]
  open: readonly Hint[]
  /** A push was found without a delivery. */
  wasUntold: boolean
  /** Something must be retried soon. */
  isUnfinished: boolean
}

/** Commits that existed when a service began to follow its branch were not pushed for it. */
const noteFirst = async (tx: Queryable, { id }: Leased, first: Polled['first']): Promise<void> => {
  const column = (name: 'id' | 'branch' | 'head'): unknown[] => first.map((each) => each[name])
  if (first.length > 0)
    await tx.query(
      `update followed_branch f set seen = t.head from unnest($2::uuid[], $3::text[], $4::text[]) as t (id, branch, head)
       where f.service_id = t.id and f.repository_id = $1 and f.branch = t.branch and f.seen is null`,
      [id, column('id'), column('branch'), column('head')],
    )
}

/** Ends a poll: when the next one is due, and the remaining hints. */
export const finishPoll = (database: Database, watched: Watched, pollSeconds: number, polled: Polled): Promise<void> =>
  holdLease(database, watchedRepositories.leases, watched, async (tx) => {
    const { error, answered, open } = polled
    const over = open.filter(({ tries }) => tries >= hintPausesSeconds.length)
    await tx.query('delete from push_hint where id = any($1)', [[...answered, ...over].map(({ id }) => id)])
    for (const { id, tries } of open.filter((hint) => !over.includes(hint)))
      await tx.query(
        `update push_hint set tries = tries + 1, due_at = clock_timestamp() + make_interval(secs => $2) where id = $1`,
        [id, hintPausesSeconds[tries]],
      )
    await noteFirst(tx, watched, polled.first)
    await tx.query(finishSql, [
      watched.id,
      watched.fence,
      error === null ? null : JSON.stringify({ code: error.code, message: error.message }),
      pollSeconds,
      answered.length > 0 ? new Date().toISOString() : null,
      polled.wasUntold,
      polled.isUnfinished,
    ])
  })

/** Restores the rows of repositories that were deleted at the moment in which a service began to follow them. */
export const watchForgotten = async (db: Queryable): Promise<void> => {
  await db.query(
    `insert into watched_repository (id, organization_id, url, path, git_token_id)
     select distinct f.repository_id, n.organization_id, p ->> 0, repository_path(p ->> 0), (p ->> 2)::uuid
     from followed_branch f join node n on n.id = f.service_id cross join pushed_repository(n.kind, n.spec) p
     where p is not null and not exists (select from watched_repository w where w.id = f.repository_id)
     on conflict do nothing`,
  )
}
