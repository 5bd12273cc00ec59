/** The time of a log query, as clients write it: nanoseconds, milliseconds, seconds or RFC 3339. Pure. */
import { badRequest } from '../../lib/errors.ts'

/** In nanoseconds since 1970: `from` is included, `to` is not. */
export interface TimeRange {
  from: bigint
  to: bigint
}

const maxDays = 31
const nsPerMs = 1_000_000n
const hour = 3_600_000n * nsPerMs
const latest = 253_402_300_800_000n * nsPerMs

const units: Record<string, bigint> = { s: 1000n * nsPerMs, m: 60_000n * nsPerMs, h: hour, d: 24n * hour }

const badTime = (name: string) =>
  badRequest(`${name}: must be a time in nanoseconds or seconds since 1970, or as RFC 3339`)

const readTime = (name: string, text: string): bigint => {
  if (/^\d{15,19}$/.test(text)) return BigInt(text)
  if (/^\d{12,14}$/.test(text)) return BigInt(text) * nsPerMs
  const [, seconds, fraction = ''] = /^(\d{1,11})(?:\.(\d{1,9}))?$/.exec(text) ?? []
  if (seconds !== undefined) return BigInt(seconds) * 1000n * nsPerMs + BigInt(fraction.padEnd(9, '0'))
  const [, plain, digits = '', zone] =
    /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/.exec(text) ?? []
  const ms = plain === undefined ? Number.NaN : Date.parse(`${plain}${zone}`)
  if (Number.isNaN(ms) || ms < 0) throw badTime(name)
  return BigInt(ms) * nsPerMs + BigInt(digits.padEnd(9, '0'))
}

const readDuration = (text: string): bigint => {
  const [, number, unit] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  if (unit === undefined) throw badRequest('since: must be a number with s, m, h or d, such as 30m')
  return BigInt(number!) * units[unit]!
}

/** By default the last hour. Throws a 400. */
export const readTimeRange = (
  { start, end, since }: { start?: string | undefined; end?: string | undefined; since?: string | undefined },
  now: Date,
): TimeRange => {
  const to = end === undefined ? BigInt(now.getTime() + 1) * nsPerMs : readTime('end', end)
  const before = since === undefined ? hour : readDuration(since)
  const from = start === undefined ? (to > before ? to - before : 0n) : readTime('start', start)
  if (to > latest) throw badTime('end')
  if (from >= to) throw badRequest('start: must be before end')
  if (to - from > BigInt(maxDays) * units.d!) throw badRequest(`start: must be at most ${maxDays} days before end`)
  return { from, to }
}

/** RFC 3339 with nine digits. */
export const toRfc3339 = (ns: bigint): string => {
  const seconds = new Date(Number(ns / nsPerMs)).toISOString().slice(0, 19)
  return `${seconds}.${String(ns % (1000n * nsPerMs)).padStart(9, '0')}Z`
}

/** The nanoseconds of an RFC 3339 time in UTC. */
export const toNanoseconds = (at: string): bigint => {
  const digits = /\.(\d{1,9})/.exec(at)?.[1] ?? ''
  return BigInt(Date.parse(`${at.slice(0, 19)}Z`)) * nsPerMs + BigInt(digits.padEnd(9, '0'))
}
