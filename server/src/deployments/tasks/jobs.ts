/** Tasks in a deployment: those that a deploy, a stop, a delete and a forced event run, and those that they end. */
import { DeploymentError } from '../../lib/errors.ts'
import { withClaim } from '../../work/queue.ts'
import { cancelRuns, setSchedules } from '../../work/schedule.ts'
import type { Source, Tasks } from '../deployments.ts'
import { clocksOf, type TaskToRun, taskFor, tasksIn } from '../desired/tasks.ts'
import { ofImage } from '../desired/workload.ts'
import { ensureReleaseImage } from '../images/make-image.ts'
import { kindOf } from '../parts.ts'
import { isCancel } from '../progress/canceled.ts'
import { enter, type ServiceRun } from '../progress/service-run.ts'
import { makeCurrent, openOwn } from '../release/release-run.ts'
import type { OpenedRelease, Release } from '../release/releases.ts'
import { taskIdOf } from './ids.ts'
import { clearPlace, moduleSourceOf, placeOfTasks, runModule } from './modules.ts'
import { type Runnable, runTask, type TaskClaim } from './run.ts'
import { endTaskOf, findState, forgetLeft, unlockState, stopGraceMs as usualStateGraceMs } from './state.ts'

const minute = 60_000
const forcePollMs = 500

const tasksNow = ({ parts, service }: ServiceRun) => tasksIn(kindOf(parts, service.kind), service.spec)

const tasksOf = (run: ServiceRun): Tasks => tasksNow(run).tasks

/** Whether its kind runs tasks: also if the service is configured without one by now. */
const mayRunTasks = ({ parts, service }: ServiceRun): boolean =>
  kindOf(parts, service.kind).tasks?.(service.spec) !== undefined

export const runsAlone = (run: ServiceRun): boolean => tasksNow(run).isAlone

const keepsState = (run: ServiceRun): boolean => Object.values(tasksOf(run)).some(({ state }) => state !== undefined)

const claimOf = (run: ServiceRun): TaskClaim => {
  const { parts, claim, step } = run
  const { cluster, ref } = placeOfTasks(run)
  return {
    ...{ parts, cluster, ref, step },
    organizationId: claim.organizationId,
    id: claim.id,
    taskId: taskIdOf(claim.id, ref.serviceId),
    write: (work) => withClaim(parts.database, claim, work),
    logLine: (text, level) => run.log.line('task', text, level),
  }
}

/** `from`: the source of the release; without one, that of the present configuration. */
const execute = async (run: ServiceRun, what: Runnable & { from?: Source }, task: TaskToRun): Promise<void> => {
  const claim = claimOf(run)
  const source = moduleSourceOf(run, what.from)
  if (source !== null) await runModule(run, claim, what, task, source)
  else await runTask(claim, what, task)
  // All its outputs are saved; leftovers are swept later.
  await claim.cluster.runtime.endTask({ ...claim.ref, taskId: claim.taskId }, run.signal).catch(() => {})
  await clearPlace(run, run.signal)
}

const runnable = (opened: OpenedRelease): Runnable & { from?: Source } => {
  const { id, workload } = opened.release
  return {
    ...opened,
    workload: ofImage(opened.workload),
    releaseId: id,
    ...(workload.from === undefined ? {} : { from: workload.from }),
  }
}

/** Releases the state that the runs of a service pass on, without a run. */
export const unlock = async (run: ServiceRun): Promise<void> => {
  run.aside = true
  await enter(run, 'executing')
  const wasLocked = await run.step('unlock', { deadlineMs: minute }, (signal) => unlockState(claimOf(run), signal))
  run.log.line('unlock', wasLocked ? 'The state has been unlocked.' : 'The state is not locked.')
}

/** Runs a task without a release of its own: it cannot be run again. */
export const runAside = async (run: ServiceRun, what: Omit<Runnable, 'releaseId'>, task: TaskToRun): Promise<void> => {
  run.aside = true
  await enter(run, 'executing')
  await showRunning(run, 'RUNNING')
  await execute(run, { ...what, releaseId: null }, task)
  await showRunning(run, run.service.currentReleaseId === null ? 'STOPPED' : 'COMPLETED')
}

/** Runs a task in addition to the instances of its service, from their release. */
export const runBeside = async (run: ServiceRun, task: TaskToRun): Promise<void> => {
  run.aside = true
  const { currentReleaseId } = run.service
  const opened = currentReleaseId === null ? null : await openOwn(run, currentReleaseId)
  if (opened === null) throw new DeploymentError('not_deployed', 'The service is not deployed.')
  await ensureReleaseImage(run, opened.release)
  await enter(run, 'executing')
  await execute(run, runnable(opened), task)
}

