import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decide, type Sample } from './rule.ts'

const windows = { upMs: 30_000, downMs: 300_000 }
const scaling = { min: 1, max: 10, cpuPercent: 60 }

/** Loads five seconds apart, the last one now. */
const samples = (loads: readonly number[]): Sample[] => loads.map((load, index) => ({ atMs: 5000 * index, load }))

const next = (now: number, loads: readonly number[], of = scaling): number =>
  decide(of, now, samples(loads), 5000 * (loads.length - 1), windows)

const times = (count: number, load: number): number[] => Array.from({ length: count }, () => load)

test('more instances come after a busy window, at most twice as many, and never more than the maximum', () => {
  assert.equal(next(1, times(3, 1)), 1, 'the window is not over')
  assert.equal(next(1, times(7, 1)), 2)
  assert.equal(next(2, times(7, 2)), 4)
  assert.equal(next(8, times(7, 8)), 10)
  assert.equal(next(4, times(7, 3)), 5, 'as many as meet the target')
  assert.equal(next(4, times(7, 2.5)), 4, 'a little above the target is no reason')
  assert.equal(next(1, [...times(6, 0.1), 1]), 1, 'a single peak is no reason')
})

test('fewer remain after a long calm window, at most half at once, and never fewer than the minimum', () => {
  assert.equal(next(4, times(60, 0.1)), 4, 'the window is not over')
  assert.equal(next(4, times(61, 0.1)), 2)
  assert.equal(next(2, times(61, 0.1)), 1)
  assert.equal(next(1, times(61, 0)), 1)
  assert.equal(next(2, times(61, 0), { ...scaling, min: 2 }), 2)
  assert.equal(next(1, times(61, 0), { ...scaling, min: 0 }), 1, 'only sleep leaves none')
  assert.equal(next(4, [...times(30, 0.1), 1.7, ...times(30, 0.1)]), 3, 'the most that any moment needed')
  assert.equal(next(4, times(61, 2.3)), 4)
})

test('whatever the load, what is decided is calm: the next decision about the same load changes nothing back', () => {
  for (let load = 0; load <= 8; load += 0.05)
    for (let now = 1; now <= 10; now += 1) {
      let [before, count] = [0, now]
      const seen: number[] = []
      for (let turn = 0; turn < 8 && before !== count; turn += 1) {
        before = count
        count = next(count, times(61, Math.min(load, count)))
        seen.push(count)
      }
      assert.equal(before, count, `load ${load} from ${now}: ${seen}`)
      assert.ok(count >= 1 && count <= 10)
    }
})

test('a changed minimum or maximum acts at once', () => {
  assert.equal(next(1, times(1, 0), { ...scaling, min: 3 }), 3)
  assert.equal(next(9, times(1, 9), { ...scaling, max: 4 }), 4)
})
