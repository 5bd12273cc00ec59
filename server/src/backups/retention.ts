/** Which backups of a schedule are kept. Pure. */

export interface Keep {
  /** The newest ones. */
  last: number
  /** The newest one of each of so many days, weeks and months that have one; in the schedule's time zone. */
  daily: number
  weekly: number
  monthly: number
}

export interface Aged {
  id: string
  at: Date
  /** Verified: only these count for what is kept. */
  isGood: boolean
}

const dayMs = 86_400_000

const dayFormat = (timeZone: string) =>
  new Intl.DateTimeFormat('en-CA', { timeZone, year: 'numeric', month: '2-digit', day: '2-digit' })

/** The Monday of a day's week. */
const weekOf = (day: string): string => {
  const at = Date.parse(`${day}T00:00:00Z`)
  const sinceMonday = (new Date(at).getUTCDay() + 6) % 7
  return new Date(at - sinceMonday * dayMs).toISOString().slice(0, 10)
}

/** The first one of each of the first so many periods; `backups` are sorted, newest first. */
const firstOfEach = (backups: readonly Aged[], most: number, periodOf: (backup: Aged) => string): Aged[] => {
  const seen = new Map<string, Aged>()
  for (const backup of backups) {
    const period = periodOf(backup)
    if (!seen.has(period) && seen.size < most) seen.set(period, backup)
  }
  return [...seen.values()]
}

/**
 * The ids of those to remove. The newest verified one always stays, and so do those that could not be verified since: they
 * may be all that there is of that time.
 */
export const expiredOf = (backups: readonly Aged[], keep: Keep, timeZone: string): string[] => {
  const sorted = [...backups].sort((a, b) => b.at.getTime() - a.at.getTime())
  const good = sorted.filter(({ isGood }) => isGood)
  const [newest] = good
  if (newest === undefined) return []
  const format = dayFormat(timeZone)
  const dayOf = ({ at }: Aged): string => format.format(at)
  const kept = new Set([
    newest,
    ...good.slice(0, keep.last),
    ...firstOfEach(good, keep.daily, dayOf),
    ...firstOfEach(good, keep.weekly, (backup) => weekOf(dayOf(backup))),
    ...firstOfEach(good, keep.monthly, (backup) => dayOf(backup).slice(0, 7)),
  ])
  return sorted.filter((each) => !kept.has(each) && (each.isGood || each.at < newest.at)).map(({ id }) => id)
}
