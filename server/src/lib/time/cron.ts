/** Cron expressions of five fields: minute, hour, day of the month, month, day of the week. Pure. */

export interface Cron {
  minutes: ReadonlySet<number>
  hours: ReadonlySet<number>
  days: ReadonlySet<number>
  months: ReadonlySet<number>
  /** 0 is Sunday. */
  weekdays: ReadonlySet<number>
  /** A day must match both fields unless both are restricted: then one of them is enough. */
  eitherDay: boolean
}

const monthNames = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
const dayNames = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']

interface Field {
  from: number
  to: number
  names?: readonly string[]
}

const fields: readonly Field[] = [
  { from: 0, to: 59 },
  { from: 0, to: 23 },
  { from: 1, to: 31 },
  { from: 1, to: 12, names: monthNames },
  { from: 0, to: 7, names: dayNames },
]

const shortcuts: ReadonlyMap<string, string> = new Map([
  ['@yearly', '0 0 1 1 *'],
  ['@annually', '0 0 1 1 *'],
  ['@monthly', '0 0 1 * *'],
  ['@weekly', '0 0 * * 0'],
  ['@daily', '0 0 * * *'],
  ['@midnight', '0 0 * * *'],
  ['@hourly', '0 * * * *'],
])

const numberOf = (text: string, { from, names }: Field): number => {
  const named = names?.indexOf(text.toUpperCase()) ?? -1
  if (named !== -1) return named + from
  return /^\d{1,2}$/.test(text) ? Number(text) : Number.NaN
}

/** The numbers of one part of a list: a star, a number or a range, each optionally with a step; null if invalid. */
const readPart = (text: string, field: Field): number[] | null => {
  const [, range = '', step] = /^([^/]+)(?:\/(\d{1,2}))?$/.exec(text) ?? []
  const [low = '', high, more] = range.split('-')
  const isStar = range === '*' || range === '?'
  const first = isStar ? field.from : numberOf(low, field)
  // A number with a step continues to the end: `5/15`.
  const last = isStar || (high === undefined && step !== undefined) ? field.to : numberOf(high ?? low, field)
  const every = step === undefined ? 1 : Number(step)
  if (more !== undefined || !(first >= field.from && last <= field.to && first <= last && every > 0)) return null
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, index) => first + index * every)
}

const readField = (text: string, field: Field): Set<number> | null => {
  const parts = text.split(',').map((part) => readPart(part, field))
  return parts.includes(null) ? null : new Set(parts.flat() as number[])
}

const isOpen = (text: string): boolean => text.startsWith('*') || text.startsWith('?')

export const parseCron = (text: string): Cron | null => {
  const words = (shortcuts.get(text.trim().toLowerCase()) ?? text).trim().split(/\s+/)
  const sets = words.map((word, index) => (index < fields.length ? readField(word, fields[index]!) : null))
  if (sets.length !== fields.length || sets.includes(null)) return null
  const [minutes, hours, days, months, weekdays] = sets as Set<number>[]
  const week = new Set([...weekdays!].map((day) => day % 7))
  const eitherDay = !isOpen(words[2]!) && !isOpen(words[4]!)
  return { minutes: minutes!, hours: hours!, days: days!, months: months!, weekdays: week, eitherDay }
}

export const isTimeZone = (name: string): boolean => {
  try {
    return /^[A-Za-z]/.test(name) && new Intl.DateTimeFormat('en', { timeZone: name }) !== null
  } catch {
    return false
  }
}
