import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseCron } from './cron.ts'
import { nextTime } from './next-time.ts'

const next = (expression: string, timeZone: string, after: string): string | undefined =>
  nextTime(parseCron(expression)!, timeZone, new Date(after))?.toISOString()

test('the next time is the first whole minute later that fits, by the clocks of the zone', () => {
  const cases: [string, string, string, string | undefined][] = [
    ['* * * * *', 'Etc/UTC', '2026-01-01T00:00:00.000Z', '2026-01-01T00:01:00.000Z'],
    ['* * * * *', 'Etc/UTC', '2026-01-01T00:00:59.999Z', '2026-01-01T00:01:00.000Z'],
    ['0 3 * * *', 'Etc/UTC', '2026-01-01T03:00:00.000Z', '2026-01-02T03:00:00.000Z'],
    ['0 3 * * *', 'Europe/Paris', '2026-01-01T00:00:00.000Z', '2026-01-01T02:00:00.000Z'],
    ['0 3 * * *', 'Europe/Paris', '2026-07-01T00:00:00.000Z', '2026-07-01T01:00:00.000Z'],
    ['30 0 * * *', 'Asia/Kolkata', '2026-01-01T00:00:00.000Z', '2026-01-01T19:00:00.000Z'],
    ['*/15 9-17 * * MON-FRI', 'Etc/UTC', '2026-01-02T17:50:00.000Z', '2026-01-05T09:00:00.000Z'],
    ['0 0 29 2 *', 'Etc/UTC', '2026-01-01T00:00:00.000Z', '2028-02-29T00:00:00.000Z'],
    ['0 0 13 * FRI', 'Etc/UTC', '2026-01-03T00:00:00.000Z', '2026-01-09T00:00:00.000Z'],
    ['0 0 31 4 *', 'Etc/UTC', '2026-01-01T00:00:00.000Z', undefined],
    ['59 23 31 12 *', 'Pacific/Auckland', '2026-01-01T00:00:00.000Z', '2026-12-31T10:59:00.000Z'],
  ]
  for (const [expression, zone, after, expected] of cases)
    assert.equal(next(expression, zone, after), expected, `${expression} ${zone} after ${after}`)
})

test('a time that the clocks leave out waits for the next day, and one they show twice comes twice', () => {
  assert.equal(next('30 2 * * *', 'Europe/Paris', '2026-03-28T12:00:00Z'), '2026-03-30T00:30:00.000Z')
  assert.equal(next('30 2 * * *', 'Europe/Paris', '2026-10-24T12:00:00Z'), '2026-10-25T00:30:00.000Z')
  assert.equal(next('30 2 * * *', 'Europe/Paris', '2026-10-25T00:30:00Z'), '2026-10-25T01:30:00.000Z')
})

test('a daily time comes once a day all year, whatever the clocks do at night', () => {
  const cron = parseCron('5 0 * * *')!
  for (const timeZone of ['Europe/Paris', 'America/New_York', 'Australia/Lord_Howe']) {
    const format = new Intl.DateTimeFormat('en-GB', { timeZone, hour: '2-digit', minute: '2-digit' })
    let last = nextTime(cron, timeZone, new Date('2026-01-01T12:00:00Z'))!
    for (let day = 0; day < 366; day += 1) {
      const found = nextTime(cron, timeZone, last)!
      assert.equal(format.format(found), '00:05')
      const hours = (found.getTime() - last.getTime()) / 3_600_000
      assert.ok(hours >= 23 && hours <= 25, `${timeZone} ${found.toISOString()}`)
      last = found
    }
  }
})
