import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isTimeZone, parseCron } from './cron.ts'

const sorted = (set: ReadonlySet<number>): number[] => [...set].sort((a, b) => a - b)

test('fields take numbers, names, lists, ranges and steps', () => {
  const cron = parseCron('*/20 8-10,22 1,15 jan-mar/2 MON-FRI')!
  assert.deepEqual([cron.minutes, cron.hours, cron.days, cron.months, cron.weekdays].map(sorted), [
    [0, 20, 40],
    [8, 9, 10, 22],
    [1, 15],
    [1, 3],
    [1, 2, 3, 4, 5],
  ])
  assert.equal(cron.eitherDay, true)
  assert.deepEqual(sorted(parseCron('5/25 0 * * 7')!.minutes), [5, 30, 55])
  assert.deepEqual(sorted(parseCron('0 0 * * 7')!.weekdays), [0])
  assert.equal(parseCron('0 0 1 * *')!.eitherDay, false)
  assert.deepEqual(parseCron('@daily'), parseCron('0 0 * * *'))
})

test('anything but an expression of five fields is invalid', () => {
  for (const text of ['', '* * * *', '* * * * * *', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * * 13 *', '* * * * 8'])
    assert.equal(parseCron(text), null, text)
  for (const text of [
    'a * * * *',
    '1-a * * * *',
    '5-1 * * * *',
    '*/0 * * * *',
    '1,,2 * * * *',
    '1-2-3 * * * *',
    '-1 * * * *',
    'constructor',
    '__proto__',
  ])
    assert.equal(parseCron(text), null, text)
})

test('time zones are those of the database, not offsets', () => {
  for (const name of ['Etc/UTC', 'UTC', 'Europe/Paris', 'America/Argentina/Buenos_Aires'])
    assert.ok(isTimeZone(name), name)
  for (const name of ['', '+01:00', 'Mars/Olympus', '../UTC']) assert.ok(!isTimeZone(name), name)
})
