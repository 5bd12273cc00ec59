/**
 * Deploys pushed commits: one deployment for each environment, in one transaction with the note that the head was
 * judged, under the lease of the repository: once, whatever dies, and however many servers poll. A deployment of an
 * earlier push that still waits is canceled, and its services are deployed with the newer commit.
 */
import { ApiError } from '../../../lib/errors.ts'
import { newId } from '../../../lib/ids.ts'
import type { Queryable } from '../../../store/database.ts'
import { type Audit, writeAudit } from '../../../store/tree.ts'
import { holdLease } from '../../../work/lease.ts'
import type { AcceptedDeployment, Deployments, ServiceRequest } from '../../deployments.ts'
import type { DeploymentParts } from '../../parts.ts'
import { writeDeploymentLines } from '../../progress/log.ts'
import { lockEnvironment } from '../../status/service-state.ts'
import { noteStatuses } from '../commit-status/rows.ts'
import type { News } from './judge.ts'
import { type Judged, lockFollowers, noteSeen, type Watched, watchedRepositories } from './rows.ts'

export type Asking = Pick<Deployments, 'request' | 'cancel'>

export const pushOrigin = 'GIT'

/** Names of pushers are untrusted texts of a git host: they must not look like those of our own users. */
const triggeredBy = (pusher: string, how = 'git push'): string => (pusher === '' ? how : `${pusher} (${how})`)

export const judged = (
  news: Pick<News, 'head'>,
  outcome: Judged['outcome'],
  reason: string | null,
  deploymentId: string | null,
): Judged => ({
  commit_id: news.head,
  at: new Date().toISOString(),
  outcome,
  reason,
  deployment_request_id: deploymentId,
})

/** Waiting deployments of earlier pushes that deploy only these services; locked, so that none begins. */
const lockWaiting = async (tx: Queryable, environmentId: string, known: ReadonlySet<string>) => {
  const locked = await tx.query<{ id: string }>(
    `select id from deployment where environment_id = $1 and state = 'QUEUED' and origin = '${pushOrigin}'
       and action = 'DEPLOY' order by seq for update skip locked`,
    [environmentId],
  )
  const rows = await tx.query<{ id: string; services: string[] }>(
    `select deployment_id as id, array_agg(service_id::text) as services from deployment_service
     where deployment_id = any($1) group by deployment_id`,
    [locked.map(({ id }) => id)],
  )
  return rows.filter(({ services }) => services.every((id) => known.has(id)))
}

/** Cancels deployments that this push replaces; returns the requests to be made instead, with the wanted ones. */
const supersede = async (
  tx: Queryable,
  asking: Asking,
  environmentId: string,
  wanted: readonly ServiceRequest[],
  current: ReadonlyMap<string, ServiceRequest>,
): Promise<ServiceRequest[]> => {
  const all = new Map(wanted.map((each) => [each.id, each]))
  for (const { id, services } of await lockWaiting(tx, environmentId, new Set(current.keys()))) {
    await asking.cancel(tx, environmentId, { deploymentId: id })
    await writeDeploymentLines(tx, id, 'compare', [
      'Canceled because a newer commit was pushed, which is deployed instead.',
    ])
    for (const service of services) if (!all.has(service)) all.set(service, current.get(service)!)
  }
  return [...all.values()]
}

/** The author of a push; not a user of ours if a git host reported it. */
export type Pusher = Pick<Audit, 'actorType' | 'actorId' | 'userAgent' | 'requestId'> & {
  /** How it was pushed, if not by git. */
  how?: string
}

const hostTold = (): Pusher => ({ actorType: 'SYSTEM', actorId: null, userAgent: null, requestId: newId() })

const audit = async (
  tx: Queryable,
  organizationId: string,
  { follower, pusher }: News,
  made: AcceptedDeployment,
  { how, ...by }: Pusher,
) => {
  const { environmentId, environmentName: name, projectId } = follower
  await writeAudit(
    tx,
    organizationId,
    { id: environmentId, name },
    {
      ...{ eventId: newId(), eventType: 'TRIGGER_DEPLOY', targetType: 'ENVIRONMENT', subTargetType: null },
      ...{ projectId, environmentId, ...by, origin: pushOrigin, triggeredBy: triggeredBy(pusher, how) },
      change: JSON.stringify({ deployment_request_id: made.deploymentId, execution_id: made.executionId }),
    },
  )
}

