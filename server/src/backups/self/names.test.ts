import assert from 'node:assert/strict'
import { test } from 'node:test'
import { parseBucket } from './bucket-address.ts'
import { beyondKept, nameOf, parseName } from './names.ts'

const writer = '0123abcd0123abcd01234567'
const at = (day: number): Date => new Date(Date.UTC(2026, 10, day, 3, 0, 7, 999))

test('the name of a backup says when it was made and by which server, and sorts by time', () => {
  assert.equal(nameOf(at(8), writer), 'slipway-20261108T030007Z-0123abcd.age')
  assert.equal(nameOf(at(8), null), 'slipway-20261108T030007Z-by-hand.age')
  assert.deepEqual(parseName(nameOf(at(8), writer)), {
    name: 'slipway-20261108T030007Z-0123abcd.age',
    time: '20261108T030007Z',
    writer: '0123abcd',
  })
  assert.equal(parseName(nameOf(at(8), null))!.writer, null)
  for (const other of ['slipway-20261108T030007Z-0123abcd.age.part', 'notes.txt', 'slipway-2026-0123abcd.age', ''])
    assert.equal(parseName(other), null)
})

test('of this server the newest are kept; those of others and by hand are never removed', () => {
  const own = [9, 8, 10].map((day) => nameOf(at(day), writer))
  const others = [nameOf(at(1), null), nameOf(at(1), 'ffffffffffffffffffffffff'), 'notes.txt']
  const names = [...own, ...others]
  assert.deepEqual(beyondKept(names, writer, 2), [nameOf(at(8), writer)])
  assert.deepEqual(beyondKept(names, writer, 1), [nameOf(at(9), writer), nameOf(at(8), writer)])
  assert.deepEqual(beyondKept(names, writer, 3), [])
  assert.deepEqual(beyondKept(names, writer, 0), [])
})

test('the address of a bucket is read, a folder is none, and other addresses are refused', () => {
  assert.deepEqual(parseBucket('s3://bucket'), { bucket: 'bucket', prefix: '' })
  assert.deepEqual(parseBucket('s3://my.bucket/of/slipway/'), { bucket: 'my.bucket', prefix: 'of/slipway/' })
  for (const folder of ['/mnt/backups', 'backups', './s3:x']) assert.equal(parseBucket(folder), null)
  for (const wrong of ['s3://', 's3://B', 's3:///x', 'ftp://host/x', 's3://bucket/../x'])
    assert.throws(() => parseBucket(wrong), /must be a folder, or the address of a bucket/, wrong)
})
