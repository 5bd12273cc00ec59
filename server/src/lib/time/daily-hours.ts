/** Hours on some days of the week: when they begin and end next. Pure. */
import { parseCron } from './cron.ts'
import { nextTime } from './next-time.ts'

export interface DailyHours {
  timezone: string
  /** RFC 3339, of which only the time of day as it is written counts; likewise `stop_time`. */
  start_time: string
  /** Not later than `start_time`: on the day after. */
  stop_time: string
  /** Days on which they begin: MONDAY … SUNDAY. */
  weekdays: readonly string[]
}

/** From Sunday, as a cron expression counts. */
const days = ['SUNDAY', 'MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY']

export const timeOfDay = (text: string): string => /T(\d{2}:\d{2})/i.exec(text)?.[1] ?? '00:00'

const nextAt = (time: string, weekdays: readonly number[], timezone: string, now: Date): Date | null => {
  const [hour, minute] = time.split(':').map(Number)
  const cron = weekdays.length === 0 ? null : parseCron(`${minute} ${hour} * * ${weekdays.join(',')}`)
  return cron === null ? null : nextTime(cron, timezone, now)
}

/** Whether they include this time, and when that changes next; null if they never begin. */
export const readHours = (hours: DailyHours, now: Date): { open: boolean; nextAt: Date } | null => {
  const [start, stop] = [timeOfDay(hours.start_time), timeOfDay(hours.stop_time)]
  const begin = hours.weekdays.map((day) => days.indexOf(day))
  const end = stop > start ? begin : begin.map((day) => (day + 1) % days.length)
  const [opens, closes] = [nextAt(start, begin, hours.timezone, now), nextAt(stop, end, hours.timezone, now)]
  if (opens === null || closes === null) return null
  return closes < opens ? { open: true, nextAt: closes } : { open: false, nextAt: opens }
}
