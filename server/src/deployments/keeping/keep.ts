/**
 * Deletes what is no longer kept: after each deployment what it made superfluous, and once an hour whatever was missed,
 * because a process died, a setting was lowered or a service was deleted. If the process dies here, the next hour does
 * the rest.
 */
import { type Keeping, usualKeeping } from '../../limits/keeping.ts'
import { createLoop } from '../../work/loop.ts'
import type { DeploymentParts } from '../parts.ts'
import { isCancel } from '../progress/canceled.ts'
import { forgetPushed } from './built-images.ts'
import { deleteDeploymentsOfDeleted, deleteOldDeployments, environmentsWithMore } from './deployments.ts'
import { deleteOldReleases, deleteReleasesOf, deleteReleasesOfDeleted, servicesWithMore } from './releases.ts'

const hourMs = 3_600_000
const never = new AbortController().signal

type Parts = Pick<DeploymentParts, 'database' | 'keeping'>

export const keepingOf = ({ keeping = usualKeeping }: Pick<DeploymentParts, 'keeping'>): Keeping => keeping

/** After a deployment of these services of an environment has ended. Never fails: the next hour does what was left. */
export const keepAfter = async (
  parts: Parts & Pick<DeploymentParts, 'log'>,
  environmentId: string,
  serviceIds: readonly string[],
  signal: AbortSignal,
): Promise<void> => {
  const { database, log } = parts
  const { releases, deployments } = keepingOf(parts)
  if (serviceIds.length === 0 || (signal.aborted && !isCancel({ signal }))) return
  try {
    await deleteOldReleases(database, environmentId, serviceIds, releases)
    await deleteReleasesOf(database, serviceIds)
    // What has accumulated before an upgrade is left to the hour: the next deployment of the environment waits.
    await deleteOldDeployments(database, environmentId, deployments, never, 1)
  } catch (error) {
    log.warn({ err: error, environmentId }, 'old releases and deployments are deleted within the hour instead')
  }
}

/** Everything that is no longer kept. Stops between two environments when `signal` aborts. */
export const keepAll = async (parts: Parts, signal: AbortSignal): Promise<void> => {
  const { database } = parts
  const { releases, deployments } = keepingOf(parts)
  for (const [environmentId, serviceIds] of await servicesWithMore(database, releases)) {
    signal.throwIfAborted()
    await deleteOldReleases(database, environmentId, serviceIds, releases)
  }
  await deleteReleasesOfDeleted(database)
  for (const environmentId of await environmentsWithMore(database, deployments))
    await deleteOldDeployments(database, environmentId, deployments, signal)
  await deleteDeploymentsOfDeleted(database, signal)
  await forgetPushed(database)
}

const dayMs = 24 * hourMs

/** On the disk of this server. */
const keepMirrors = async (parts: DeploymentParts, signal: AbortSignal): Promise<void> => {
  const { database, builder } = parts
  const rows = await database.query<{ id: string }>(`select id from node where kind = 'organization'`)
  const ids = rows.map(({ id }) => id)
  await builder.removeOldMirrors?.(ids, keepingOf(parts).mirrorDays * dayMs, signal)
}

export const startKeeping = (parts: DeploymentParts): { stop(): Promise<void> } => {
  const common = { periodMs: hourMs, waits: true }
  const rows = createLoop(parts, {
    ...common,
    name: 'old releases and deployments',
    failed: 'old releases and deployments could not be deleted',
    run: (signal) => keepAll(parts, signal),
  })
  const mirrors = createLoop(parts, {
    ...common,
    name: 'old git mirrors',
    failed: 'old git mirrors could not be removed',
    run: (signal) => keepMirrors(parts, signal),
  })
  return {
    async stop() {
      await Promise.all([rows.stop(), mirrors.stop()])
    },
  }
}
