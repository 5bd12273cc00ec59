/**
 * Deploys containers and jobs with `auto_deploy` when the tag of their image moves: its registry is polled for the
 * digest after a delivery from it, and periodically (SLIPWAY_IMAGE_POLL_SECONDS). Promises that a digest is deployed
 * once, by whichever server, that the digest at the moment when a service began to follow a tag is not a change, and
 * that no organization has more than a few polls at once. When the process dies: the lease of the image ends, and the
 * next poll finds the same.
 */
import { joinTag } from '../../../lib/docker/image-name.ts'
import { ApiError, DeploymentError } from '../../../lib/errors.ts'
import { newId } from '../../../lib/ids.ts'
import type { Queryable } from '../../../store/database.ts'
import { writeOwnAudit } from '../../../store/own-audit.ts'
import { imageChannel } from '../../../webhooks/inbound/deliveries.ts'
import { holdLease } from '../../../work/lease.ts'
import { openRegistry } from '../../credentials/registry-image.ts'
import type { Deployments } from '../../deployments.ts'
import type { DeploymentParts } from '../../parts.ts'
import { lockEnvironment } from '../../status/service-state.ts'
import { pushOrigin } from '../git/request-push.ts'
import { startPolls } from '../polls.ts'
import {
  finishImagePoll,
  type ImageFollower,
  lockImageFollowers,
  noteImageSeen,
  readImageFollowers,
  type WatchedImage,
  watchedImages,
  watchForgottenImages,
} from './rows.ts'

const defaultPollSeconds = 300
const longestPauseMs = 30_000

const triggeredBy = 'new image'

type Asking = Pick<Deployments, 'request'>

const unknown = () =>
  new DeploymentError('image_unreachable', 'The registry did not say what the tag of the image is now.')

/** The image with the digest that its registry returns now. */
const readImage = async (
  parts: DeploymentParts,
  { organizationId, registryId, name, tag }: WatchedImage,
  clusterId: string,
  signal: AbortSignal,
): Promise<string> => {
  const { repository, ...access } = await openRegistry(parts, organizationId, { registryId, name })
  const { images } = await parts.clusters.of(clusterId)
  const found = await images.resolve({ organizationId, reference: joinTag(repository, tag), ...access }, signal)
  if (found === null) throw unknown()
  return found
}

const audit = async (tx: Queryable, watched: WatchedImage, follower: ImageFollower, deploymentId: string) => {
  const { environmentId, environmentName: name, projectId } = follower
  await writeOwnAudit(tx, watched.organizationId, {
    ...{ actor: 'SYSTEM', by: triggeredBy, request: { origin: pushOrigin, requestId: newId() } },
    ...{ eventType: 'TRIGGER_DEPLOY', targetType: 'ENVIRONMENT', subTargetType: null },
    ...{ target: { id: environmentId, name }, place: { projectId, environmentId } },
    change: { deployment_request_id: deploymentId, image: joinTag(watched.name, watched.tag) },
  })
}

/** Deploys the followers of one environment and stores the digest, in one transaction. */
const deploy = (
  { database }: DeploymentParts,
  asking: Asking,
  watched: WatchedImage,
  found: string,
  followers: readonly ImageFollower[],
): Promise<void> =>
  holdLease(database, watchedImages.leases, watched, async (tx) => {
    const { environmentId } = followers[0]!
    const { organizationId } = watched
    await lockEnvironment(tx, environmentId)
    const still = await lockImageFollowers(tx, watched, followers)
    const left = followers.filter(({ id }) => still.has(id))
    const wanted = left.filter(({ isStopped, deployed }) => !isStopped && deployed !== found)
    await noteImageSeen(tx, [...still], found)
    if (wanted[0] === undefined) return
    const { deploymentId } = await asking.request(tx, {
      ...{ organizationId, environmentId, action: 'DEPLOY', wholeEnvironment: false },
      ...{ origin: pushOrigin, triggeredBy, requestId: newId() },
      services: wanted.map(({ id }) => ({ id })),
    })
    await audit(tx, watched, wanted[0], deploymentId)
  })

/** True: it must be retried soon. A final refusal is not retried. */
const deployOrNote = async (
  parts: DeploymentParts,
  asking: Asking,
  watched: WatchedImage,
  found: string,
  followers: readonly ImageFollower[],
): Promise<boolean> => {
  try {
    await deploy(parts, asking, watched, found, followers)
    return false
  } catch (error) {
    if (!(error instanceof ApiError) || error.status >= 500) throw error
    if (error.status === 409) return true
    if (followers.length === 1) {
      const ids = followers.map(({ id }) => id)
      await holdLease(parts.database, watchedImages.leases, watched, (tx) => noteImageSeen(tx, ids, found))
      return false
    }
  }
  let isUnfinished = false
  for (const each of followers)
    isUnfinished = (await deployOrNote(parts, asking, watched, found, [each])) || isUnfinished
  return isUnfinished
}

const poll = async (parts: DeploymentParts, asking: Asking, watched: WatchedImage, signal: AbortSignal) => {
  const { database, imagePollSeconds: pollSeconds = defaultPollSeconds } = parts
  const followers = await readImageFollowers(database, watched)
  if (followers[0] === undefined) return watchedImages.forget(database, watched)
  const found = await readImage(parts, watched, followers[0].clusterId, signal)
  const first = followers.filter(({ seen }) => seen === null).map(({ id }) => id)
  await holdLease(database, watchedImages.leases, watched, (tx) => noteImageSeen(tx, first, found))
  const moved = followers.filter(({ seen }) => seen !== null && seen !== found)
  let isUnfinished = false
  for (const [, together] of Map.groupBy(moved, ({ environmentId }) => environmentId))
    isUnfinished = (await deployOrNote(parts, asking, watched, found, together)) || isUnfinished
  await finishImagePoll(database, watched, pollSeconds, { error: null, isUnfinished })
}

export const startImages = (
  parts: DeploymentParts,
  worker: string,
  asking: Asking,
): Promise<{ stop(): Promise<void> }> => {
  const { database, imagePollSeconds = defaultPollSeconds } = parts
  return startPolls<WatchedImage>(parts, worker, {
    name: 'image tags',
    of: 'image',
    table: watchedImages,
    longestPauseMs,
    channel: imageChannel,
    poll: (watched, signal) => poll(parts, asking, watched, signal),
    note: (watched, error) => finishImagePoll(database, watched, imagePollSeconds, { error, isUnfinished: false }),
    watchForgotten: watchForgottenImages,
  })
}