/** Tasks alone: the event's program to its end, then the release is the current one. */
export const runOnce = async (run: ServiceRun, release: Release, task: TaskToRun | null): Promise<void> => {
  if (task !== null) {
    const opened = await openOwn(run, release.id)
    if (opened === null) throw new Error(`release ${release.id} no longer exists`)
    await enter(run, 'executing')
    await showRunning(run, 'RUNNING')
    await execute(run, runnable(opened), task)
  }
  await run.step('switch', { deadlineMs: minute, remember: false }, () =>
    makeCurrent(run, release, task === null ? 'STOPPED' : 'COMPLETED'),
  )
}

/** Shows a service's state before the next check by the reconciler. */
export const showRunning = ({ parts, claim, service }: ServiceRun, state: string): Promise<unknown> =>
  withClaim(parts.database, claim, (tx) =>
    tx.query('update service_state set running_state = $2 where service_id = $1', [service.id, state]),
  )

/** Its tasks run on the schedule that is configured now. */
export const setClocks = async (run: ServiceRun): Promise<void> => {
  const { parts, claim, service } = run
  if (!mayRunTasks(run)) return
  await withClaim(parts.database, claim, (tx) =>
    setSchedules(tx, service.id, clocksOf(tasksOf(run)), parts.clock.now()),
  )
}

/** The release for an ending task: the one whose run changed the state last, because no other may use it. */
const endingRelease = async (run: ServiceRun, { spec }: TaskToRun): Promise<string | null> => {
  const { currentReleaseId, id } = run.service
  if (spec.state !== 'HERE') return currentReleaseId
  const state = await findState(run.parts.database, id)
  // Without a state there is nothing to end.
  return state?.sealed == null && state?.begun == null ? null : (state.releaseId ?? currentReleaseId)
}

/** The task of a service at its end: with the deployed image, in its present configuration. */
export const runEnding = async (run: ServiceRun, event: 'STOP' | 'DELETE'): Promise<void> => {
  const { service } = run
  const task = taskFor(tasksOf(run), event)
  if (task === null) return
  if (service.requested.skipEnding === true)
    return run.log.line('task', 'Skipping destroy as requested; resources are kept.')
  const releaseId = await endingRelease(run, task)
  const opened = releaseId === null ? null : await openOwn(run, releaseId)
  if (opened === null) return
  await ensureReleaseImage(run, opened.release)
  await enter(run, 'executing')
  await execute(run, runnable(opened), task)
}

/** After the end of a service: removes the outputs of its runs. */
export const forgetRuns = async (run: ServiceRun): Promise<void> => {
  if (mayRunTasks(run)) await forgetLeft(claimOf(run))
}

/** The grace period of the service's program; 0 if it is not asked to end. */
export const graceOf = (run: ServiceRun): number => {
  if (!mayRunTasks(run)) return 0
  const { stopGraceMs } = kindOf(run.parts, run.service.kind).workload(run.service.spec)
  return stopGraceMs === 0 && keepsState(run) ? usualStateGraceMs : stopGraceMs
}

/** Resolves once the cancel of the deployment is forced. */
const untilForced = async ({ parts, claim }: ServiceRun, signal: AbortSignal): Promise<void> => {
  for (;;) {
    const sql = 'select 1 from deployment where id = $1 and cancel_force'
    if ((await parts.database.query(sql, [claim.id])).length > 0) return
    await parts.clock.sleep(forcePollMs, signal)
  }
}

/** An execution that this deployment began and no longer waits for. */
export const endOwnTask = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  const { parts, claim } = run
  if (!mayRunTasks(run)) return
  const { cluster, ref } = placeOfTasks(run)
  const task = { ...ref, taskId: taskIdOf(claim.id, ref.serviceId) }
  const graceMs = graceOf(run)
  const over = new AbortController()
  // Without a grace period a forced cancel has nothing to cut short.
  const watching =
    graceMs === 0
      ? null
      : untilForced(run, AbortSignal.any([signal, over.signal]))
          .then(() => cluster.runtime.stopTask({ ...task, outputs: [] }, 0, signal))
          .catch(() => {})
  try {
    await endTaskOf(parts, cluster, task, signal, graceMs)
  } finally {
    over.abort()
    await watching
  }
  await clearPlace(run, signal)
  if (runsAlone(run)) await showRunning(run, isCancel(run) ? 'STOPPED' : 'ERROR')
}

/** Scheduled runs that end together with their service. */
export const endRuns = async (run: ServiceRun): Promise<void> => {
  const { parts, cluster, ref, step, service, claim } = run
  if (!mayRunTasks(run)) return
  const graceMs = graceOf(run)
  await step('end-runs', { deadlineMs: 2 * minute + graceMs, remember: false }, async (signal) => {
    const ids = await withClaim(parts.database, claim, (tx) => cancelRuns(tx, service.id))
    await Promise.all(ids.map((taskId) => endTaskOf(parts, cluster, { ...ref, taskId }, signal, graceMs)))
  })
}
