/** Previews as rows: claimed by one server at a time, and written in the transaction that does what they say. */
import { openStates } from '../../deployments/status/states.ts'
import type { Queryable } from '../../store/database.ts'
import { claimInTurns } from '../../work/claim-in-turns.ts'
import type { Leased, LeaseTable } from '../../work/lease.ts'
import { previewChannel } from './source-rows.ts'

export const previewStates = ['WAITING', 'ACTIVE', 'REMOVING', 'EXPIRED', 'REFUSED'] as const
type PreviewState = (typeof previewStates)[number]

export interface Preview extends Leased {
  organizationId: string
  projectId: string
  originId: string
  sourceId: string
  number: number
  branch: string
  isFork: boolean
  commitId: string | null
  isOpen: boolean
  state: PreviewState
  reason: string | null
  environmentId: string | null
  deployedCommit: string | null
  deploymentId: string | null
  isExpired: boolean
  commented: string | null
  commentFailures: number
  mayComment: boolean
  /** It has expired, and its host was asked recently, or has not answered for as long again. */
  isOverdue: boolean
  changes: string
}

const columns = `id, organization_id as "organizationId", project_id as "projectId", origin_id as "originId",
  source_id as "sourceId", number, branch, is_fork as "isFork", commit_id as "commitId", is_open as "isOpen", state,
  reason, environment_id as "environmentId", deployed_commit as "deployedCommit", deployment_id as "deploymentId",
  is_expired as "isExpired", commented, comment_failures as "commentFailures",
  comment_at <= clock_timestamp() as "mayComment", coalesce(expires_at < clock_timestamp() and
    ((select failures = 0 from preview_source s where s.id = source_id)
      or expires_at + (expires_at - created_at) < clock_timestamp()), false) as "isOverdue", changes, fence`

export const previewLeases: LeaseTable<Preview> = { name: 'preview', open: `lease_until > '-infinity'`, columns }

/** Previews of one organization at once: its git host that hangs delays no other's. */
const perOrganization = 2

export const claimPreviews = claimInTurns({
  ...{ table: previewLeases, dueAt: 'next_at', perOrganization, order: 'created_at' },
})

export type Change = Partial<
  Pick<Preview, 'state' | 'reason' | 'environmentId' | 'deployedCommit' | 'deploymentId' | 'isExpired'>
>

const fields: Record<keyof Change, string> = {
  state: 'state',
  reason: 'reason',
  environmentId: 'environment_id',
  deployedCommit: 'deployed_commit',
  deploymentId: 'deployment_id',
  isExpired: 'is_expired',
}

/** Writes the state of a preview, in the transaction that holds its lease. */
export const writePreview = async (tx: Queryable, { id }: Leased, change: Change, hours?: number): Promise<void> => {
  const names = Object.keys(change) as (keyof Change)[]
  const sets = names.map((name, index) => `${fields[name]} = $${index + 3}`)
  await tx.query(
    `update preview set ${[...sets, `expires_at = coalesce(clock_timestamp() + make_interval(hours => $2::int), expires_at)`].join(', ')}
     where id = $1`,
    [id, hours ?? null, ...names.map((name) => change[name])],
  )
}

/** Releases the preview, to be checked again then; at once if its request has changed meanwhile. */
export const releaseIn = async (tx: Queryable, { id, changes }: Preview, seconds: number): Promise<void> => {
  await tx.query(
    `update preview set worker = null, lease_until = '-infinity', next_at = case when changes = $2
       then clock_timestamp() + make_interval(secs => $3::float8) else '-infinity'::timestamptz end where id = $1`,
    [id, changes, seconds],
  )
}

/** Stores the images built for its environment so far, for when its rows no longer exist. */
export const noteImages = async (tx: Queryable, { id, environmentId }: Preview): Promise<void> => {
  if (environmentId !== null)
    await tx.query(
      `update preview p set cluster_id = coalesce((select (e.spec ->> 'cluster_id')::uuid from node e where e.id = $2), p.cluster_id),
         images = (select coalesce(array_agg(distinct x.image), '{}') from (
           select unnest(p.images) as image
           union select r.image from service_state s join release r on r.service_id = s.service_id
             where s.environment_id = $2 and r.commit is not null
         ) x) where p.id = $1`,
      [id, environmentId],
    )
}

/** Images that were built for it and that no remaining service could run again. */
export const readUnneeded = async (
  db: Queryable,
  { id }: Leased,
): Promise<{ clusterId: string | null; images: string[] }> => {
  const [row] = await db.query<{ clusterId: string | null; images: string[] }>(
    `select cluster_id as "clusterId", (select coalesce(array_agg(i), '{}') from unnest(images) i
       where not exists (select from release r join node n on n.id = r.service_id where r.image = i)) as images
     from preview where id = $1`,
    [id],
  )
  return row ?? { clusterId: null, images: [] }
}

/** Deletes its row: nothing is left of it, and its place is free. */
export const forgetPreview = async (tx: Queryable, preview: Preview): Promise<boolean> => {
  const [gone] = await tx.query('delete from preview where id = $1 and changes = $2 returning 1', [
    preview.id,
    preview.changes,
  ])
  return gone !== undefined
}

/**
 * Makes previews that wait for a place in the project check again. Those being worked on are skipped: they check again
 * by themselves.
 */
export const wakeWaiting = async (tx: Queryable, projectId: string): Promise<void> => {
  await tx.query(
    `update preview set next_at = '-infinity' where id in (select id from preview where project_id = $1
       and state = 'WAITING' and lease_until < clock_timestamp() for update skip locked)`,
    [projectId],
  )
  await tx.query(`select pg_notify('${previewChannel}', '')`)
}

/** The number of environments of the project's previews. */
export const countPlaces = async (tx: Queryable, { id, projectId }: Preview): Promise<number> => {
  const [row] = await tx.query<{ count: number }>(
    `select count(*)::int as count from preview where project_id = $1 and environment_id is not null and id <> $2`,
    [projectId, id],
  )
  return row!.count
}

interface Made {
  /** A delete of it is queued or runs. */
  isLeaving: boolean
  isBusy: boolean
}

/** Null if there is no such environment. */
export const readMade = async (db: Queryable, environmentId: string): Promise<Made | null> => {
  const [row] = await db.query<Made>(
    `select exists (select from deployment d where d.environment_id = e.id and d.whole_environment
         and d.action = 'DELETE' and d.state in ${openStates}) as "isLeaving",
       exists (select from deployment d where d.environment_id = e.id and d.state in ${openStates}) as "isBusy"
     from node e where e.id = $1 and e.kind = 'environment'`,
    [environmentId],
  )
  return row ?? null
}

export interface SourceOf {
  url: string
  gitTokenId: string
}

export const readSource = async (db: Queryable, { sourceId }: Preview): Promise<SourceOf> => {
  const [row] = await db.query<SourceOf>('select url, git_token_id as "gitTokenId" from preview_source where id = $1', [
    sourceId,
  ])
  return row!
}

/** Services of an environment that are built from the repository. */
export const readBuilt = async (db: Queryable, environmentId: string, { url }: SourceOf): Promise<string[]> =>
  (
    await db.query<{ id: string }>(
      `select n.id from node n cross join repository_of(n.spec) r where n.parent_id = $1 and n.name_scope = 'service'
         and repository_key(r ->> 'url') = repository_key($2) order by n.created_at, n.id`,
      [environmentId, url],
    )
  ).map(({ id }) => id)
