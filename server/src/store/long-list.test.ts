import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { toTimestamp } from './long-list.ts'

test('a timestamp keeps its milliseconds, whatever trailing zeros the database leaves out', () => {
  const instant = fc.date({ min: new Date(0), max: new Date('9999-12-31T00:00:00Z'), noInvalidDate: true })
  fc.assert(
    fc.property(instant, fc.integer({ min: 0, max: 999 }), (date, micros) => {
      const digits = `${date.toISOString().slice(20, 23)}${String(micros).padStart(3, '0')}`.replace(/0+$/, '')
      const text = date.toISOString().slice(0, 19).replace('T', ' ') + (digits === '' ? '' : `.${digits}`)
      assert.equal(toTimestamp(text), date.toISOString())
    }),
  )
})
