/** When there are to be more or fewer processes, and whose clients are to come again. Pure. */
import type { ProcessNumbers, Pulse } from './messages.ts'

/** What one process said last. */
type Said = Pick<Pulse, 'busy' | 'clients'>

export interface Trend {
  /** Looks in a row at which all were busy, or fewer would do. */
  busy: number
  quiet: number
}

export const noTrend: Trend = { busy: 0, quiet: 0 }

/** Of one core, in the mean of all processes. */
const busyShare = 0.6
/** Of those that would be left. */
const quietShare = 0.3
const busyLooks = 2
const quietLooks = 300

/** At each look, of which there is one a second. `change`: how many processes more. */
export const judgeLoad = (
  trend: Trend,
  said: readonly Said[],
  { least, most }: ProcessNumbers,
): { trend: Trend; change: 1 | 0 | -1 } => {
  const all = said.reduce((sum, { busy }) => sum + busy, 0)
  const count = said.length
  const busy = count < most && all / count > busyShare ? trend.busy + 1 : 0
  const quiet = count > least && all / (count - 1) < quietShare ? trend.quiet + 1 : 0
  if (busy >= busyLooks) return { trend: noTrend, change: 1 }
  if (quiet >= quietLooks) return { trend: noTrend, change: -1 }
  return { trend: { busy, quiet }, change: 0 }
}

/** Part of what is too much at a time: those who come again may come to the same process. */
const shedShare = 0.25

/** How many connections each process gives up so that one that is less busy gets them. */
export const judgeSheds = (said: readonly Said[]): number[] => {
  const mean = said.reduce((sum, { clients }) => sum + clients, 0) / said.length
  const least = Math.min(...said.map(({ busy }) => busy))
  return said.map(({ busy, clients }) =>
    busy > busyShare && busy > 2 * least && clients > mean + 1 ? Math.ceil((clients - mean) * shedShare) : 0,
  )
}
