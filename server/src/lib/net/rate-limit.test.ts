import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Headers, isRateLimited, rateLimitWaitMs, untilWhen } from './rate-limit.ts'

const nowMs = Date.parse('2026-03-01T12:00:00Z')
const epoch = (seconds: number): string => String(nowMs / 1000 + seconds)

test('the end of a rate limit is read from each form in which servers send it', () => {
  const cases: [Headers, number][] = [
    [{ 'retry-after': '30' }, 30_000],
    [{ 'retry-after': 'Sun, 01 Mar 2026 12:01:00 GMT' }, 60_000],
    [{ 'x-ratelimit-reset': epoch(90) }, 90_000],
    [{ 'ratelimit-reset': epoch(90) }, 90_000],
    [{ 'ratelimit-reset': '12' }, 12_000],
    [{ 'retry-after': '0', 'x-ratelimit-reset': epoch(5) }, 5_000],
    [{ 'retry-after': 'soon' }, 0],
    [{ 'retry-after': '-5' }, 0],
    [{ 'retry-after': '1e300' }, 0],
    [{ 'retry-after': '' }, 0],
    [{ 'x-ratelimit-reset': epoch(-90) }, 0],
    [{}, 0],
  ]
  for (const [headers, waitMs] of cases) assert.equal(rateLimitWaitMs(headers, nowMs), waitMs, JSON.stringify(headers))
  assert.equal(untilWhen({ 'retry-after': '30' }, nowMs), ' until 2026-03-01 12:00:30 UTC')
  assert.equal(untilWhen({}, nowMs), '')
})

test('a 403 counts as a rate limit only if its headers say so', () => {
  assert.equal(isRateLimited(429, {}), true)
  assert.equal(isRateLimited(403, {}), false)
  assert.equal(isRateLimited(403, { 'x-ratelimit-remaining': '0' }), true)
  assert.equal(isRateLimited(403, { 'retry-after': '60' }), true)
  assert.equal(isRateLimited(403, { 'x-ratelimit-remaining': '12' }), false)
  assert.equal(isRateLimited(401, { 'retry-after': '60' }), false)
})
