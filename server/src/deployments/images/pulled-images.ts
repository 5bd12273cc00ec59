/** Which pulled images an organization needs on a cluster: those of releases of its services. The rest is removed. */
import type { Cluster } from '../../clusters/clusters.ts'
import type { DeploymentParts } from '../parts.ts'
import type { ServiceRun } from '../progress/service-run.ts'
import { pulledImagesOf } from '../release/releases.ts'

/** A build may wait this long for its turn with a base image that no release uses. */
const unusedMs = 24 * 60 * 60_000
const everyMs = 60 * 60_000

/** Drops images that only this service had. If another deployment waits for one, it is pulled again. */
export const dropImagesOf = async (
  { parts, cluster, claim: { organizationId }, ref: { serviceId } }: ServiceRun,
  signal: AbortSignal,
): Promise<void> => {
  const images = await pulledImagesOf(parts.database, organizationId, cluster.key)
  const others = new Set([...images].flatMap(([id, references]) => (id === serviceId ? [] : [...references])))
  const own = [...(images.get(serviceId) ?? [])].filter((reference) => !others.has(reference))
  await cluster.images.drop(organizationId, own, signal)
}

/** Once an hour: images that no release uses, and everything of deleted organizations. */
export const createImageSweep = (
  parts: Pick<DeploymentParts, 'database' | 'clock'>,
  { key, images: held }: Cluster,
) => {
  const known = new Set<string>()
  let dueMs = Number.NEGATIVE_INFINITY

  const sweepOf = async (organizationId: string, isThere: boolean, signal: AbortSignal): Promise<void> => {
    const images = isThere ? await pulledImagesOf(parts.database, organizationId, key) : new Map<string, Set<string>>()
    const needed = [...images.values()].flatMap((each) => [...each])
    await held.sweep(organizationId, needed, isThere ? unusedMs : 0, signal)
  }

  return async (signal: AbortSignal): Promise<void> => {
    if (parts.clock.monotonicMs() < dueMs) return
    const owners = await held.owners()
    const rows = await parts.database.query<{ id: string }>(
      `select id from node where kind = 'organization' and id::text = any($1)`,
      [owners],
    )
    const there = new Set(rows.map(({ id }) => id))
    // An unknown one belongs to another installation on the same engine.
    for (const id of owners) if (there.has(id) || known.has(id)) await sweepOf(id, there.has(id), signal)
    for (const id of there) known.add(id)
    dueMs = parts.clock.monotonicMs() + everyMs
  }
}
