/**
 * The clocks of registries that were asked lately, from the `Date` of their answers: nothing is asked for this alone.
 * Users choose registries, so one of them proves nothing.
 */
const most = 16
const keptMs = 3_600_000

/** How far each is ahead of ours, by host, and when that was noticed. */
const seen = new Map<string, { aheadMs: number; atMs: number }>()

export const noteDate = (host: string, date: string | undefined, nowMs = Date.now()): void => {
  const theirsMs = date === undefined ? Number.NaN : Date.parse(date)
  if (Number.isNaN(theirsMs)) return
  seen.delete(host)
  seen.set(host, { aheadMs: theirsMs - nowMs, atMs: nowMs })
  const [oldest] = seen.keys()
  if (seen.size > most) seen.delete(oldest!)
}

/** In milliseconds, for each host that answered within the last hour. */
export const seenClocks = (nowMs = Date.now()): number[] =>
  [...seen.values()].filter(({ atMs }) => Math.abs(nowMs - atMs) < keptMs).map(({ aheadMs }) => aheadMs)
