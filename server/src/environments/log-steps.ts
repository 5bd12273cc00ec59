/**
 * The steps of deployment logs as clients know them: those of the original engine, whose console filters lines by them.
 * Pure. What is stored has our own names; lines of older versions are read the same way.
 */

/** Begun, done and failed, by the action of the deployment. */
const ofAction: Record<string, readonly [string, string, string]> = {
  DEPLOY: ['Deploy', 'Deployed', 'DeployedError'],
  RESTART: ['Restart', 'Restarted', 'RestartedError'],
  STOP: ['Pause', 'Paused', 'PausedError'],
  DELETE: ['Delete', 'Deleted', 'DeletedError'],
  UNINSTALL: ['Delete', 'Deleted', 'DeletedError'],
}

/** `output` is the end of what a build printed. */
const ofStep: Record<string, string> = {
  source: 'Build',
  image: 'Build',
  output: 'Build',
  built: 'Built',
  task: 'Executing',
  run: 'Executing',
  unlock: 'Executing',
  resume: 'LoadConfiguration',
  cancel: 'Cancelled',
}

interface Line {
  step: string
  /** Null for a line of the deployment itself. */
  action: string | null
  /** What the service shows in this deployment, or how it ended. */
  state: string | null
}

export const publicLogStep = ({ step, action, state }: Line): string => {
  const known = step.startsWith('task-') ? 'Executing' : ofStep[step]
  if (known !== undefined) return known
  const [begun, done, failed] = ofAction[action ?? 'DEPLOY'] ?? ofAction.DEPLOY!
  if (step === 'error') return state === 'BUILDING' || state === 'BUILD_ERROR' ? 'BuiltError' : failed!
  return step === 'done' || step === 'compare' ? done! : begun!
}
