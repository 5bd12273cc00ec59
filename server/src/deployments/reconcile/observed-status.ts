/**
 * The parts of a service's status that come from its objects on the cluster: its running state, its problem, and how
 * an instance ended last. Compared before it is written, because all followers of the status are notified of each
 * write.
 */
import { explainExitCode, outOfMemory } from '../../lib/exit-codes.ts'
import type { Instance } from '../../runtimes/runtime.ts'
import type { Queryable } from '../../store/database.ts'
import type { Problem, Restarts } from '../deployments.ts'
import type { DeploymentParts } from '../parts.ts'
import type { WakeError } from '../scaling/rows.ts'

/** From a row of `service_state` with its current release. */
export interface Known {
  serviceId: string
  desired: string
  /** How many should run. */
  instances: number
  memoryMb: number
  runningState: string
  problem: Problem | null
  restarts: Restarts | null
  /** Why it still sleeps although it should have been woken. */
  wakeError: WakeError | null
  /** It runs only tasks: it has no instances, and the code that runs them shows its state. */
  hasTask: boolean
  /** It is made by a chart, which may have no instances. */
  hasChart: boolean
}

interface ObservedStatus {
  state: string
  problem: Problem | null
  /** Null: nothing new is known. */
  restarts: Restarts | null
}

const isServing = ({ state, unready, trouble }: Instance): boolean =>
  state === 'running' && unready !== true && trouble === undefined

const runningStateOf = (service: Known, current: readonly Instance[]): string => {
  if (service.desired !== 'RUNNING') return 'STOPPED'
  const [told] = current.flatMap((each) => each.told ?? [])
  if (told !== undefined) return told.state
  if (current.length === 0 && service.hasChart) return 'RUNNING'
  if (current.length === 0) return service.instances === 0 && service.wakeError === null ? 'STOPPED' : 'ERROR'
  if (current.every(isServing)) return 'RUNNING'
  return current.some(isServing) ? 'WARNING' : 'ERROR'
}

const howItEnded = (memoryMb: number, exitCode: number, oomKilled: boolean): string =>
  oomKilled
    ? `It ran out of memory: ${outOfMemory(memoryMb)}.`
    : `It exited with code ${exitCode}: ${explainExitCode(exitCode)}.`

const restartsOf = ({ memoryMb }: Known, current: readonly Instance[]): Restarts | null => {
  const exits = current.flatMap(({ lastExit }) => lastExit ?? [])
  const last = exits.sort((a, b) => (a.at < b.at ? -1 : 1)).at(-1)
  if (last === undefined) return null
  return {
    restart_count: current.reduce((sum, { restarts }) => sum + restarts, 0),
    exit_code: last.exitCode,
    oom_killed: last.oomKilled,
    last_exit_at: new Date(last.at).toISOString(),
    message: howItEnded(memoryMb, last.exitCode, last.oomKilled),
  }
}

const problemOf = (state: string, current: readonly Instance[], restarts: Restarts | null): Problem | null => {
  if (state !== 'ERROR' && state !== 'WARNING') return null
  const [told] = current.flatMap((each) => each.told?.message ?? [])
  if (told !== undefined) return { code: 'app_unhealthy', message: told }
  const [trouble] = current.flatMap((each) => each.trouble ?? [])
  if (trouble !== undefined) return { code: 'instance_failing', message: trouble.message }
  if (restarts !== null) {
    const times = restarts.restart_count === 1 ? 'once' : `${restarts.restart_count} times`
    const code = restarts.oom_killed ? 'out_of_memory' : 'crash_loop'
    return { code, message: `${restarts.message} It was started again ${times}.` }
  }
  const message =
    current.length === 0
      ? 'Nothing of the service is left on the cluster: it is being started again.'
      : 'Some of its instances do not run: they are being started again.'
  return { code: 'instances_missing', message }
}

/** `trouble`: why the desired instances could not be started; it takes precedence over their state. */
export const observedOf = (
  service: Known,
  current: readonly Instance[],
  trouble: Problem | null = null,
): ObservedStatus => {
  const state = runningStateOf(service, current)
  const restarts = service.desired === 'RUNNING' ? restartsOf(service, current) : null
  const isWrong = state === 'ERROR' || state === 'WARNING'
  if (service.instances === 0 && service.wakeError !== null) {
    const { code, message } = service.wakeError
    return { state, problem: isWrong ? { code, message } : null, restarts }
  }
  return { state, problem: isWrong && trouble !== null ? trouble : problemOf(state, current, restarts), restarts }
}

/** The code that runs a task shows its service's state. */
const isShownByTask = ({ hasTask, desired }: Known): boolean => hasTask && desired === 'RUNNING'

const areSame = (a: object | null, b: object | null): boolean => {
  if (a === null || b === null) return a === b
  return Object.entries(a).every(([key, value]) => (b as Record<string, unknown>)[key] === value)
}

/** A lasting problem is written by the code that acts on it. */
export const isStatusChanged = (service: Known, observed: ObservedStatus): boolean => {
  if (isShownByTask(service)) return false
  return (
    service.runningState !== observed.state ||
    (observed.restarts !== null && !areSame(observed.restarts, service.restarts)) ||
    (observed.problem === null) !== (service.problem === null)
  )
}

const unlessWorkedOn = `and not exists (select from deployment d join deployment_service w on w.deployment_id = d.id
    where w.service_id = $1 and w.finished_at is null and d.state = 'RUNNING')`

/** While a deployment works on the service, nothing is written: it shows its own. */
const store = async (db: Queryable, service: Known, observed: ObservedStatus) => {
  if (isShownByTask(service)) return
  if (!isStatusChanged(service, observed) && areSame(observed.problem, service.problem)) return
  await db.query(
    `update service_state set running_state = $2, problem = $3, restarts = coalesce($4, restarts)
     where service_id = $1 ${unlessWorkedOn}`,
    [
      service.serviceId,
      observed.state,
      observed.problem === null ? null : JSON.stringify(observed.problem),
      observed.restarts === null ? null : JSON.stringify(observed.restarts),
    ],
  )
}

/** `trouble`: why missing instances could not be started. `tx`: the report is true once it is committed. */
export type Report = (current: readonly Instance[], trouble?: Problem | null, tx?: Queryable) => Promise<void>

/** Writes the status of a service during its repair: each report takes the previous ones into account. */
export const createReporter = (parts: Pick<DeploymentParts, 'database'>, service: Known): Report => {
  let known = service
  return async (current, trouble = null, tx = parts.database) => {
    const observed = observedOf(known, current, trouble)
    await store(tx, known, observed)
    known = {
      ...known,
      runningState: observed.state,
      problem: observed.problem,
      restarts: observed.restarts ?? known.restarts,
    }
  }
}
