/**
 * Usage of containers. The engine counts processor time; two counts make a rate. Stored per container: its last two
 * counts, shared by all readers, and forgotten soon after the last of them. An engine on another machine may answer
 * anything: a value that is not a number counts as zero.
 */
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { type Engine, isEngineError } from '../../lib/docker/docker-engine.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Instance, Runtime, Usage } from '../runtime.ts'

interface Stats {
  read?: string
  cpu_stats?: { cpu_usage?: { total_usage?: number } }
  memory_stats?: { usage?: number; stats?: Record<string, number> }
}

interface Sample {
  atMs: number
  cpuNs: number
  memoryBytes: number
  rssBytes: number
}

interface Meter {
  limits: Pick<Usage, 'cpuLimitMillicores' | 'memoryLimitMb'>
  before: Sample | null
  last: Sample | null
  askedMs: number
  asking: Promise<boolean> | undefined
}

const freshMs = 1500
/** Between the first two counts of a container. */
const apartMs = 1000
const forgetMs = 60_000
const deadlineMs = 3000
/** Concurrent calls of one engine. */
const parallel = 8

const count = (value: unknown): number => (Number.isFinite(value) && Number(value) > 0 ? Number(value) : 0)
const megabytes = (bytes: number): number => Math.round(bytes / 2 ** 20)

const toSample = ({ read, cpu_stats, memory_stats }: Stats, nowMs: number): Sample => {
  const { usage, stats = {} } = memory_stats ?? {}
  const at = Date.parse(read ?? '')
  // The first names are those of cgroup 2, the second those of cgroup 1.
  const cached = count(stats.inactive_file ?? stats.total_inactive_file)
  return {
    atMs: Number.isFinite(at) ? at : nowMs,
    cpuNs: count(cpu_stats?.cpu_usage?.total_usage),
    memoryBytes: Math.max(0, count(usage) - cached),
    rssBytes: count(stats.anon ?? stats.total_rss ?? stats.rss),
  }
}

const toUsage = ({ limits, before, last }: Meter): Usage | null => {
  if (before === null || last === null) return null
  const apart = last.atMs - before.atMs
  const rate = apart > 0 ? Math.max(0, last.cpuNs - before.cpuNs) / 1000 / apart : 0
  return {
    ...limits,
    cpuMillicores: Math.round(rate),
    memoryMb: megabytes(last.memoryBytes),
    memoryRssMb: megabytes(Math.min(last.rssBytes, last.memoryBytes)),
  }
}

/** Meters unused for a minute are forgotten, so that short-lived containers leave nothing here. */
const forgetOld = (meters: Map<string, Meter>, nowMs: number): void => {
  for (const [id, meter] of meters) if (nowMs - meter.askedMs > forgetMs) meters.delete(id)
}

export const createUsage = (engine: Engine, clock: Clock): Runtime['usage'] => {
  const meters = new Map<string, Meter>()
  const inTurn = createSemaphore(parallel)
  const ask = <T>(id: string, path: string, query: Record<string, boolean> = {}): Promise<T> =>
    inTurn(id, () => engine.call<T>('GET', `/containers/${id}/${path}`, { query, deadlineMs }))

  const meterOf = async (id: string): Promise<Meter> => {
    const known = meters.get(id)
    if (known !== undefined) return known
    const { HostConfig } = await ask<{ HostConfig?: { NanoCpus?: number; Memory?: number } }>(id, 'json')
    const [cpu, memory] = [count(HostConfig?.NanoCpus), count(HostConfig?.Memory)]
    const limits = {
      cpuLimitMillicores: cpu === 0 ? null : Math.round(cpu / 1e6),
      memoryLimitMb: memory === 0 ? null : megabytes(memory),
    }
    const made = meters.get(id) ?? { limits, before: null, last: null, askedMs: 0, asking: undefined }
    meters.set(id, made)
    return made
  }

  const sample = async (id: string, meter: Meter): Promise<boolean> => {
    const stats = await ask<Stats>(id, 'stats', { stream: false, 'one-shot': true })
    const next = toSample(stats, clock.now().getTime())
    // An engine that counts rarely may return the same count twice.
    if (meter.last === null || next.atMs > meter.last.atMs) Object.assign(meter, { before: meter.last, last: next })
    return meter.before !== null
  }

  /** Whether the container's usage is known by now. */
  const refresh = async (id: string): Promise<boolean> => {
    try {
      const meter = await meterOf(id)
      const nowMs = clock.monotonicMs()
      if (meter.asking !== undefined) return await meter.asking
      if (meter.before !== null && nowMs - meter.askedMs < freshMs) return true
      meter.askedMs = nowMs
      meter.asking = sample(id, meter).finally(() => {
        meter.asking = undefined
      })
      return await meter.asking
    } catch (error) {
      // Gone, or stopped meanwhile.
      if (!isEngineError(error)) throw error
      meters.delete(id)
      return true
    }
  }

  return async (instances: readonly Instance[], signal: AbortSignal) => {
    forgetOld(meters, clock.monotonicMs())
    const ids = instances.filter(({ state }) => state === 'running').map(({ id }) => id)
    const isKnown = await Promise.all(ids.map(refresh))
    const fresh = ids.filter((_, index) => isKnown[index] === false)
    if (fresh.length > 0) {
      await clock.sleep(apartMs, signal)
      await Promise.all(fresh.map(refresh))
    }
    return new Map(
      ids.flatMap((id) => {
        const meter = meters.get(id)
        const usage = meter === undefined ? null : toUsage(meter)
        return usage === null ? [] : [[id, usage] as const]
      }),
    )
  }
}
