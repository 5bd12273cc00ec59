/** Repositories whose pull requests get previews: which they are, when each is polled, and the results. */
import { finishPollSql } from '../../deployments/sources/polls.ts'
import type { Database, Queryable } from '../../store/database.ts'
import { claimInTurns } from '../../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../../work/lease.ts'

export const previewChannel = 'slipway_preview'

export interface PreviewSource extends Leased {
  organizationId: string
  url: string
  gitTokenId: string
  asked: string
}

const columns = `id, organization_id as "organizationId", url, git_token_id as "gitTokenId", asked, fence`

export const sourceLeases: LeaseTable<PreviewSource> = {
  name: 'preview_source',
  open: `lease_until > '-infinity'`,
  columns,
}

/** Adds the repositories that must be polled, and deletes those no longer needed. */
export const findSources = async (db: Queryable): Promise<void> => {
  await db.query(
    `with wanted as (
       select distinct on (1, 2, 3) n.organization_id, repository_key(r ->> 'url') as key, (r ->> 'git_token_id')::uuid as token,
         r ->> 'url' as url
       from node e join node n on n.parent_id = e.id and n.name_scope = 'service' cross join repository_of(n.spec) r
       where e.kind = 'environment' and e.spec #>> '{deployment_rule,auto_preview}' = 'true'
         and is_previewed(n.kind, n.spec, e.spec) and r ->> 'git_token_id' is not null and r ->> 'url' ~ '^https?://'
     ), gone as (
       delete from preview_source s where s.lease_until < clock_timestamp()
         and not exists (select from preview p where p.source_id = s.id)
         and not exists (select from wanted w where w.organization_id = s.organization_id
           and w.key = repository_key(s.url) and w.token = s.git_token_id)
     )
     insert into preview_source (id, organization_id, url, path, git_token_id)
     select md5(concat_ws(' ', organization_id, token, key))::uuid, organization_id, url, repository_path(url), token
     from wanted on conflict do nothing`,
  )
}

const perOrganization = 2

export const claimSources = claimInTurns({ table: sourceLeases, dueAt: 'next_at', perOrganization })

/** An environment whose services of the repository get previews, and the branches that they follow. */
interface Origin {
  environmentId: string
  projectId: string
  branches: string[]
}

export const readOrigins = (db: Queryable, { organizationId, url, gitTokenId }: PreviewSource): Promise<Origin[]> =>
  db.query<Origin>(
    `select e.id as "environmentId", e.parent_id as "projectId", array_agg(distinct r ->> 'branch') as branches
     from node e join node n on n.parent_id = e.id and n.name_scope = 'service' cross join repository_of(n.spec) r
     where e.organization_id = $1 and e.kind = 'environment' and is_previewed(n.kind, n.spec, e.spec)
       and repository_key(r ->> 'url') = repository_key($2) and r ->> 'git_token_id' = $3
     group by e.id, e.parent_id`,
    [organizationId, url, gitTokenId],
  )

/** An open request to a branch that services of an environment follow. */
export interface Wanted {
  originId: string
  projectId: string
  number: number
  title: string
  url: string
  branch: string
  isFork: boolean
  commitId: string | null
}

const upsertSql = `insert into preview as p (organization_id, project_id, origin_id, source_id, number, title, url, branch, is_fork, commit_id)
  select $1, t.project_id, t.origin_id, $2, t.number, t.title, t.url, t.branch, t.is_fork, t.commit_id
  from unnest($3::uuid[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::text[], $9::boolean[], $10::text[])
    as t (origin_id, project_id, number, title, url, branch, is_fork, commit_id)
  on conflict (origin_id, source_id, number) do update set title = excluded.title, url = excluded.url,
    branch = excluded.branch, is_fork = excluded.is_fork, commit_id = coalesce(excluded.commit_id, p.commit_id),
    is_open = true, next_at = '-infinity', changes = p.changes + 1
  where (p.title, p.url, p.branch, p.is_fork, p.commit_id, p.is_open) is distinct from (excluded.title, excluded.url,
    excluded.branch, excluded.is_fork, coalesce(excluded.commit_id, p.commit_id), true)`

export interface Found {
  wanted: readonly Wanted[]
  /** All that are open; null: they are not known, and none is closed. */
  open: readonly number[] | null
}

/** Stores the results, and ends the poll. */
export const finishSource = (
  database: Database,
  source: PreviewSource,
  pollSeconds: number,
  found: Found | { error: { code: string; message: string } },
): Promise<void> =>
  holdLease(database, sourceLeases, source, async (tx) => {
    if ('wanted' in found) {
      const column = (name: keyof Wanted): unknown[] => found.wanted.map((each) => each[name])
      await tx.query(upsertSql, [
        ...[source.organizationId, source.id, column('originId'), column('projectId'), column('number')],
        ...[column('title'), column('url'), column('branch'), column('isFork'), column('commitId')],
      ])
      await tx.query(
        `update preview p set is_open = false, next_at = '-infinity', changes = changes + 1
         where source_id = $1 and is_open and (($2::int[] is not null and not number = any($2))
           or not exists (select from node e where e.id = p.origin_id))`,
        [source.id, found.open],
      )
      await tx.query(`select pg_notify('${previewChannel}', '')`)
    }
    const error = 'error' in found ? JSON.stringify(found.error) : null
    await tx.query(finishPollSql('preview_source'), [source.id, source.fence, error, pollSeconds, false, source.asked])
  })
