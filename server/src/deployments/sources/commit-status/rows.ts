/**
 * Commit statuses that must still be reported to git hosts: rows that wait, are reported, and are deleted when nothing
 * is left to report.
 */
import type { Database, Queryable } from '../../../store/database.ts'
import { claimInTurns } from '../../../work/claim-in-turns.ts'
import { holdLease, type Leased, type LeaseTable } from '../../../work/lease.ts'
import type { CommitState } from '../../git-hosts/hosts.ts'

export const statusChannel = 'slipway_commit_status'

export interface StatusRow extends Leased {
  organizationId: string
  serviceId: string
  name: string
  url: string
  gitTokenId: string
  commitId: string
  deploymentId: string | null
  reason: string | null
  told: CommitState | null
  changes: string
  tries: number
}

const columns = `id, organization_id as "organizationId", service_id as "serviceId", name, url, git_token_id as "gitTokenId",
  commit_id as "commitId", deployment_id as "deploymentId", reason, told, changes, tries, fence`

export const statusLeases: LeaseTable<StatusRow> = { name: 'commit_status', open: `lease_until > '-infinity'`, columns }

/** For one organization at once: its host that hangs delays no other's. */
const perOrganization = 2

export const claimStatuses = claimInTurns({ table: statusLeases, dueAt: 'due_at', perOrganization })

/** A service whose commit is deployed, or was refused. */
interface StatusWish {
  serviceId: string
  commitId: string
  deploymentId: string | null
  reason: string | null
}

/**
 * Notes that a status must be reported, in the transaction that deploys. Only with a token to report it; a row that
 * cannot be reported keeps its pause.
 */
export const noteStatuses = async (
  tx: Queryable,
  repository: { organizationId: string; url: string; gitTokenId: string | null },
  wishes: readonly StatusWish[],
): Promise<void> => {
  if (repository.gitTokenId === null || !/^https?:/.test(repository.url) || wishes.length === 0) return
  const column = (name: keyof StatusWish): unknown[] => wishes.map((wish) => wish[name])
  await tx.query(
    `insert into commit_status as s (organization_id, url, git_token_id, service_id, name, commit_id, deployment_id, reason)
     select $1, $2, $3, t.service_id, concat_ws('/', p.name, e.name, n.name), t.commit_id, t.deployment_id, t.reason
     from unnest($4::uuid[], $5::text[], $6::uuid[], $7::text[]) as t (service_id, commit_id, deployment_id, reason)
       join node n on n.id = t.service_id join node e on e.id = n.parent_id join node p on p.id = e.parent_id
     on conflict (service_id, commit_id) do update set deployment_id = excluded.deployment_id, reason = excluded.reason,
       told = null, changes = s.changes + 1, created_at = excluded.created_at,
       due_at = case when s.tries = 0 then excluded.due_at else s.due_at end`,
    [
      ...[repository.organizationId, repository.url, repository.gitTokenId, column('serviceId'), column('commitId')],
      ...[column('deploymentId'), column('reason')],
    ],
  )
  await tx.query(`select pg_notify('${statusChannel}', '')`)
}

/** The progress of a deployment of one service. */
export interface Standing {
  state: CommitState
  error: string | null
  host: string | null
  clusterId: string | null
}

const standingSql = `select case
      when w.deployment_id is null then 'CANCELED'
      when w.state like '%ERROR' then 'FAILURE'
      when w.state = 'CANCELED' or d.state = 'CANCELED' then 'CANCELED'
      when w.finished_at is not null or d.state = 'SUCCEEDED' then 'SUCCESS'
      when d.state = 'FAILED' then 'CANCELED'
      else 'PENDING' end as state,
    coalesce(w.error, d.error) ->> 'message' as error, s.cluster_id as "clusterId",
    (select r.host from route r where r.service_id = t.service_id
     order by r.custom_domain_id is null, r.is_default desc, r.host limit 1) as host
  from (select $1::uuid as deployment_id, $2::uuid as service_id) t
    left join deployment_service w on w.deployment_id = t.deployment_id and w.service_id = t.service_id
    left join deployment d on d.id = w.deployment_id left join service_state s on s.service_id = t.service_id`

export const readStanding = async (
  db: Queryable,
  { deploymentId, serviceId }: Pick<StatusRow, 'deploymentId' | 'serviceId'>,
): Promise<Standing> => (await db.query<Standing>(standingSql, [deploymentId, serviceId]))[0]!

/** `told`: the state that was reported; null: nothing left to report. */
export const finishReport = (database: Database, row: StatusRow, told: CommitState | null): Promise<void> =>
  holdLease(database, statusLeases, row, async (tx) => {
    const gone = `delete from commit_status where id = $1 and changes = $2 returning 1`
    const isOver = told !== 'PENDING'
    if (isOver && (await tx.query(gone, [row.id, row.changes])).length > 0) return
    // Checked again in any case: the process that should have notified of a change may be gone.
    await tx.query(
      `update commit_status set told = coalesce($3, told), tries = 0, worker = null, lease_until = '-infinity',
         due_at = case when changes = $2 then clock_timestamp() + interval '10 minutes' else clock_timestamp() end
       where id = $1`,
      [row.id, row.changes, told],
    )
  })

/** Pauses after failures in a row; after the last one nothing more is reported. */
const pausesSeconds = [10, 60, 300, 1800, 7200, 7200, 7200]

/** False: it was tried often enough, and is given up. */
export const putOff = (database: Database, row: StatusRow, waitMs: number): Promise<boolean> =>
  holdLease(database, statusLeases, row, async (tx) => {
    const pause = pausesSeconds[row.tries]
    if (pause === undefined) {
      await tx.query('delete from commit_status where id = $1', [row.id])
      return false
    }
    await tx.query(
      `update commit_status set tries = tries + 1, worker = null, lease_until = '-infinity',
         due_at = clock_timestamp() + make_interval(secs => (0.9 + 0.2 * random()) * $2::float8) where id = $1`,
      [row.id, Math.max(pause, waitMs / 1000)],
    )
    return true
  })
