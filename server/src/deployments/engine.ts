/**
 * The deployment engine: requests for deployments, and the background work. Promises that every accepted deployment
 * ends in a final state, whenever a process dies. Work is found by NOTIFY, with a slow sweep as a fallback.
 */
import type { Builder } from '../builds/builder.ts'
import { clusterLeases } from '../clusters/lease.ts'
import type { Disk } from '../limits/disk.ts'
import { expireLeases } from '../work/lease.ts'
import { deploymentLeases } from '../work/queue.ts'
import { runLeases } from '../work/schedule.ts'
import { workerName } from '../work/worker.ts'
import type { Deployments } from './deployments.ts'
import { startKeeping } from './keeping/keep.ts'
import type { DeploymentParts } from './parts.ts'
import { planDeployment } from './plan/facts.ts'
import { startReconcilers, wantedChannel } from './reconcile/reconcile.ts'
import { releaseFor, releasesOf } from './release/rollback.ts'
import { startAutoStop } from './request/auto-stop.ts'
import { cancelDeployments } from './request/cancel.ts'
import { requestDeployment } from './request/request.ts'
import { requestPartsOf } from './request/request-parts.ts'
import { startDeployments } from './run/worker.ts'
import { scalingChannel } from './scaling/turns.ts'
import { statusLeases } from './sources/commit-status/rows.ts'
import { startStatuses } from './sources/commit-status/statuses.ts'
import type { OwnPushes } from './sources/git/own.ts'
import { createOwnPushes, ownLeases } from './sources/git/own.ts'
import { startPacks } from './sources/git/own-packs.ts'
import { startPushes } from './sources/git/pushes.ts'
import { watchedRepositories } from './sources/git/rows.ts'
import { startImages } from './sources/images/images.ts'
import { watchedImages } from './sources/images/rows.ts'
import { createStatuses } from './status/status.ts'
import { startScheduler } from './tasks/scheduler.ts'

const leaseTables = [
  ...[deploymentLeases, runLeases, clusterLeases, ownLeases, statusLeases],
  ...[watchedRepositories.leases, watchedImages.leases],
]

/** Builds only if there is room for another image: one that already exists needs none. */
const withRoom = (builder: Builder, disk: Pick<Disk, 'refuseImage'>): Builder => ({
  ...builder,
  async build(request, onLog, signal) {
    try {
      await disk.refuseImage(request.organizationId, signal)
    } catch (error) {
      if (signal.aborted || (await builder.built(request, signal)) === null) throw error
    }
    return builder.build(request, onLog, signal)
  },
})

export interface DeploymentEngine extends Deployments {
  /** Pushes to the repositories that applications have on this server. */
  readonly own: OwnPushes
  start(): Promise<void>
  /** Ends at the boundary of a step and releases the leases; the next start resumes. */
  stop(): Promise<void>
}

export const createDeploymentEngine = (given: DeploymentParts): DeploymentEngine => {
  const parts = given.disk === undefined ? given : { ...given, builder: withRoom(given.builder, given.disk) }
  const worker = workerName()
  const requestParts = requestPartsOf(parts)
  const ends: (() => void | Promise<void>)[] = []

  const request: Deployments['request'] = (tx, wanted) => requestDeployment(tx, wanted, requestParts)
  const cancel: Deployments['cancel'] = (tx, environmentId, options) =>
    cancelDeployments(tx, environmentId, requestParts, options)

  return {
    request,
    plan: (db, request) => planDeployment(parts, db, request),
    releaseFor: (db, serviceId, releaseId) => releaseFor(parts, db, serviceId, releaseId),
    releasesOf: (db, environmentId, executionId) => releasesOf(parts, db, environmentId, executionId),
    cancel,
    own: createOwnPushes(parts, worker, { request, cancel }),
    ...createStatuses(parts),
    async start() {
      const { database } = parts
      if (parts.alone) for (const table of leaseTables) await expireLeases(database, table)
      const reconciler = await startReconcilers(parts, worker)
      const scheduler = startScheduler(parts, worker)
      const deployments = startDeployments(parts, worker)
      const autoStop = await startAutoStop(parts)
      const pushes = await startPushes(parts, worker, { request, cancel })
      const statuses = await startStatuses(parts, worker)
      const images = await startImages(parts, worker, { request })
      const packs = startPacks(parts)
      const keeping = startKeeping(parts)
      ends.push(reconciler.stop, scheduler.stop, deployments.stop, autoStop.stop)
      ends.push(pushes.stop, statuses.stop, images.stop, packs.stop, keeping.stop)
      ends.push(await database.listen('slipway_schedule', scheduler.wake))
      ends.push(await database.listen('slipway_deployment', deployments.wake))
      ends.push(await database.listen('slipway_routes', reconciler.soon))
      ends.push(await database.listen(wantedChannel, (id) => reconciler.wake(id, true)))
      ends.push(await database.listen(scalingChannel, reconciler.yield))
      parts.router?.wanted(reconciler.wake)
      ends.push(await database.listen('slipway_cancel', deployments.cancel))
      // Deployments that were requested before anything listened.
      deployments.wake()
    },
    async stop() {
      await Promise.all(ends.reverse().map((end) => end()))
    },
  }
}
