import assert from 'node:assert/strict'
import { test } from 'node:test'
import { createReports, differenceOf, mostTables } from './reports.ts'

const rows = (of: Record<string, number>) => new Map(Object.entries(of))

test('lines of the scripts and those of the programs are kept apart', () => {
  const reports = createReports()
  const lines = [
    'slipway:before\t12\tshop.public.orders',
    'slipway:before\tx\tshop',
    'slipway:done',
    'psql: error: no',
    '',
  ]
  for (const line of lines) reports.add(line)
  assert.deepEqual(reports.rows('before'), rows({ 'shop.public.orders': 12 }))
  assert.deepEqual([reports.isDone(), reports.isOccupied(), reports.isCut()], [true, false, false])
  assert.deepEqual(reports.said(), ['slipway:before\tx\tshop', 'psql: error: no'])
})

test('of too many tables and lines only the first are kept', () => {
  const reports = createReports()
  for (let index = 0; index <= mostTables; index++) reports.add(`slipway:found\t1\tt${index}`)
  for (let index = 0; index < 1000; index++) reports.add('a'.repeat(10_000))
  assert.equal(reports.rows('found').size, mostTables)
  assert.ok(reports.isCut())
  assert.ok(reports.said().join('').length <= 20 * 500)
})

test('a load is what was dumped, or its first difference is named', () => {
  const before = rows({ a: 1, b: 5, dropped: 3 })
  const after = rows({ a: 1, b: 9, made: 2 })
  const cases: [Record<string, number>, string | null][] = [
    [{ a: 1, b: 5 }, null],
    [{ a: 1, b: 9, made: 2, dropped: 3 }, null],
    [{ a: 1, b: 7 }, null],
    [{ a: 0, b: 7 }, 'a has 0 rows instead of 1.'],
    [{ a: 1, b: 10 }, 'b has 10 rows instead of 5 to 9.'],
    [{ b: 7 }, 'a is missing: it had 1 row.'],
    [{ a: 1, b: 7, other: 0 }, 'other is in the backup, but was not in the database.'],
  ]
  for (const [found, wanted] of cases) assert.equal(differenceOf({ before, after }, rows(found)), wanted)
})
