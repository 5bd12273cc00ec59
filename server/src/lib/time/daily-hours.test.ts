import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type DailyHours, readHours } from './daily-hours.ts'

const at = (time: string): string => `1970-01-01T${time}:00.000Z`
const office = { start_time: at('08:00'), stop_time: at('19:00'), timezone: 'UTC', weekdays: ['MONDAY', 'FRIDAY'] }

const look = (hours: DailyHours, now: string): string => {
  const found = readHours(hours, new Date(now))
  return found === null ? 'never' : `${found.open ? 'open' : 'closed'} until ${found.nextAt.toISOString().slice(0, 16)}`
}

test('each day of the week is the day on which the hours begin', () => {
  const week = ['MONDAY', 'TUESDAY', 'WEDNESDAY', 'THURSDAY', 'FRIDAY', 'SATURDAY', 'SUNDAY']
  // 2026-11-23 is a Monday.
  for (const [index, day] of week.entries())
    assert.equal(
      look({ ...office, weekdays: [day] }, '2026-11-22T20:00:00Z'),
      `closed until 2026-11-${23 + index}T08:00`,
    )
})

test('hours begin and end on their days, in their time zone, over midnight and through a change of the clocks', () => {
  const night = { ...office, start_time: at('22:00'), stop_time: at('06:00') }
  const paris = { ...office, timezone: 'Europe/Paris', weekdays: ['SATURDAY', 'SUNDAY', 'MONDAY'] }
  for (const [hours, now, expected] of [
    // A Friday.
    [office, '2026-11-20T07:59:59Z', 'closed until 2026-11-20T08:00'],
    [office, '2026-11-20T08:00:00Z', 'open until 2026-11-20T19:00'],
    [office, '2026-11-20T19:00:00Z', 'closed until 2026-11-23T08:00'],
    [night, '2026-11-20T23:00:00Z', 'open until 2026-11-21T06:00'],
    [night, '2026-11-21T06:00:00Z', 'closed until 2026-11-23T22:00'],
    [paris, '2026-11-21T07:30:00Z', 'open until 2026-11-21T18:00'],
    // The clocks went back in that night.
    [paris, '2026-10-24T17:00:00Z', 'closed until 2026-10-25T07:00'],
    [{ ...office, weekdays: [] }, '2026-11-20T08:00:00Z', 'never'],
  ] as const)
    assert.equal(look(hours, now), expected)
})
