import assert from 'node:assert/strict'
import { test } from 'node:test'
import { environmentRunningState, instanceStateOf, type RunningState, serviceStateOf } from './running-status.ts'

test('a service is what was noted, on its way up before that, and on its way down while it is stopped', () => {
  const of = (running_state: string, deployment_state: string, ...states: ('running' | 'exited')[]) =>
    serviceStateOf(
      { running_state, deployment_state },
      states.map((state) => ({ state })),
    )
  assert.equal(of('RUNNING', 'DEPLOYED', 'running'), 'RUNNING')
  assert.equal(of('STOPPED', 'DEPLOYING', 'running'), 'STARTING')
  assert.equal(of('STOPPED', 'DEPLOYMENT_ERROR', 'exited'), 'STOPPED')
  assert.equal(of('RUNNING', 'STOPPING', 'running'), 'STOPPING')
  assert.equal(of('STOPPED', 'DELETING'), 'STOPPED')
  assert.equal(of('UNAVAILABLE', 'DEPLOYED'), 'WARNING')
})

test('an instance that ended well has stopped, one that did not has failed', () => {
  assert.equal(instanceStateOf({ state: 'exited', exitCode: 0 }), 'STOPPED')
  assert.equal(instanceStateOf({ state: 'exited', exitCode: 137 }), 'ERROR')
  assert.equal(instanceStateOf({ state: 'restarting', exitCode: 1 }), 'ERROR')
  assert.equal(instanceStateOf({ state: 'created', exitCode: null }), 'STARTING')
})

test('an environment runs when all that is there runs; one failure is a warning, nothing but failures an error', () => {
  const table: [RunningState[], RunningState][] = [
    [[], 'STOPPED'],
    [['RUNNING', 'RUNNING'], 'RUNNING'],
    [['RUNNING', 'ERROR'], 'WARNING'],
    [['ERROR', 'ERROR'], 'ERROR'],
    [['RUNNING', 'STARTING'], 'STARTING'],
    [['STOPPED', 'COMPLETED'], 'COMPLETED'],
    [['RUNNING', 'STOPPING'], 'STOPPING'],
  ]
  for (const [services, state] of table) assert.equal(environmentRunningState(services), state, services.join())
})
