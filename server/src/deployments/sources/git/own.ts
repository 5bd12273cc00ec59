/**
 * Pushes to the repositories that applications have on this server itself (`slipway:internal`). Promises that a push
 * is accepted and its deployment requested in one transaction, under the lease of the repository; that accepted
 * objects are in the database; and that a newer push replaces one whose deployment still waits. A process that dies
 * before leaves an unused pack, and a lease that runs out; one that dies after leaves a deployment, which continues.
 */
import type { Commit } from '../../../builds/builder.ts'
import { internalUrl } from '../../../builds/git/names.ts'
import { acceptPack, countPacks, type KeptRef, readRefs, writeRef } from '../../../builds/pushed/rows.ts'
import { conflict } from '../../../lib/errors.ts'
import { type Limits, usualLimits } from '../../../limits/limits.ts'
import { refuseLargeRepositories } from '../../../limits/repository-room.ts'
import type { Database, Queryable } from '../../../store/database.ts'
import { holdLease, type Leased, type LeaseTable, leaseEnd, leaseMs, renewLeases } from '../../../work/lease.ts'
import type { AcceptedDeployment } from '../../deployments.ts'
import type { DeploymentParts } from '../../parts.ts'
import { lockEnvironment } from '../../status/service-state.ts'
import { askedOf, createJudge, type News } from './judge.ts'
import { type Asking, judged, type Pusher, requestPushed } from './request-push.ts'
import type { Follower } from './rows.ts'

export interface OwnApplication extends Follower {
  organizationId: string
}

const findSql = `select n.id, n.kind, n.name, n.spec #>> '{git_repository,branch}' as branch, null as seen, n.spec,
    n.organization_id as "organizationId", e.id as "environmentId", e.name as "environmentName",
    e.parent_id as "projectId", s.action = 'STOP' as "isStopped", r.commit ->> 'git_commit_id' as deployed
  from node n join node e on e.id = n.parent_id join service_state s on s.service_id = n.id
    left join release r on r.id = s.current_release_id
  where n.id = $1 and n.kind = 'application' and n.spec #>> '{git_repository,url}' = '${internalUrl}'`

const find = async (db: Queryable, id: string): Promise<OwnApplication | null> =>
  (await db.query<OwnApplication>(findSql, [id]))[0] ?? null

export const ownLeases: LeaseTable<Leased> = {
  name: 'git_repository',
  open: `lease_until > '-infinity'`,
  columns: 'id, fence',
}

const claim = async (
  database: Database,
  worker: string,
  { id, organizationId }: Pick<OwnApplication, 'id' | 'organizationId'>,
): Promise<Leased | null> => {
  await database.query(
    `insert into git_repository (id, organization_id) select $1, $2 where exists (select from node where id = $1)
     on conflict do nothing`,
    [id, organizationId],
  )
  const [row] = await database.query<Leased>(
    `update git_repository set worker = $2, fence = fence + 1, lease_until = ${leaseEnd(3)}
     where id = $1 and lease_until < clock_timestamp() returning id, fence`,
    [id, worker, leaseMs],
  )
  return row ?? null
}

/** Whether the last requested deployment of this commit for a service has ended without deploying it. */
const hasFailed = async (db: Queryable, serviceId: string, commitId: string): Promise<boolean> => {
  const [last] = await db.query<{ failed: boolean }>(
    `select finished_at is not null and (right(state, 6) = '_ERROR' or state = 'CANCELED') as failed
     from deployment_service where service_id = $1 and action = 'DEPLOY' and requested ->> 'commitId' = $2
     order by created_at desc, deployment_id desc limit 1`,
    [serviceId, commitId],
  )
  return last?.failed === true
}

export interface OwnRef extends KeptRef {
  /** The commit that pushing clients see; null: none. */
  shownId: string | null
}

const branchRef = ({ branch }: Pick<Follower, 'branch'>): string => `refs/heads/${branch}`

const refsOf = async (db: Queryable, application: OwnApplication): Promise<OwnRef[]> => {
  const own = branchRef(application)
  const refs: OwnRef[] = []
  for (const ref of await readRefs(db, application.id)) {
    const failed = ref.name === own && (await hasFailed(db, application.id, ref.commitId))
    refs.push({ ...ref, shownId: failed ? ref.baseId : ref.objectId })
  }
  return refs
}