/** One deployment for the pushed services of a locked environment; it replaces waiting ones of earlier pushes. */
export const requestPushed = async (
  tx: Queryable,
  asking: Asking,
  organizationId: string,
  news: readonly [News, ...News[]],
  current: ReadonlyMap<string, ServiceRequest>,
  by = hostTold(),
): Promise<{ made: AcceptedDeployment; services: ServiceRequest[] }> => {
  const [first] = news
  const { environmentId } = first.follower
  const wanted = news.flatMap((each) => each.wanted ?? [])
  const services = await supersede(tx, asking, environmentId, wanted, current)
  const made = await asking.request(tx, {
    ...{ organizationId, environmentId, action: 'DEPLOY', wholeEnvironment: false, services },
    ...{ origin: pushOrigin, triggeredBy: triggeredBy(first.pusher, by.how), requestId: by.requestId },
  })
  await audit(tx, organizationId, first, made, by)
  return { made, services }
}

interface PushRequest {
  parts: Pick<DeploymentParts, 'database'>
  asking: Asking
  watched: Watched
  /** The request of the present head for each service that follows the repository, pushed just now or before. */
  current: ReadonlyMap<string, ServiceRequest>
}

const deploy = ({ parts, asking, watched, current }: PushRequest, news: readonly News[]): Promise<void> =>
  holdLease(parts.database, watchedRepositories.leases, watched, async (tx) => {
    await lockEnvironment(tx, news[0]!.follower.environmentId)
    const still = await lockFollowers(
      tx,
      watched,
      news.map(({ follower }) => follower),
    )
    const [first, ...rest] = news.filter(({ follower }) => still.has(follower.id))
    if (first === undefined) return
    const left = [first, ...rest] as const
    const { made, services } = await requestPushed(tx, asking, watched.organizationId, left, current)
    for (const each of left)
      await noteSeen(tx, [each.follower.id], each.head, judged(each, 'DEPLOYED', null, made.deploymentId))
    const { deploymentId } = made
    const told = services.map(({ id, commitId = '' }) => ({ serviceId: id, commitId, deploymentId, reason: null }))
    await noteStatuses(tx, watched, told)
  })

/** Notes why nothing is deployed. A push that is only impossible now is kept for the next poll. */
const note = ({ parts, watched }: PushRequest, news: News, outcome: Judged['outcome'], reason: string | null) =>
  holdLease(parts.database, watchedRepositories.leases, watched, async (tx) => {
    const still = await lockFollowers(tx, watched, [news.follower])
    const seen = outcome === 'WAITING' ? (news.follower.seen ?? '') : news.head
    await noteSeen(tx, [...still], seen, judged(news, outcome, reason, null))
    const commitId = news.head
    if (outcome === 'REFUSED')
      await noteStatuses(
        tx,
        watched,
        [...still].map((serviceId) => ({ serviceId, commitId, deploymentId: null, reason })),
      )
  })

/**
 * Deploys the services of one environment together; if the request is refused, each by itself, so that one that cannot
 * be deployed blocks no other. True: something must be retried.
 */
const deployEach = async (request: PushRequest, news: readonly News[]): Promise<boolean> => {
  try {
    await deploy(request, news)
    return false
  } catch (error) {
    if (!(error instanceof ApiError) || error.status >= 500) throw error
    if (news.length === 1) {
      const outcome = error.status === 409 ? 'WAITING' : 'REFUSED'
      await note(request, news[0]!, outcome, error.message)
      return outcome === 'WAITING'
    }
  }
  let isUnfinished = false
  for (const each of news) isUnfinished = (await deployEach(request, [each])) || isUnfinished
  return isUnfinished
}

/** Acts on the new heads of a poll. True: something must be retried soon. */
export const actOn = async (request: PushRequest, news: readonly News[]): Promise<boolean> => {
  let isUnfinished = false
  for (const each of news) if (each.wanted === null) await note(request, each, 'SKIPPED', each.reason)
  const wanted = news.filter((each) => each.wanted !== null)
  for (const [, together] of Map.groupBy(wanted, ({ follower }) => follower.environmentId))
    isUnfinished = (await deployEach(request, together)) || isUnfinished
  return isUnfinished
}
