import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isDiskFull } from './disk-full.ts'

const errorWith = (message: string, more: object = {}): Error => Object.assign(new Error(message), more)

test('a full disk is recognized in messages of every program, and nothing else is', () => {
  const full = [
    errorWith('write', { code: 'ENOSPC' }),
    errorWith('could not extend file', { code: '53100' }),
    errorWith('Error processing tar file(exit status 1): write /x: no space left on device'),
    new Error('The step failed.', { cause: errorWith('write', { code: 'ENOSPC' }) }),
  ]
  for (const error of full) assert.ok(isDiskFull(error), error.message)
  for (const error of [errorWith('no such file', { code: 'ENOENT' }), new Error('a', { cause: 'ENOSPC' }), {}])
    assert.ok(!isDiskFull(error))
})