export interface OwnPush {
  application: OwnApplication
  /** `to` null deletes. */
  refs: readonly { name: string; to: Omit<KeptRef, 'name'> | null }[]
  pack: { id: string; name: string; bytes: number } | null
  /** The commit that the deployed branch moves to, and why it is not deployed; null if the branch is not moved. */
  head: { commitId: string; reason: string | null } | null
  pusher: string
  by: Pusher
}

export type Accepted = AcceptedDeployment | null

/** Many more than exist while merging works (own-packs.ts). */
const mostPacks = 2000

const unmerged = () =>
  conflict('repository_busy', 'There were too many pushes in a short time: wait a quarter of an hour, and push again.')

const accept = (
  parts: Pick<DeploymentParts, 'database' | 'kinds' | 'limits'>,
  asking: Asking,
  lease: Leased,
  { application, refs, pack, head, pusher, by }: OwnPush,
): Promise<Accepted> =>
  holdLease(parts.database, ownLeases, lease, async (tx) => {
    const { id, organizationId, environmentId, branch } = application
    await lockEnvironment(tx, environmentId)
    const now = await find(tx, id)
    if (now === null || now.branch !== branch)
      throw conflict('application_changed', 'The application was changed or deleted meanwhile: push again.')
    for (const { name, to } of refs) await writeRef(tx, id, name, to)
    if (pack !== null) {
      await acceptPack(tx, pack)
      if ((await countPacks(tx, id)) > mostPacks) throw unmerged()
      const limits: Limits = parts.limits ?? usualLimits
      await refuseLargeRepositories(tx, limits, organizationId, id)
    }
    if (head === null) return null
    const news: News = { follower: now, head: head.commitId, pusher, reason: head.reason, wanted: null }
    const wanted = head.reason === null ? (askedOf(parts, now, head.commitId) ?? { id, commitId: head.commitId }) : null
    const made =
      wanted === null
        ? null
        : (await requestPushed(tx, asking, organizationId, [{ ...news, wanted }], new Map([[id, wanted]]), by)).made
    const outcome = made === null ? 'SKIPPED' : 'DEPLOYED'
    const note = judged(news, outcome, head.reason, made?.deploymentId ?? null)
    await tx.query('update git_repository set judged = $2 where id = $1', [id, JSON.stringify(note)])
    return made
  })

/** Why a pushed commit is not deployed; null: it is. `from` is the former commit of the branch. */
const judge = async (
  parts: Pick<DeploymentParts, 'kinds'>,
  application: OwnApplication,
  from: string | null,
  commit: Commit,
  changes: (from: string, to: string) => Promise<string[] | null>,
  signal: AbortSignal,
): Promise<string | null> => {
  const { organizationId, branch } = application
  const commitId = commit.git_commit_id
  const builder = {
    fetch: async () => commit,
    changes: (_source: unknown, before: string) => changes(before, commitId),
  }
  const source = { organizationId, url: internalUrl, branch, commitId }
  const found = await createJudge({ ...parts, builder }, source, signal)({ ...application, seen: from })
  return found.reason
}

export interface OwnPushes {
  /** Null for an id that is not an application's, or whose repository is elsewhere. */
  find(id: string): Promise<OwnApplication | null>
  refs(application: OwnApplication): Promise<OwnRef[]>
  /** For one push at a time, on whichever server; null while another is in progress, or without the application. */
  claim(application: OwnApplication): Promise<Leased | null>
  /** False: the lease was lost. */
  renew(lease: Leased): Promise<boolean>
  release(lease: Leased): Promise<void>
  judge(
    application: OwnApplication,
    from: string | null,
    commit: Commit,
    changes: (from: string, to: string) => Promise<string[] | null>,
    signal: AbortSignal,
  ): Promise<string | null>
  /** Null if nothing is deployed. Rejects with an `ApiError`; then nothing was accepted. */
  accept(lease: Leased, push: OwnPush): Promise<Accepted>
}

export const createOwnPushes = (parts: DeploymentParts, worker: string, asking: Asking): OwnPushes => ({
  find: (id) => find(parts.database, id),
  refs: (application) => refsOf(parts.database, application),
  claim: (application) => claim(parts.database, worker, application),
  renew: async ({ id, fence }) =>
    (await renewLeases(parts.database, ownLeases, worker, [id])).some((held) => held.fence === fence),
  async release({ id, fence }) {
    // Another push of this server may have claimed it since.
    await parts.database.query(
      `update git_repository set lease_until = '-infinity' where id = $1 and fence = $2 and worker = $3`,
      [id, fence, worker],
    )
  },
  judge: (...rest) => judge(parts, ...rest),
  accept: (lease, push) => accept(parts, asking, lease, push),
})
