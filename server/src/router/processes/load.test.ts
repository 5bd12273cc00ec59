import assert from 'node:assert/strict'
import { test } from 'node:test'
import { route } from '../../../test/support/router/parts.ts'
import type { AnyRoute } from '../router.ts'
import { replaceService } from '../table/table.ts'
import { judgeLoad, judgeSheds, noTrend } from './load.ts'
import { changesBetween } from './workers.ts'

const numbers = { least: 1, most: 2 }
const said = (...busy: number[]) => busy.map((each) => ({ busy: each, clients: 10 }))

/** The decision at the last of so many equal checks. */
const after = (looks: number, busy: number[], among = numbers) => {
  let trend = noTrend
  let change = 0
  for (let look = 0; look < looks; look++) ({ trend, change } = judgeLoad(trend, said(...busy), among))
  return change
}

test('a process is added when all have been busy for two looks, up to the most', () => {
  assert.equal(after(1, [0.9]), 0)
  assert.equal(after(2, [0.9]), 1)
  assert.equal(after(2, [0.5]), 0)
  assert.equal(after(2, [0.9, 0.9]), 0)
  assert.equal(after(2, [0.9, 0.1], { least: 1, most: 3 }), 0)
})

test('a process leaves when fewer have been enough for five minutes, down to the least', () => {
  assert.equal(after(299, [0.1, 0.1]), 0)
  assert.equal(after(300, [0.1, 0.1]), -1)
  assert.equal(after(300, [0.2, 0.2]), 0)
  assert.equal(after(300, [0.1, 0.1], { least: 2, most: 2 }), 0)
})

test('a busy process with more clients than others gives some up, and no other one', () => {
  const all = [
    { busy: 0.9, clients: 32 },
    { busy: 0.1, clients: 0 },
  ]
  assert.deepEqual(judgeSheds(all), [4, 0])
  assert.deepEqual(judgeSheds(said(0.9, 0.9)), [0, 0])
  assert.deepEqual(judgeSheds([{ busy: 0.4, clients: 32 }, all[1]!]), [0, 0])
})

test('the change that others get makes their table the same, in its order', () => {
  const of = (serviceId: string): AnyRoute => route([], { serviceId, host: `${serviceId}.localhost` })
  const before = ['a', 'b', 'c', 'd'].map(of)
  const edits: [string, AnyRoute[]][] = [
    ['b', [of('b')]],
    ['e', [of('e'), of('e')]],
    ['a', []],
    ['b', [of('b')]],
  ]
  const edit = (all: readonly AnyRoute[], [id, own]: readonly [string, readonly AnyRoute[]]) =>
    replaceService(all, id, own)
  const next = edits.reduce<readonly AnyRoute[]>(edit, before)
  const told = changesBetween(before, next)
  assert.deepEqual(told.map(([id]) => id).sort(), ['a', 'b', 'e'])
  assert.deepEqual(told.reduce<readonly AnyRoute[]>(edit, before), next)
})
