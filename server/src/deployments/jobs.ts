/** Services that run to their end, in a deployment: what a deploy, a stop and a delete run, and what they end. */
import { withClaim } from '../work/queue.ts'
import { cancelRuns, setSchedule } from '../work/schedule.ts'
import { isCancel } from './canceled.ts'
import type { TaskEvent, TaskSpec } from './deployments.ts'
import { hold, makeCurrent, openOwn } from './release-run.ts'
import type { Release } from './releases.ts'
import { enter, type ServiceRun } from './service-run.ts'
import { taskIdOf } from './task-ids.ts'
import { endTaskOf, findState, forgetLeft, freeState } from './task-state.ts'
import { runTask, taskOf } from './tasks.ts'

const minute = 60_000
export const pullDeadlineMs = 61 * minute

/** What a deploy runs of a job; null for a service that stays up. */
export const eventTask = (run: ServiceRun): { task: TaskSpec; event: TaskEvent } | null => {
  const task = taskOf(run)
  return task === null ? null : { task, event: run.service.requested.forceEvent ?? 'START' }
}

/** Events that look or repair: whatever they end like, the service runs what it ran before. */
const asideEvents: ReadonlySet<TaskEvent> = new Set(['PLAN', 'UNLOCK', 'MIGRATE'])

/** Frees what the runs of a service hand on, without a run. */
export const unlock = async (run: ServiceRun): Promise<void> => {
  run.aside = true
  await enter(run, 'executing')
  const wasLocked = await run.step('unlock', { deadlineMs: minute }, (signal) => freeState(run, signal))
  run.log.line('unlock', wasLocked ? 'The state has been unlocked.' : 'The state is not locked.')
}

/** Leaves no release: there is nothing of it to run again. */
const setAside = (run: ServiceRun, release: Release): Promise<unknown> =>
  withClaim(run.parts.database, run.claim, async (tx) => {
    await tx.query(`update service_state set running_state = $2 where service_id = $1`, [
      run.service.id,
      run.service.currentReleaseId === null ? 'STOPPED' : 'COMPLETED',
    ])
    await tx.query('delete from release where id = $1', [release.id])
  })

/** A job: the event's program to its end, then the release is the current one. A forced event leaves the clock alone. */
export const runOnce = async (
  run: ServiceRun,
  release: Release,
  { task, event }: { task: TaskSpec; event: TaskEvent },
) => {
  const { parts, step, service } = run
  const opened = await openOwn(run, release.id)
  if (opened === null) throw new Error(`release ${release.id} no longer exists`)
  run.aside = asideEvents.has(event)
  const runs = task.on[event] !== undefined
  if (runs) {
    await enter(run, 'executing')
    await showRunning(run, 'RUNNING')
  }
  await runTask(run, opened, task, event)
  if (run.aside) {
    await setAside(run, release)
    return
  }
  const forced = service.requested.forceEvent !== undefined
  await step('switch', { deadlineMs: minute, remember: false }, () =>
    makeCurrent(run, release, runs ? 'COMPLETED' : 'STOPPED', async (tx) => {
      if (!forced) await setSchedule(tx, service.id, task.cron, parts.clock.now())
    }),
  )
}

/** Shows what a service does before the next look of reconcile. */
export const showRunning = ({ parts, claim, service }: ServiceRun, state: string): Promise<unknown> =>
  withClaim(parts.database, claim, (tx) =>
    tx.query('update service_state set running_state = $2 where service_id = $1', [service.id, state]),
  )

/** The release that an end runs with: the one whose run changed the state last, as it may be no other's. */
const endingRelease = async (run: ServiceRun, task: TaskSpec): Promise<string | null> => {
  const { currentReleaseId, id } = run.service
  if (task.state !== 'HERE') return currentReleaseId
  const state = await findState(run.parts.database, id)
  // Without a state there is nothing that it could end.
  return state?.sealed == null && state?.begun == null ? null : (state.releaseId ?? currentReleaseId)
}

/** What a job does at the end of its service: with the image that is deployed, as it is configured now. */
export const runEnding = async (run: ServiceRun, event: 'STOP' | 'DELETE'): Promise<void> => {
  const { step, service } = run
  const task = taskOf(run)
  if (task?.on[event] === undefined) return
  if (service.requested.skipEnding === true)
    return run.log.line('task', 'Skipping destroy as requested; resources are kept.')
  const releaseId = await endingRelease(run, task)
  const opened = releaseId === null ? null : await openOwn(run, releaseId)
  if (opened === null) return
  await step('pull', { deadlineMs: pullDeadlineMs }, (signal) => hold(run, opened.release, signal))
  await enter(run, 'executing')
  await runTask(run, opened, task, event)
}

/** After the end of a service: what its runs left. */
export const forgetRuns = async (run: ServiceRun): Promise<void> => {
  if (taskOf(run) !== null) await forgetLeft(run.parts.database, run)
}

/** An execution that this deployment began and nobody waits for. */
export const endOwnTask = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  const { parts, cluster, claim, ref } = run
  if (taskOf(run) === null) return
  await endTaskOf(parts, cluster, { ...ref, taskId: taskIdOf(claim.id, ref.serviceId) }, signal)
  await showRunning(run, isCancel(run) ? 'STOPPED' : 'ERROR')
}

/** Runs by the clock that the end of their service ends. */
export const endRuns = async (run: ServiceRun): Promise<void> => {
  const { parts, cluster, ref, step, service, claim } = run
  if (taskOf(run) === null) return
  await step('end-runs', { deadlineMs: 2 * minute, remember: false }, async (signal) => {
    const ids = await withClaim(parts.database, claim, (tx) => cancelRuns(tx, service.id))
    await Promise.all(ids.map((taskId) => cluster.runtime.endTask({ ...ref, taskId }, signal)))
  })
}
