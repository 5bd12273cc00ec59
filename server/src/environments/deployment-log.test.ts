import assert from 'node:assert/strict'
import { test } from 'node:test'
import { publicLogStep } from './deployment-log.ts'

const cases: [step: string, action: string | null, state: string | null, expected: string][] = [
  ['source', 'DEPLOY', 'BUILDING', 'Build'],
  ['image', 'DEPLOY', 'BUILDING', 'Build'],
  ['output', 'DEPLOY', 'BUILDING', 'Build'],
  ['built', 'DEPLOY', 'BUILDING', 'Built'],
  ['error', 'DEPLOY', 'BUILDING', 'BuiltError'],
  ['error', 'DEPLOY', 'BUILD_ERROR', 'BuiltError'],
  ['pull', 'DEPLOY', 'DEPLOYING', 'Deploy'],
  ['start', 'DEPLOY', 'DEPLOYING', 'Deploy'],
  ['ready', 'DEPLOY', 'DEPLOYED', 'Deploy'],
  ['done', 'DEPLOY', 'DEPLOYED', 'Deployed'],
  ['compare', 'DEPLOY', 'DEPLOYED', 'Deployed'],
  ['error', 'DEPLOY', 'DEPLOYMENT_ERROR', 'DeployedError'],
  ['error', 'RESTART', 'RESTART_ERROR', 'RestartedError'],
  ['drain', 'STOP', 'STOPPING', 'Pause'],
  ['done', 'STOP', 'STOPPED', 'Paused'],
  ['retire', 'DELETE', 'DELETING', 'Delete'],
  ['done', 'UNINSTALL', 'READY', 'Deleted'],
  ['task', 'DEPLOY', 'EXECUTING', 'Executing'],
  ['task-2', 'DEPLOY', 'EXECUTING', 'Executing'],
  ['run', 'DEPLOY', 'DEPLOYED', 'Executing'],
  ['cancel', 'DEPLOY', 'CANCELED', 'Cancelled'],
  ['resume', 'DEPLOY', 'DEPLOYING', 'LoadConfiguration'],
  ['new in some version', null, null, 'Deploy'],
]

test('every step of a log has the name that the original engine gives it', () => {
  for (const [step, action, state, expected] of cases)
    assert.equal(publicLogStep({ step, action, state }), expected, `${step} of ${action} in ${state}`)
})
