/** When a cron expression is next due in a time zone. Pure. */
import type { Cron } from './cron.ts'

const minuteMs = 60_000
const hourMs = 60 * minuteMs
const longestMs = 5 * 366 * 24 * hourMs

interface LocalTime {
  month: number
  day: number
  weekday: number
  hour: number
  minute: number
}

const createClock = (timeZone: string): ((at: number) => LocalTime) => {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  })
  return (at) => {
    const parts = Object.fromEntries(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]))
    const { year, month, day, hour, minute } = parts as Record<string, number>
    const weekday = new Date(Date.UTC(year!, month! - 1, day!)).getUTCDay()
    return { month: month!, day: day!, weekday, hour: hour!, minute: minute! }
  }
}

const fitsDay = ({ months, days, weekdays, eitherDay }: Cron, { month, day, weekday }: LocalTime): boolean => {
  if (!months.has(month)) return false
  const [byDay, byWeekday] = [days.has(day), weekdays.has(weekday)]
  return eitherDay ? byDay || byWeekday : byDay && byWeekday
}

/** The least distance to the next time that could match. Never past the end of a day shortened by a clock change. */
const stepMs = (cron: Cron, local: LocalTime): number => {
  const toNextHour = (60 - local.minute) * minuteMs
  if (!fitsDay(cron, local)) return toNextHour + Math.max(0, 21 - local.hour) * hourMs
  return cron.hours.has(local.hour) ? minuteMs : toNextHour
}

/**
 * The first whole minute after `after` that matches; null if there is none in five years. A time skipped by a clock
 * change is skipped that day, one that occurs twice matches twice.
 */
export const nextTime = (cron: Cron, timeZone: string, after: Date): Date | null => {
  const read = createClock(timeZone)
  const start = Math.floor(after.getTime() / minuteMs) * minuteMs + minuteMs
  for (let at = start; at < start + longestMs; ) {
    const local = read(at)
    if (fitsDay(cron, local) && cron.hours.has(local.hour) && cron.minutes.has(local.minute)) return new Date(at)
    at += stepMs(cron, local)
  }
  return null
}
