import assert from 'node:assert/strict'
import { test } from 'node:test'
import { until } from '../../test/support/until.ts'
import { beginWork, type LongTurn, longTurnMs, noteWork, readLongTurns, watchTurns } from './loop-turns.ts'

/** Keeps the loop busy for longer than a turn may take. */
const block = (): void => {
  const end = performance.now() + longTurnMs + 50
  while (performance.now() < end);
}

test('a long turn is reported with what took most of it, and counted; waiting does not count', async () => {
  const turns: LongTurn[] = []
  const stop = watchTurns((turn) => turns.push(turn))
  const find = async (work: string): Promise<LongTurn> => {
    await until(() => turns.some((turn) => turn.work === work), { what: `a long turn of ${work}` })
    return turns.find((turn) => turn.work === work)!
  }
  const endOpen = beginWork('something slow')
  setImmediate(() => {
    noteWork('quick')
    noteWork('parsing')
    block()
    noteWork('another')
  })
  const { ms, open } = await find('parsing')
  assert.ok(ms >= longTurnMs)
  assert.deepEqual(open, ['something slow'])
  assert.equal(readLongTurns().get('parsing'), 1)
  // Work without a note of its own is named by how it ends.
  setImmediate(() => {
    block()
    endOpen()
  })
  await find('something slow')
  setImmediate(block)
  assert.deepEqual((await find('unknown')).open, [])
  stop()
})
