import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Beginning, difference, type End, type Found, readBeginning, readEnd } from './manifest.ts'

const hash = 'a'.repeat(64)
const beginning: Beginning = {
  ...{ format: 1, made_at: '2026-11-28T03:00:00.000Z', slipway: '0.1.0', data_directory: '/x', host: 'h' },
  ...{ migrations: ['0001-first-tables.sql'], environment: [] },
  tables: [{ name: 'node', columns: ['id'] }],
}
const end: End = {
  tables: [{ name: 'node', rows: 2, bytes: 9, sha256: hash }],
  files: [{ name: 'keys/master', bytes: 45, sha256: hash }],
  sequences: [{ name: 'outside_port_draw', value: '7' }],
}
const found = (table: object, file: object = {}): Found => ({
  tables: new Map([['node', { rows: 2, bytes: 9, sha256: hash, ...table }]]),
  files: new Map([['keys/master', { bytes: 45, sha256: hash, ...file }]]),
})

test('a backup is as its list says, or the first difference is named', () => {
  assert.equal(difference(beginning, end, found({})), null)
  for (const table of [{ rows: 3 }, { bytes: 8 }, { sha256: 'b'.repeat(64) }])
    assert.match(difference(beginning, end, found(table))!, /^the table node does not have the 2 rows/)
  assert.match(difference(beginning, end, found({}, { bytes: 1 }))!, /^the file keys\/master is not as/)
  assert.match(difference(beginning, { ...end, tables: [] }, found({}))!, /^the table node is not in its list/)
  assert.match(difference(beginning, { ...end, files: [] }, found({}))!, /^it has a file that is not in its list/)
  const none: Found = { tables: found({}).tables, files: new Map() }
  assert.match(difference(beginning, end, none)!, /^the file keys\/master/)
})

test('what a backup says of itself is read as it was written, and nothing else is', () => {
  assert.deepEqual(readBeginning(JSON.stringify(beginning)), beginning)
  assert.deepEqual(readEnd(JSON.stringify(end)), end)
  const wrong: object[] = [
    {},
    { ...beginning, format: 2 },
    { ...beginning, migrations: [] },
    { ...beginning, migrations: ['../../x.sql'] },
    { ...beginning, tables: [{ name: 'node"; drop table node; --', columns: ['id'] }] },
    { ...beginning, tables: [{ name: 'node', columns: ['id) from program'] }] },
  ]
  for (const each of wrong) assert.throws(() => readBeginning(JSON.stringify(each)), /not of a form/)
  const file = { name: '../../etc/passwd', bytes: 1, sha256: hash }
  for (const each of [{}, { ...end, files: [file] }, { ...end, sequences: [{ name: 'a', value: '1; x' }] }])
    assert.throws(() => readEnd(JSON.stringify(each)), /not of a form/)
  assert.throws(() => readBeginning('no JSON'), /is not JSON/)
})
