import assert from 'node:assert/strict'
import { test } from 'node:test'
import { standIn } from '../../../test/support/stand-in.ts'
import { Secret } from '../../lib/secret.ts'
import type { Workload } from '../../runtimes/runtime.ts'
import type { TaskEvent, TaskSpec } from '../deployments.ts'
import { createTail, toTask } from './tasks.ts'

const workload = standIn<Workload>({ env: new Secret({ OWN: '1' }), files: new Secret([]), volumes: [] })
const environmentOf = (event: TaskEvent, more: Partial<TaskSpec> = {}) => {
  const spec: TaskSpec = { on: {}, cron: null, maxRestarts: 0, timeoutMs: 1, ...more }
  return toTask(workload, { name: 'main', spec, event }, 'id').env.reveal()
}

test('a job can read why it runs, under both prefixes; a task with a state cannot', () => {
  for (const event of ['START', 'STOP', 'DELETE', 'CRON'] as const)
    assert.deepEqual(environmentOf(event), { OWN: '1', SLIPWAY_JOB_ACTION: event, QOVERY_JOB_ACTION: event })
  assert.deepEqual(environmentOf('START', { state: 'HERE' }), { OWN: '1' })
  assert.deepEqual(environmentOf('PLAN'), { OWN: '1' })
})

test('a secret of several lines is hidden when it is printed line by line', () => {
  const body = ['MIIEvQIBADANBgkqhkiG9w0BAQEF', 'AASCBKcwggSjAgEAAoIBAQC7VJTU']
  const shown: string[] = []
  const tail = createTail([`-----BEGIN PRIVATE KEY-----\n${body.join('\n')}\n-----END PRIVATE KEY-----\n`], (line) =>
    shown.push(line),
  )
  for (const line of ['-----BEGIN PRIVATE KEY-----', ...body.map((each) => `  ${each}`), 'done']) tail.add(line)
  assert.deepEqual(shown, ['-----BEGIN PRIVATE KEY-----', '  ***', '  ***', 'done'])
})
