/** The state of a service or an environment in one word, with its tone. */
type Tone = 'good' | 'busy' | 'warn' | 'bad' | 'idle'

const busy =
  /(BUILDING|DRY_RUN|QUEUED|_IN_PROGRESS|CANCELING|DEPLOYING|STARTING|STOPPING|EXECUTING|RESTARTING|DELETING|ONGOING)/
const bad = /(ERROR|FAILED|UNAVAILABLE|INVALID)/

const words: Record<string, string> = {
  DEPLOYED: 'Deployed',
  RUNNING: 'Running',
  READY: 'Not deployed',
  STOPPED: 'Stopped',
  CANCELED: 'Canceled',
  DELETED: 'Deleted',
  RESTARTED: 'Running',
  BUILD_ERROR: 'Build failed',
  DEPLOYMENT_ERROR: 'Deployment failed',
  RESTART_ERROR: 'Restart failed',
  STOP_ERROR: 'Stop failed',
  DELETE_ERROR: 'Delete failed',
  BUILDING: 'Building',
  DEPLOYMENT_QUEUED: 'Queued',
  DEPLOYING: 'Deploying',
  DEPLOYMENT_IN_PROGRESS: 'Deploying',
  SUCCESS: 'Succeeded',
  ERROR: 'Failed',
  ONGOING: 'Running',
  DONE: 'Done',
  SKIPPED: 'Skipped',
  UNKNOWN: 'Unknown',
  DRY_RUN: 'Planning',
  INVALID_CREDENTIALS: 'Login refused',
}

export const toneOf = (state: string): Tone => {
  if (busy.test(state)) return 'busy'
  if (bad.test(state)) return 'bad'
  if (['DEPLOYED', 'RUNNING', 'RESTARTED', 'SUCCESS', 'DONE', 'COMPLETED'].includes(state)) return 'good'
  if (state === 'WARNING') return 'warn'
  return 'idle'
}

export const wordOf = (state: string): string =>
  words[state] ?? state.charAt(0) + state.slice(1).toLowerCase().replaceAll('_', ' ')

export const StateMark = ({ state, word }: { state: string; word?: string }) => (
  <span className={`state ${toneOf(state)}`}>
    <i aria-hidden="true" />
    {word ?? wordOf(state)}
  </span>
)

interface ServiceState {
  state: string
  running_state: string
  scaling?: { asleep: boolean } | undefined
}

/** A visitor's view counts: a deployed service that does not answer is not fine. */
export const shownState = ({
  state,
  running_state: running,
  scaling,
}: ServiceState): { state: string; word?: string } => {
  if (state !== 'DEPLOYED' && state !== 'RESTARTED') return { state }
  if (scaling?.asleep === true) return { state: 'STOPPED', word: 'Asleep' }
  if (running === 'ERROR' || running === 'WARNING')
    return { state: running, word: running === 'ERROR' ? 'Down' : 'Restarting' }
  if (running === 'UNAVAILABLE' || running === 'UNKNOWN' || running === '')
    return { state: 'READY', word: 'State unknown' }
  return { state: running === 'STOPPED' ? 'STOPPED' : running === 'STARTING' ? 'STARTING' : running }
}

export const isBusy = (state: string): boolean => toneOf(state) === 'busy'

export const Freshness = ({ status }: { status: string }) =>
  status === 'OUT_OF_DATE' ? <span className="chip warn">Out of date</span> : null
