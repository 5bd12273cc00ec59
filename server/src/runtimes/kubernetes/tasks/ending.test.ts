import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Pod } from '../pods.ts'
import { endingOf } from './ending.ts'

const pod = (status: Pod['status']): Pod => ({ metadata: { name: 'pod' }, ...(status && { status }) })

test('an execution whose time is over before its program began has timed out', () => {
  assert.deepEqual(endingOf(pod({ phase: 'Failed', reason: 'DeadlineExceeded' })), {
    ...{ exitCode: 137, oomKilled: false, timedOut: true, left: null },
  })
  assert.equal(endingOf(pod({ phase: 'Running', reason: 'DeadlineExceeded' })), null)
  assert.equal(endingOf(pod({ phase: 'Failed', reason: 'Evicted' })), null)
  const terminated = { exitCode: 143, reason: 'Error', message: 'left' }
  const ended = pod({
    phase: 'Failed',
    reason: 'DeadlineExceeded',
    containerStatuses: [{ name: 'main', state: { terminated } }],
  })
  assert.deepEqual(endingOf(ended), { exitCode: 143, oomKilled: false, timedOut: true, left: 'left' })
})
