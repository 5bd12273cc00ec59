/** How far a service may grow now, besides its own maximum: by the engine of its cluster, and its organization's limits. */
import type { Cluster } from '../../clusters/clusters.ts'
import { usualLimits } from '../../limits/limits.ts'
import { readServiceUse } from '../../limits/service-room.ts'
import type { DeploymentParts } from '../parts.ts'
import { readMemoryInUse, type ScaledService } from './rows.ts'

/**
 * The most instances that it may have; never fewer than it has. Its maximum counts toward the limits already, so these
 * only matter when the operator has lowered them since.
 */
export const roomFor = async (
  { database, limits = usualLimits }: Pick<DeploymentParts, 'database' | 'limits'>,
  cluster: Cluster,
  { organizationId, scale, cpuMillicores, memoryMb }: ScaledService,
): Promise<number> => {
  const [capacity, inUseMb, use] = await Promise.all([
    cluster.capacity(),
    readMemoryInUse(database, cluster.key),
    readServiceUse(database, organizationId),
  ])
  const isOver = (['memoryMb', 'cpuMillicores'] as const).some((each) => limits[each] > 0 && use[each] > limits[each])
  if (isOver) return scale
  if (capacity === null) return Number.POSITIVE_INFINITY
  const byMemory = scale + Math.floor((capacity.memoryMb - inUseMb) / Math.max(1, memoryMb))
  // More instances than the processors of the machine could run at once would be of no use.
  const byProcessors = Math.floor(capacity.cpuMillicores / Math.max(1, cpuMillicores))
  return Math.max(scale, Math.min(byMemory, byProcessors))
}
