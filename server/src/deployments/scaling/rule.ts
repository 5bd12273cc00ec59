/**
 * How many instances a service should have, from their use of their processor limits. Pure.
 *
 * Up: when the average of a short window is a tenth above the target, to the number that would meet it, at most twice
 * as many. Down: to the highest number needed at any moment of a long window, at most half. After each change the
 * windows begin anew, so that no sample is acted on twice.
 */
import type { Scaling } from '../../runtimes/runtime.ts'

/** The total use of all instances of a service: 1 is the whole limit of one instance. */
export interface Sample {
  /** Monotonic. */
  atMs: number
  load: number
}

export interface Windows {
  upMs: number
  downMs: number
}

const tolerance = 1.1

/** The samples of the last `ms`; null while they do not reach back that far. */
const within = (samples: readonly Sample[], nowMs: number, ms: number): Sample[] | null =>
  samples.length > 0 && nowMs - samples[0]!.atMs >= ms ? samples.filter(({ atMs }) => nowMs - atMs <= ms) : null

/** The target number of instances; `now`: no change. `samples`: since the last change, the oldest first. */
export const decide = (
  { min, max, cpuPercent }: Pick<Scaling, 'min' | 'max' | 'cpuPercent'>,
  now: number,
  samples: readonly Sample[],
  nowMs: number,
  { upMs, downMs }: Windows,
): number => {
  const target = cpuPercent / 100
  const fewest = Math.max(1, min)
  const bounded = (wanted: number): number => Math.min(max, Math.max(fewest, wanted))
  if (now < fewest || now > max) return bounded(now)
  const recent = within(samples, nowMs, upMs) ?? []
  const average = recent.reduce((sum, { load }) => sum + load, 0) / recent.length
  if (recent.length > 0 && average > now * target * tolerance)
    return bounded(Math.min(2 * now, Math.ceil(average / target)))
  const calm = within(samples, nowMs, downMs)
  if (calm === null || calm.length === 0) return now
  const needed = Math.max(...calm.map(({ load }) => Math.ceil(load / target)))
  return needed < now ? bounded(Math.max(needed, Math.ceil(now / 2))) : now
}
