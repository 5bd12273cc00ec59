/** When a server that rate-limits us answers again, from its headers. Pure: the headers are not trusted. */

export type Headers = Readonly<Record<string, string | undefined>>

/** Longer waits than a day are not those of a rate limit. */
const maxWaitMs = 24 * 3_600_000
/** A number above this is a second of the clock (since 1970), below it a number of seconds to wait. */
const firstEpochSecond = 1e9

const msUntil = (text: string | undefined, nowMs: number): number => {
  if (text === undefined || text.trim() === '') return 0
  const number = Number(text)
  const atMs = Number.isNaN(number) ? Date.parse(text) : number * 1000
  return Number.isNaN(number) || number >= firstEpochSecond ? atMs - nowMs : atMs
}

/** From `Retry-After` (seconds or a date), `X-RateLimit-Reset` or `RateLimit-Reset`; 0 if they say nothing usable. */
export const rateLimitWaitMs = (headers: Headers, nowMs: number): number => {
  for (const name of ['retry-after', 'x-ratelimit-reset', 'ratelimit-reset']) {
    const waitMs = msUntil(headers[name], nowMs)
    if (waitMs > 0 && waitMs <= maxWaitMs) return waitMs
  }
  return 0
}

export const isRateLimited = (status: number, headers: Headers): boolean =>
  status === 429 ||
  (status === 403 &&
    (headers['retry-after'] !== undefined ||
      headers['x-ratelimit-remaining'] === '0' ||
      headers['ratelimit-remaining'] === '0'))

/** ` until 2026-03-01 12:00:30 UTC`; '' if the headers do not say when the limit ends. */
export const untilWhen = (headers: Headers, nowMs: number): string => {
  const waitMs = rateLimitWaitMs(headers, nowMs)
  if (waitMs === 0) return ''
  const at = new Date(Math.ceil((nowMs + waitMs) / 1000) * 1000).toISOString()
  return ` until ${at.slice(0, 10)} ${at.slice(11, 19)} UTC`
}
