import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Aged, expiredOf } from './retention.ts'

const none = { last: 0, daily: 0, weekly: 0, monthly: 0 }
const at = (time: string, isGood = true): Aged => ({ id: time, at: new Date(time), isGood })
const kept = (backups: Aged[], keep: Partial<typeof none>, timeZone = 'UTC'): string[] => {
  const expired = new Set(expiredOf(backups, { ...none, ...keep }, timeZone))
  return backups.filter(({ id }) => !expired.has(id)).map(({ id }) => id)
}

const days = [
  ...['2026-01-31T02:00Z', '2026-02-01T02:00Z', '2026-02-01T20:00Z', '2026-02-02T02:00Z', '2026-02-08T02:00Z'],
  ...['2026-02-09T02:00Z', '2026-03-01T02:00Z'],
].map((time) => at(time))

test('the last ones, and the newest of each day, week and month are kept', () => {
  assert.deepEqual(kept(days, { last: 2 }), ['2026-02-09T02:00Z', '2026-03-01T02:00Z'])
  assert.deepEqual(kept(days, { daily: 5 }), [
    ...['2026-02-01T20:00Z', '2026-02-02T02:00Z', '2026-02-08T02:00Z', '2026-02-09T02:00Z', '2026-03-01T02:00Z'],
  ])
  // The weeks of 23 February, 9 February and 2 February, which begin on Mondays.
  assert.deepEqual(kept(days, { weekly: 3 }), ['2026-02-08T02:00Z', '2026-02-09T02:00Z', '2026-03-01T02:00Z'])
  assert.deepEqual(kept(days, { monthly: 9 }), ['2026-01-31T02:00Z', '2026-02-09T02:00Z', '2026-03-01T02:00Z'])
  assert.deepEqual(kept(days, { last: 1, daily: 2, monthly: 2 }), ['2026-02-09T02:00Z', '2026-03-01T02:00Z'])
})

test('days are those of the time zone', () => {
  const two = [at('2026-02-01T22:30Z'), at('2026-02-01T23:30Z')]
  assert.deepEqual(kept(two, { daily: 5 }), ['2026-02-01T23:30Z'])
  assert.deepEqual(kept(two, { daily: 5 }, 'Europe/Berlin'), ['2026-02-01T22:30Z', '2026-02-01T23:30Z'])
})

test('the newest verified one always stays, and what could not be verified since', () => {
  assert.deepEqual(kept(days, {}), ['2026-03-01T02:00Z'])
  const bad = [at('2026-01-01T00:00Z', false), at('2026-01-02T00:00Z'), at('2026-01-03T00:00Z', false)]
  assert.deepEqual(kept(bad, { last: 1 }), ['2026-01-02T00:00Z', '2026-01-03T00:00Z'])
  assert.deepEqual(kept([at('2026-01-01T00:00Z', false)], {}), ['2026-01-01T00:00Z'])
})
