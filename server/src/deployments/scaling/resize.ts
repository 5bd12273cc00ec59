/**
 * Changes the number of instances of one service: waking it, putting it to sleep, more and fewer. The version and
 * environment stay the same, so it is not a deployment: nothing is built, nothing frozen, and nothing waits in a
 * queue.
 *
 * Promises: the new number is stored before routes are removed, and after added instances are ready. When the process
 * dies in between, the reconciler finishes stored changes, or undoes others; waiting requests ask again.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Running, Workload } from '../../runtimes/runtime.ts'
import { runningAs } from '../desired/running.ts'
import { ofImage } from '../desired/workload.ts'
import type { DeploymentParts } from '../parts.ts'
import { writeRecord } from '../release/record.ts'
import { openRelease } from '../release/releases.ts'
import { findLost } from '../request/lost-image.ts'
import { atScale } from '../status/scale.ts'
import { type ScaledService, showWaking, writeScale } from './rows.ts'

/** The desired state of the service has changed meanwhile. */
class Superseded extends Error {}

/** An error of the service itself, whichever code starts it; while an engine does not answer, the cause is unknown. */
const isOwnFault = (error: unknown): error is DeploymentError =>
  error instanceof DeploymentError && error.code !== 'engine_unavailable' && error.code !== 'cluster_not_connected'

const converge = async (
  { database, log }: DeploymentParts,
  { runtime }: Cluster,
  service: ScaledService,
  desired: Running<Workload>,
  signal: AbortSignal,
): Promise<void> => {
  const next = desired.workload.instances
  const serving = async (): Promise<void> => {
    if (!(await writeScale(database, service, next))) throw new Superseded('something else is wanted')
  }
  const { refused } = await runtime.resize(service, desired, serving, signal)
  for (const message of refused) log.warn({ serviceId: service.serviceId }, `${message}; retrying in a minute`)
}

/** Ends instances started in vain. A sleeping service's waiting requests are answered; waking is retried later. */
const undo = async (
  { database, clock }: DeploymentParts,
  { runtime }: Cluster,
  service: ScaledService,
  desired: Running<Workload>,
  error: DeploymentError,
  signal: AbortSignal,
): Promise<void> => {
  const isWake = service.scale === 0
  if (isWake) {
    const { code, message } = error
    await showWaking(database, service, 'ERROR', { code, message, at: clock.now().toISOString() })
  }
  const before = { ...desired, workload: atScale(desired.workload, service.scale), ...(isWake ? { failed: true } : {}) }
  await runtime.resize(service, before, async () => {}, signal)
}

/** The status of what scales says nothing of its image. */
const untold = async (): Promise<void> => {}

/** True once there are so many; false if it has to wait for its image. */
export const resize = async (
  parts: DeploymentParts,
  cluster: Cluster,
  service: ScaledService,
  next: number,
  signal: AbortSignal,
): Promise<boolean> => {
  const { database, sealer, log } = parts
  const opened = await openRelease(database, sealer, service.releaseId)
  if (opened === null) return true
  const isWake = service.scale === 0
  const desired = runningAs(
    { parts, service: { id: service.serviceId } },
    {
      ...ofImage(opened.workload),
      ...(next > service.scale ? await writeRecord(parts, opened.release) : {}),
      scaling: service.scaling,
      instances: next,
    },
  )
  // Waiting requests need not wait for the status.
  const showing = (isWake ? showWaking(database, service, 'STARTING', null) : Promise.resolve()).catch(
    (error: unknown) => log.debug({ err: error, serviceId: service.serviceId }, 'a wake could not be shown'),
  )
  try {
    const lost = next > service.scale ? await findLost(parts, cluster, opened.release, untold, signal) : null
    if (lost !== null) return false
    await converge(parts, cluster, service, desired, signal)
  } catch (error) {
    await showing
    if (error instanceof Superseded) return true
    if (!isOwnFault(error) || next < service.scale) throw error
    await undo(parts, cluster, service, desired, error, signal)
    throw error
  }
  return true
}
