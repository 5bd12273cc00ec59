/** Follows the processor use of the instances of a cluster's services, and requests more or fewer. */
import type { Cluster } from '../../clusters/clusters.ts'
import { usualLimits } from '../../limits/limits.ts'
import { readServiceUse } from '../../limits/service-room.ts'
import type { DeploymentParts, ScaleTimes } from '../parts.ts'
import { readMemoryInUse, readScaled, type ScaledService } from './rows.ts'
import { decide, type Sample } from './rule.ts'

/** The target for a service: the number of instances, from its present state. */
export type Wish = (service: ScaledService) => number

export const usualScaleTimes: ScaleTimes = { sleepAfterMs: 300_000, upMs: 30_000, downMs: 300_000 }

interface History {
  releaseId: string
  scale: number
  samples: Sample[]
}

/** The total use of all instances as a share of one instance's limit; null while that is not known. */
const readLoads = async (
  { runtime }: Cluster,
  services: readonly ScaledService[],
  signal: AbortSignal,
): Promise<Map<string, number>> => {
  const seen = await runtime.observe(services)
  const usage = await runtime.usage(seen, signal)
  return new Map(
    services.flatMap(({ serviceId, revision, scale, cpuMillicores }) => {
      const own = seen.filter((each) => each.serviceId === serviceId && each.revision === revision)
      const used = own.flatMap(({ id }) => usage.get(id) ?? [])
      if (used.length < scale) return []
      const shares = used.map((each) => each.cpuMillicores / Math.max(1, each.cpuLimitMillicores ?? cpuMillicores))
      return [[serviceId, shares.reduce((sum, share) => sum + share, 0)] as const]
    }),
  )
}

/**
 * The most instances that it may have; never fewer than it has. Its maximum counts toward the limits already, so these
 * only matter when the operator has lowered them since.
 */
const roomFor = async (
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

/** One check of all services. Earlier samples are in memory: a new holder begins its windows anew. */
export const createFollower = (
  parts: DeploymentParts,
  cluster: Cluster,
  want: (serviceId: string, wish: Wish) => void,
): ((signal: AbortSignal) => Promise<void>) => {
  const { database, clock, scaleTimes = usualScaleTimes } = parts
  const histories = new Map<string, History>()

  const keep = (service: ScaledService, load: number): History => {
    const { serviceId, releaseId, scale } = service
    const before = histories.get(serviceId)
    const isSame = before?.releaseId === releaseId && before.scale === scale
    const history = isSame ? before : { releaseId, scale, samples: [] }
    const nowMs = clock.monotonicMs()
    history.samples.push({ atMs: nowMs, load })
    const longestMs = 2 * Math.max(scaleTimes.upMs, scaleTimes.downMs)
    while (nowMs - history.samples[0]!.atMs > longestMs) history.samples.shift()
    histories.set(serviceId, history)
    return history
  }
  const follow = async (service: ScaledService, load: number): Promise<void> => {
    const { samples } = keep(service, load)
    const wanted = decide(service.scaling, service.scale, samples, clock.monotonicMs(), scaleTimes)
    if (wanted === service.scale) return
    const next = wanted > service.scale ? Math.min(wanted, await roomFor(parts, cluster, service)) : wanted
    if (next !== service.scale) want(service.serviceId, (now) => (now.scale === service.scale ? next : now.scale))
  }
  return async (signal) => {
    const all = await readScaled(database, cluster.key)
    const growing = all.filter(
      ({ scaling, scale, busy }) =>
        scale > 0 && !busy && (scaling.max > Math.max(1, scaling.min) || scale > scaling.max),
    )
    for (const id of histories.keys()) if (!growing.some(({ serviceId }) => serviceId === id)) histories.delete(id)
    if (growing.length === 0) return
    const loads = await readLoads(cluster, growing, signal)
    for (const service of growing) {
      const load = loads.get(service.serviceId)
      if (load !== undefined) await follow(service, load)
    }
  }
}
