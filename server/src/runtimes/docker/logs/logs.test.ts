import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { LogLine } from '../../runtime.ts'
import { createRepeatFilter } from './logs.ts'

const at = (second: number): string => `2026-01-01T00:00:${String(second).padStart(2, '0')}.000000000Z`
const line = (second: number, stream: LogLine['stream'] = 'stdout'): LogLine => ({
  at: at(second),
  text: String(second),
  stream,
  instance: 'one',
  revision: 'r',
})
const told = (now: number, lines: LogLine[]): string[] =>
  lines.filter(createRepeatFilter(() => at(now))).map(({ text, stream }) => `${stream === 'stderr' ? '!' : ''}${text}`)

test('lines repeated after an earlier one are left out, and the next new one is not', () => {
  assert.deepEqual(
    told(
      9,
      [1, 2, 3, 2, 3, 4, 5].map((second) => line(second)),
    ),
    ['1', '2', '3', '4', '5'],
  )
})

test('lines of one moment all come through, and the two streams do not hold each other back', () => {
  assert.deepEqual(told(9, [line(2), line(2), line(1, 'stderr'), line(2), line(3, 'stderr')]), [
    '2',
    '2',
    '!1',
    '2',
    '!3',
  ])
})

test('nothing is lost when the clock was set back', () => {
  assert.deepEqual(told(4, [line(8), line(3), line(4)]), ['8', '3', '4'])
})
