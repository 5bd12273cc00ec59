/** A deployment's work with releases: opening them, freezing them again, and making one current. */

import { usualLimits } from '../../limits/limits.ts'
import { countRelease } from '../../limits/service-room.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import { withClaim } from '../../work/queue.ts'
import { setSchedules } from '../../work/schedule.ts'
import { clocksOf } from '../desired/tasks.ts'
import { aliasesOf } from '../desired/workload.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import { freezeRelease, type OpenedRelease, openRelease, type Release } from './releases.ts'

export const openOwn = (run: ServiceRun, releaseId: string): Promise<OpenedRelease | null> =>
  openRelease(run.parts.database, run.parts.sealer, releaseId)

/** An older release may need more than the service does now: there must be room for it. */
export const countAgain = ({ parts, claim, service }: ServiceRun, { release }: OpenedRelease): Promise<void> => {
  const { database, limits = usualLimits } = parts
  return database.transaction((tx) => countRelease(tx, limits, claim.organizationId, service.id, release.workload))
}

/** Freezes an older release again, as this deployment's own, with the image that it can start from now. */
export const freezeAgain = (
  run: ServiceRun,
  { release, environment }: OpenedRelease,
  image: string,
): Promise<Release> => {
  const { parts, service, claim } = run
  const { id: _, ...copy } = release
  // Other services reach the service by its current name.
  const workload = { ...copy.workload, revision: claim.id, aliases: aliasesOf(service.name, service.id) }
  return freezeRelease(parts.database, parts.sealer, { ...copy, image, deploymentId: claim.id, workload }, environment)
}

/** The service runs this release from now on, and its schedule unless an event was forced; a cancel is too late. */
export const makeCurrent = async (
  run: ServiceRun,
  release: Release,
  running: string,
  { scaling, instances }: Partial<Pick<Workload, 'scaling' | 'instances'>> = {},
): Promise<void> => {
  const { parts, service, claim } = run
  run.signal.throwIfAborted()
  run.committed = true
  await withClaim(parts.database, claim, async (tx) => {
    await tx.query(
      `update service_state set current_release_id = $2, deployed_hash = $3, desired = 'RUNNING',
         running_state = $4, problem = null, restarts = null, scaling = $5, scale = $6,
         scaled_at = clock_timestamp(), wake_error = null where service_id = $1`,
      [
        ...[service.id, release.id, release.hash, running],
        ...(scaling === undefined ? [null, null] : [JSON.stringify(scaling), instances]),
      ],
    )
    const { tasks } = release.workload
    if (tasks !== undefined && service.requested.forceEvent === undefined)
      await setSchedules(tx, service.id, clocksOf(tasks), parts.clock.now())
  })
}
