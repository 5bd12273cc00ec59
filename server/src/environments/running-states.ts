/**
 * Running states: whether instances are up, whatever the last deployment did. Pure. The values are those of the public
 * websocket API.
 */
import type { Instance } from '../runtimes/runtime.ts'

const runningStates = ['STARTING', 'RUNNING', 'ERROR', 'STOPPING', 'STOPPED', 'COMPLETED', 'WARNING'] as const
export type RunningState = (typeof runningStates)[number]

const ending = new Set(['STOPPING', 'DELETING'])

const isWord = (word: string): word is RunningState => runningStates.some((each) => each === word)

interface Noted {
  running_state: string
  deployment_state: string
}

const isAlive = ({ state }: Pick<Instance, 'state'>): boolean => state !== 'exited' && state !== 'missing'

/** The running state of a service, from its recorded state, the current action and its instances. */
export const serviceStateOf = (
  { running_state, deployment_state }: Noted,
  instances: readonly Pick<Instance, 'state'>[],
): RunningState => {
  // There is no value for an unknown state.
  const state = isWord(running_state) ? running_state : 'WARNING'
  if (ending.has(deployment_state)) return state === 'STOPPED' ? state : 'STOPPING'
  // A first version is recorded once it is ready.
  return state === 'STOPPED' && instances.some(isAlive) ? 'STARTING' : state
}

const ofInstance: Record<Instance['state'], RunningState> = {
  created: 'STARTING',
  starting: 'STARTING',
  running: 'RUNNING',
  restarting: 'ERROR',
  exited: 'STOPPED',
  missing: 'STOPPED',
}

export const instanceStateOf = ({ state, exitCode }: Pick<Instance, 'state' | 'exitCode'>): RunningState =>
  state === 'exited' && exitCode !== null && exitCode !== 0 ? 'ERROR' : ofInstance[state]

/** One failure is a warning, nothing but failures an error; then what is changing, then what is running. */
export const environmentRunningState = (services: readonly RunningState[]): RunningState => {
  if (services.length > 0 && services.every((state) => state === 'ERROR')) return 'ERROR'
  if (services.includes('ERROR')) return 'WARNING'
  const order = ['WARNING', 'STARTING', 'STOPPING', 'RUNNING', 'COMPLETED'] as const
  return order.find((state) => services.includes(state)) ?? 'STOPPED'
}
