import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Ending, judge } from './verdict.ts'

const ending = (over: Partial<Ending>): Ending => ({ exits: 1, exitCode: 1, oomKilled: false, restarts: true, ...over })

const cases: [string, Partial<Ending>, RegExp | null][] = [
  ['runs', { exits: 0 }, null],
  ['runs after a child of it was killed', { exits: 0, oomKilled: true }, null],
  ['first end', {}, null],
  ['second end', { exits: 2 }, null],
  ['third end', { exits: 3, exitCode: 127 }, /crash_loop.*3 times.*exit code 127: the command was not found/],
  ['end without restart', { restarts: false, exitCode: 0 }, /crash_loop.*exit code 0: it exited without an error/],
  ['out of memory', { oomKilled: true, exitCode: 137 }, /out_of_memory.*64 MB/],
  ['unknown signal', { exits: 3, exitCode: 135 }, /killed by signal 7/],
  ['unknown code', { exits: 3, exitCode: 42 }, /exit code 42: the program reported an error/],
]

for (const [name, over, expected] of cases)
  test(`verdict: ${name}`, () => {
    const verdict = judge(ending(over), 64)
    if (expected === null) assert.equal(verdict, null)
    else assert.match(`${verdict?.code} ${verdict?.message}`, expected)
  })
