/** Decides when to add or end processes, and which connections are asked to reconnect. Pure. */
import type { ProcessNumbers, Pulse } from './messages.ts'

type Said = Pick<Pulse, 'busy' | 'clients'>

export interface Trend {
  /** Checks in a row at which all were busy, or fewer would be enough. */
  busy: number
  quiet: number
}

export const noTrend: Trend = { busy: 0, quiet: 0 }

/** Share of one core, averaged over all processes. */
const busyShare = 0.6
/** Share of one core for the remaining processes. */
const quietShare = 0.3
const busyLooks = 2
const quietLooks = 300

/** Called at each check, once a second. `change`: how many processes to add. */
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

/** Share of the excess that is shed at a time: reconnecting clients may reach the same process again. */
const shedShare = 0.25

/** How many connections each process sheds so that a less busy one gets them. */
export const judgeSheds = (said: readonly Said[]): number[] => {
  const mean = said.reduce((sum, { clients }) => sum + clients, 0) / said.length
  const least = Math.min(...said.map(({ busy }) => busy))
  return said.map(({ busy, clients }) =>
    busy > busyShare && busy > 2 * least && clients > mean + 1 ? Math.ceil((clients - mean) * shedShare) : 0,
  )
}
