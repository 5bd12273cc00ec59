/**
 * The one table of states: which public state a service shows in each phase of each action. Pure. The names come from
 * specification 3.2; the transitions from the behavior that existing clients expect.
 */
import type { DeploymentAction } from '../deployments.ts'

export type Phase = 'queued' | 'building' | 'working' | 'executing' | 'done' | 'buildFailed' | 'failed'

const table: Record<DeploymentAction, Record<Phase, string>> = {
  DEPLOY: {
    queued: 'DEPLOYMENT_QUEUED',
    building: 'BUILDING',
    working: 'DEPLOYING',
    executing: 'EXECUTING',
    done: 'DEPLOYED',
    buildFailed: 'BUILD_ERROR',
    failed: 'DEPLOYMENT_ERROR',
  },
  RESTART: {
    queued: 'RESTART_QUEUED',
    building: 'RESTARTING',
    working: 'RESTARTING',
    executing: 'RESTARTING',
    done: 'RESTARTED',
    buildFailed: 'RESTART_ERROR',
    failed: 'RESTART_ERROR',
  },
  STOP: {
    queued: 'STOP_QUEUED',
    building: 'STOPPING',
    working: 'STOPPING',
    executing: 'STOPPING',
    done: 'STOPPED',
    buildFailed: 'STOP_ERROR',
    failed: 'STOP_ERROR',
  },
  // The instances are removed, the row is kept: as if it had never been deployed.
  UNINSTALL: {
    queued: 'DELETE_QUEUED',
    building: 'DELETING',
    working: 'DELETING',
    executing: 'DELETING',
    done: 'READY',
    buildFailed: 'DELETE_ERROR',
    failed: 'DELETE_ERROR',
  },
  DELETE: {
    queued: 'DELETE_QUEUED',
    building: 'DELETING',
    working: 'DELETING',
    executing: 'DELETING',
    done: 'DELETED',
    buildFailed: 'DELETE_ERROR',
    failed: 'DELETE_ERROR',
  },
}

/** The public state of a service whose `action` is in `phase`. */
export const stateOf = (action: DeploymentAction, phase: Phase): string => table[action][phase]

const finals = new Set(['READY', 'CANCELED', 'DELETED'])
for (const states of Object.values(table))
  for (const phase of ['done', 'buildFailed', 'failed'] as const) finals.add(states[phase])

/** True if nothing is in progress: a client may take this state as the result. */
export const isFinal = (state: string): boolean => finals.has(state)

const statuses: Record<string, string> = { READY: 'NEVER', CANCELED: 'CANCELED', CANCELING: 'CANCELING' }

/** `status_details.status` of a state: how far its action is. */
export const actionStatusOf = (state: string): string => {
  const known = statuses[state]
  if (known !== undefined) return known
  if (state.endsWith('_QUEUED')) return 'QUEUED'
  if (state.endsWith('_ERROR')) return 'ERROR'
  return isFinal(state) ? 'SUCCESS' : 'ONGOING'
}

/** SQL for the states of an open deployment: queued or running. */
export const openStates = `('QUEUED', 'RUNNING')`

const severity = ['BUILDING', 'DEPLOYING', 'RESTARTING', 'STOPPING', 'DELETING', 'CANCELING']
const pending = ['DEPLOYMENT_QUEUED', 'RESTART_QUEUED', 'STOP_QUEUED', 'DELETE_QUEUED']
const errors = ['BUILD_ERROR', 'DEPLOYMENT_ERROR', 'RESTART_ERROR', 'STOP_ERROR', 'DELETE_ERROR']
const settled = ['CANCELED', 'DEPLOYED', 'RESTARTED', 'STOPPED', 'READY']

/** Jobs have a state that environments do not have: clients give up on an unknown state of an environment. */
const forEnvironment = (state: string): string => (state === 'EXECUTING' ? 'DEPLOYING' : state)

/** The state of an environment from those of its services: work in progress first, then queued work, then errors. */
export const environmentStateOf = (all: readonly string[]): string => {
  const states = all.map(forEnvironment)
  for (const state of [...severity, ...pending, ...errors]) if (states.includes(state)) return state
  for (const state of settled) if (states.includes(state)) return state
  return 'READY'
}
