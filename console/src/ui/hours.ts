/** The hours in which an environment runs, in its own rule and in those of its project. */
import type { FieldSpec, Values } from './record-form.tsx'

const dayWord = (day: string): string => day.charAt(0) + day.slice(1).toLowerCase()

const workdays = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY']
const days = [...workdays, 'SATURDAY', 'SUNDAY'].map((value) => ({ value, label: dayWord(value) }))

const isTimed = (values: Values): boolean => values['/auto_stop'] === true

/** The defaults of a new rule. */
export const usualHours = {
  start_time: '08:00',
  stop_time: '19:00',
  weekdays: workdays,
  timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
}

export const hourFields: readonly FieldSpec[] = [
  { at: '/auto_stop', label: 'Runs only at certain hours, and is stopped outside them', kind: 'switch' },
  {
    at: '/start_time',
    label: 'Starts at',
    placeholder: '08:00',
    isRequired: true,
    initial: usualHours.start_time,
    when: isTimed,
  },
  {
    at: '/stop_time',
    label: 'Stops at',
    placeholder: '19:00',
    hint: 'On the following day, if it is not later than the start.',
    isRequired: true,
    initial: usualHours.stop_time,
    when: isTimed,
  },
  {
    at: '/weekdays',
    label: 'On',
    kind: 'many',
    options: days,
    isRequired: true,
    initial: usualHours.weekdays,
    when: isTimed,
  },
  {
    at: '/timezone',
    label: 'Time zone',
    placeholder: 'Europe/Paris',
    isRequired: true,
    initial: usualHours.timezone,
    when: isTimed,
  },
]

interface Hours {
  auto_stop?: boolean | undefined
  start_time: string
  stop_time: string
  weekdays: readonly string[]
  timezone: string
}

/** A time of a rule as the time of day. */
const timeOf = (moment: string): string => /T(\d\d:\d\d)/.exec(moment)?.[1] ?? moment

/** A rule as its form shows it. */
export const asShown = <T extends Hours>(rule: T): T => ({
  ...rule,
  start_time: timeOf(rule.start_time),
  stop_time: timeOf(rule.stop_time),
})

const times = ['start_time', 'stop_time']

/** The values of a form in the format of a rule. */
export const asSent = (body: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(body).map(([name, value]) => [
      name,
      times.includes(name) && /^\d\d:\d\d$/.test(String(value)) ? `1970-01-01T${String(value)}:00.000Z` : value,
    ]),
  )

export const hoursOf = ({ auto_stop, weekdays, start_time, stop_time, timezone }: Hours): string =>
  auto_stop === true
    ? `${weekdays.map(dayWord).join(', ')}, ${timeOf(start_time)} to ${timeOf(stop_time)} (${timezone})`
    : 'always'
