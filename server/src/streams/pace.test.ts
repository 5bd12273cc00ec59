import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createFakeClock } from '../../test/support/fake-clock.ts'
import { createPace } from './pace.ts'

const never = new AbortController().signal

test('streams of one pace share what it gives in a second, in turns, and one that leaves holds up none', async () => {
  const clock = createFakeClock()
  const pace = createPace(clock, 1000, 2000)
  const taken = [0, 0, 0]
  const ends = new AbortController()
  const read = async (stream: number, signal: AbortSignal): Promise<void> => {
    while (!signal.aborted) {
      await pace.take(100, signal)
      taken[stream]! += 100
    }
  }
  const reading = taken.map((_, stream) => read(stream, ends.signal))
  for (let turn = 0; turn < 20; turn += 1) await clock.rest()
  assert.equal(
    taken.reduce((sum, each) => sum + each, 0),
    2000,
  )
  await clock.advance(3000)
  const sum = taken.reduce((all, each) => all + each, 0)
  assert.ok(sum >= 4900 && sum <= 5200, String(sum))
  assert.ok(Math.max(...taken) - Math.min(...taken) <= 100, taken.join())
  ends.abort()
  await Promise.all(reading)
  const waiting = pace.take(100, never)
  await clock.advance(1000)
  await waiting
})
