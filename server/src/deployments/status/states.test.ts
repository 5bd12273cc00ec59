import assert from 'node:assert/strict'
import { test } from 'node:test'
import { actionStatusOf, environmentStateOf, isFinal, stateOf } from './states.ts'

// The states of specification 3.2: a strict client refuses any other word.
const known = new Set(
  `BUILDING BUILD_ERROR CANCELED CANCELING DELETED DELETE_ERROR DELETE_QUEUED DELETING DEPLOYED DEPLOYING DEPLOYMENT_ERROR
  DEPLOYMENT_QUEUED READY RESTARTED RESTARTING RESTART_ERROR RESTART_QUEUED STOPPED STOPPING STOP_ERROR STOP_QUEUED`.split(
    /\s+/,
  ),
)
const actions = ['DEPLOY', 'RESTART', 'STOP', 'DELETE'] as const
const phases = ['queued', 'building', 'working', 'done', 'buildFailed', 'failed'] as const

test('every phase of every action shows a state of the specification', () => {
  for (const action of actions)
    for (const phase of phases) assert.ok(known.has(stateOf(action, phase)), `${action} ${phase}`)
})

test('a watcher sees a final state exactly when nothing is going on', () => {
  for (const action of actions)
    for (const phase of phases)
      assert.equal(
        isFinal(stateOf(action, phase)),
        ['done', 'buildFailed', 'failed'].includes(phase),
        `${action} ${phase}`,
      )
  assert.deepEqual(['READY', 'CANCELED', 'CANCELING'].map(isFinal), [true, true, false])
})

test('the status of an action follows its state', () => {
  const cases: Record<string, string> = {
    READY: 'NEVER',
    DEPLOYMENT_QUEUED: 'QUEUED',
    BUILDING: 'ONGOING',
    DEPLOYING: 'ONGOING',
    DEPLOYED: 'SUCCESS',
    BUILD_ERROR: 'ERROR',
    STOP_ERROR: 'ERROR',
    CANCELING: 'CANCELING',
    CANCELED: 'CANCELED',
  }
  for (const [state, expected] of Object.entries(cases)) assert.equal(actionStatusOf(state), expected, state)
})

test('an environment shows what is going on before what waits, and errors before successes', () => {
  const cases: [string[], string][] = [
    [[], 'READY'],
    [['DEPLOYED', 'DEPLOYED'], 'DEPLOYED'],
    [['DEPLOYED', 'DEPLOYMENT_QUEUED'], 'DEPLOYMENT_QUEUED'],
    [['BUILDING', 'DEPLOYMENT_QUEUED', 'BUILD_ERROR'], 'BUILDING'],
    [['DEPLOYED', 'BUILD_ERROR'], 'BUILD_ERROR'],
    [['READY', 'STOPPED'], 'STOPPED'],
    [['CANCELED', 'DEPLOYED'], 'CANCELED'],
    // A word of jobs that clients waiting for an environment do not know.
    [['EXECUTING', 'DEPLOYED'], 'DEPLOYING'],
  ]
  for (const [states, expected] of cases) assert.equal(environmentStateOf(states), expected, states.join())
})
