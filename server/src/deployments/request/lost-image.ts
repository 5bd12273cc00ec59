/**
 * A running version whose image was built here and is gone: it is built again from its commit, by an ordinary
 * deployment in the queue, so that it survives our death, is visible, and never runs in parallel with one of the
 * environment's owner.
 *
 * Promises: at most one such deployment of an environment waits or runs, and none while another one does; a failed
 * build is retried after ever longer pauses, and not forever; a canceled one is not retried. With several servers it
 * is requested once: the row of the environment is locked during the decision.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { ApiError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Queryable } from '../../store/database.ts'
import type { Problem } from '../deployments.ts'
import { hasNoImage } from '../desired/workload.ts'
import { ensureImage } from '../images/make-image.ts'
import type { DeploymentParts } from '../parts.ts'
import type { Release } from '../release/releases.ts'
import { lockEnvironment } from '../status/service-state.ts'
import { openStates } from '../status/states.ts'
import { requestDeployment } from './request.ts'
import { requestPartsOf } from './request-parts.ts'

const minute = 60_000
/** The pause before each attempt, since the previous one. */
const pausesMs = [0, 5000, minute, 5 * minute, 15 * minute, 60 * minute, 240 * minute]
/** A version that was built again this recently and is lost once more continues the count of the previous one. */
const quietMs = 10 * minute
/** How often it is done at once. */
const quickLosses = 2
const origin = 'QOVERY_INTERNAL'
const triggeredBy = 'Slipway: the image of the running version was removed'

interface Row {
  isWanted: boolean
  isBusy: boolean
  isSame: boolean
  attempts: number
  sinceMs: number | null
  state: string | null
  reason: string | null
}

const read = async (tx: Queryable, { serviceId, id }: Release): Promise<Row | undefined> =>
  (
    await tx.query<Row>(
      `select s.desired = 'RUNNING' and s.current_release_id = $2 as "isWanted",
         exists (select from deployment d where d.environment_id = s.environment_id and d.state in ${openStates}) as "isBusy",
         coalesce(p.release_id = $2, false) as "isSame", coalesce(p.attempts, 0) as attempts,
         extract(epoch from clock_timestamp() - p.last_at)::float8 * 1000 as "sinceMs",
         w.state, w.error ->> 'message' as reason
       from service_state s left join repair p on p.service_id = s.service_id
         left join deployment_service w on w.deployment_id = p.deployment_id and w.service_id = s.service_id
       where s.service_id = $1`,
      [serviceId, id],
    )
  )[0]

const note = (tx: Queryable, { serviceId, id }: Release, deploymentId: string, attempts: number): Promise<unknown> =>
  tx.query(
    `insert into repair (service_id, release_id, deployment_id, attempts, last_at)
     values ($1, $2, $3, $4, clock_timestamp())
     on conflict (service_id) do update set release_id = excluded.release_id,
       deployment_id = excluded.deployment_id, attempts = excluded.attempts, last_at = excluded.last_at`,
    [serviceId, id, deploymentId, attempts],
  )

const lost = 'The image of the running version was removed from the cluster'
const problem = (message: string): Problem => ({ code: 'image_lost', message })

const beingBuilt = problem(`${lost}: it is being built again.`)
const beingPulled = problem(`${lost}: it is being pulled again.`)

const waiting = ({ attempts, reason }: Row, pauseMs: number): Problem => {
  const next = `attempt ${attempts} of ${pausesMs.length}; the next one within ${Math.ceil(pauseMs / minute)} min`
  return problem(`${lost}, and it could not be built again (${next}): ${reason ?? 'the deployment failed.'}`)
}

const givenUp = ({ state, reason }: Row): Problem =>
  state === 'CANCELED'
    ? problem(`${lost}, and building it again was canceled: deploy the service.`)
    : problem(
        `${lost}, and it could not be built again in ${pausesMs.length} attempts: deploy the service. ${reason ?? ''}`,
      )

type TellIn = (tx: Queryable, problem: Problem) => Promise<void>

/** The problem and its repair; null if something else is wanted of the service by now, or is in progress. */
const decide = async (
  parts: DeploymentParts,
  tx: Queryable,
  release: Release,
  tell: TellIn,
): Promise<Problem | null> => {
  const { organizationId, serviceId, workload } = release
  await lockEnvironment(tx, workload.environmentId)
  const row = await read(tx, release)
  if (row === undefined || !row.isWanted || row.isBusy) return null
  if (row.isSame && row.state === 'CANCELED') return givenUp(row)
  const attempts = row.isSame || (row.sinceMs ?? Number.POSITIVE_INFINITY) < quietMs ? row.attempts : 0
  const pauseMs = !row.isSame && attempts <= quickLosses ? 0 : pausesMs[attempts]
  if (pauseMs === undefined) return givenUp(row)
  const leftMs = pauseMs - (row.sinceMs ?? pauseMs)
  if (leftMs > 0) return waiting(row, leftMs)
  const { deploymentId } = await requestDeployment(
    tx,
    {
      organizationId,
      environmentId: workload.environmentId,
      action: 'RESTART',
      wholeEnvironment: false,
      services: [{ id: serviceId }],
      origin,
      triggeredBy,
      requestId: newId(),
    },
    requestPartsOf(parts),
  )
  await note(tx, release, deploymentId, attempts + 1)
  // Later would be too late: a deployment that has begun shows its own state, and not that nothing runs.
  await tell(tx, beingBuilt)
  return beingBuilt
}

/** `tell` is called in the transaction that requests the deployment. */
export const buildLostImage = async (
  parts: DeploymentParts,
  release: Release,
  tell: TellIn,
): Promise<Problem | null> => {
  try {
    return await parts.database.transaction((tx) => decide(parts, tx, release, tell))
  } catch (error) {
    if (error instanceof ApiError && error.status < 500)
      return problem(`${lost}, and it cannot be built again: ${error.message}`)
    throw error
  }
}

/** Null if there is an image to start from: one that was pulled is pulled again. `tell` reports the remedy. */
export const findLost = async (
  parts: DeploymentParts,
  cluster: Cluster,
  release: Release,
  tell: (problem: Problem | null, tx?: Queryable) => Promise<void>,
  signal: AbortSignal,
): Promise<'lost' | 'busy' | null> => {
  if (hasNoImage(release.workload)) return null
  if (await cluster.images.isHeld(release.organizationId, release.image, signal)) return null
  if (release.source === null) {
    const problem = await buildLostImage(parts, release, (tx, asked) => tell(asked, tx))
    if (problem !== beingBuilt) await tell(problem)
    return problem === null || problem === beingBuilt ? 'busy' : 'lost'
  }
  await tell(beingPulled)
  await ensureImage(parts, cluster, release, () => {}, signal)
  return null
}
