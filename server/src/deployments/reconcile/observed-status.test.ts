import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Instance } from '../../runtimes/runtime.ts'
import { isStatusChanged, type Known, observedOf } from './observed-status.ts'

const service: Known = {
  ...{ serviceId: 's', desired: 'RUNNING', instances: 2, memoryMb: 64, runningState: 'RUNNING' },
  ...{ problem: null, restarts: null, wakeError: null, hasTask: false, hasChart: false },
}
const instance = (more: Partial<Instance> = {}): Instance => ({
  ...{ id: 'i', name: 'i', organizationId: 'o', environmentId: 'e', serviceId: 's', revision: 'r', index: 0 },
  ...{ state: 'running', exitCode: null, oomKilled: false, restarts: 0, startedAt: null, ports: [], ...more },
})

test('an instance that runs with something wrong is an error of the status, for as long as it is so', () => {
  const trouble = { message: 'It has lost its network.', needsNew: true }
  const problem = { code: 'instance_failing', message: trouble.message }
  const one = observedOf(service, [instance({ trouble }), instance()])
  assert.deepEqual([one.state, one.problem], ['WARNING', problem])
  const both = observedOf(service, [instance({ trouble }), instance({ trouble })])
  assert.deepEqual([both.state, both.problem], ['ERROR', problem])
  assert.equal(isStatusChanged(service, one), true)
  const mended = observedOf({ ...service, runningState: 'WARNING', problem }, [instance(), instance()])
  assert.deepEqual([mended.state, mended.problem], ['RUNNING', null])
})
