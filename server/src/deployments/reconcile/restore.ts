/**
 * Starts missing instances of a service, from its release. An image that was pulled and is gone is pulled again here;
 * one that was built is built again by a deployment (request/lost-image.ts). Its status reports the reason if the service
 * cannot run.
 */
import type { Cluster } from '../../clusters/clusters.ts'
import { DeploymentError } from '../../lib/errors.ts'
import type { Converged, Desired, Instance, ServiceKey } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { Problem } from '../deployments.ts'
import { runningAs, stoppedAs } from '../desired/running.ts'
import type { DeploymentParts } from '../parts.ts'
import { writeRecord } from '../release/record.ts'
import { openRelease, type Release } from '../release/releases.ts'
import { findLost } from '../request/lost-image.ts'
import { atScale } from '../status/scale.ts'
import type { Report } from './observed-status.ts'

interface Wanted extends ServiceKey {
  desired: string
  releaseId: string | null
  scale: number | null
}

interface Missing {
  service: Wanted
  /** The existing instances of its version. */
  current: readonly Instance[]
  /** Some of them must be created; one that is only down starts from its own image. */
  needsImage: boolean
  report: Report
}

const retireGraceMs = 10_000
/** Missing instances are usually back sooner: then nothing needs to be reported. */
const lateMs = 5000

/** From its release; null if that is gone. */
const openDesired = async (
  parts: DeploymentParts,
  { serviceId, releaseId, desired, scale }: Wanted,
): Promise<{ desired: Desired; release: Release | null } | null> => {
  const of = { parts, service: { id: serviceId } }
  if (desired !== 'RUNNING') return { desired: stoppedAs(of, retireGraceMs), release: null }
  const opened = releaseId === null ? null : await openRelease(parts.database, parts.sealer, releaseId)
  if (opened === null) return null
  const workload = { ...opened.workload, ...(await writeRecord(parts, opened.release)) }
  return { desired: runningAs(of, atScale(workload, scale)), release: opened.release }
}

const volumeMissing: Problem = {
  code: 'volume_missing',
  message:
    'A volume of this service is missing on its cluster. The service is not started, because it would get an empty one: restore the volume from a backup, or deploy the service to start with an empty volume.',
}

/** Whether a new instance would get an empty volume in place of one with data. */
const lacksVolume = async ({ runtime }: Cluster, { workload: { volumes } }: Release): Promise<boolean> => {
  if (volumes.length === 0) return false
  const made = await runtime.volumeSizes(volumes.map(({ id }) => id))
  return volumes.some(({ id }) => !made.has(id))
}

const troubleOf = (error: unknown): Problem | null =>
  error instanceof DeploymentError ? { code: error.code, message: error.message } : null

/** Reports the problem when `work` fails, and before that when it takes longer than a moment. */
const reportIfNot = async <T>(
  parts: DeploymentParts,
  { current, report }: Missing,
  work: (report: Report) => Promise<T>,
): Promise<T> => {
  const over = new AbortController()
  let isReported = false
  const late = parts.clock.sleep(lateMs, over.signal).then(
    () => (isReported ? undefined : report(current)),
    () => {},
  )
  const reportFirst: Report = (...words) => {
    isReported = true
    return report(...words)
  }
  try {
    return await work(reportFirst)
  } catch (error) {
    const trouble = troubleOf(error)
    // The state of services on an engine that does not answer is unknown; that is reported elsewhere.
    if (trouble?.code !== 'engine_unavailable') await report(current, trouble)
    throw error
  } finally {
    over.abort(new Error('it is restored'))
    await late
  }
}

/** The resulting instances; `lost` or `busy` while its image is made again or waits for that; null: no release. */
export const restore = async (
  parts: DeploymentParts,
  cluster: Cluster,
  missing: Missing,
  signal: AbortSignal,
): Promise<Converged | 'lost' | 'busy' | null> => {
  const { service, needsImage } = missing
  const opened = await openDesired(parts, service)
  if (opened === null) return null
  const { desired, release } = opened
  return reportIfNot(parts, missing, async (report) => {
    const reportLost = (problem: Problem | null, tx?: Queryable) => report(missing.current, problem, tx)
    if (needsImage && release !== null && (await lacksVolume(cluster, release))) {
      await report(missing.current, volumeMissing)
      return 'lost'
    }
    const lost = needsImage && release !== null ? await findLost(parts, cluster, release, reportLost, signal) : null
    return lost ?? cluster.runtime.converge(service, desired, null, signal)
  })
}
