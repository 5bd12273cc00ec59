/** Services that run to their end, in a deployment: what a deploy, a stop and a delete run, and what they end. */
import { withClaim } from '../work/queue.ts'
import { cancelRuns, setSchedule } from '../work/schedule.ts'
import { isCancel } from './canceled.ts'
import type { TaskEvent, TaskSpec } from './deployments.ts'
import { hold, makeCurrent, openOwn } from './release-run.ts'
import type { Release } from './releases.ts'
import { enter, type ServiceRun } from './service-run.ts'
import { runTask, taskIdOf, taskOf } from './tasks.ts'

const minute = 60_000
export const pullDeadlineMs = 61 * minute

/** What a deploy runs of a job; null for a service that stays up. */
export const eventTask = (run: ServiceRun): { task: TaskSpec; event: TaskEvent } | null => {
  const task = taskOf(run)
  return task === null ? null : { task, event: run.service.requested.forceEvent ?? 'START' }
}

/** A job: the event's program to its end, then the release is the current one. A forced event leaves the clock alone. */
export const runOnce = async (
  run: ServiceRun,
  release: Release,
  { task, event }: { task: TaskSpec; event: TaskEvent },
) => {
  const { parts, step, service } = run
  const opened = await openOwn(run, release.id)
  if (opened === null) throw new Error(`release ${release.id} is gone`)
  const runs = task.on[event] !== undefined
  if (runs) {
    await enter(run, 'executing')
    await showRunning(run, 'RUNNING')
  }
  await runTask(run, opened, task, event)
  const forced = service.requested.forceEvent !== undefined
  await step('switch', { deadlineMs: minute, remember: false }, () =>
    makeCurrent(run, release, runs ? 'COMPLETED' : 'STOPPED', async (tx) => {
      if (!forced) await setSchedule(tx, service.id, task.cron, parts.clock.now())
    }),
  )
}

const showRunning = ({ parts, claim, service }: ServiceRun, state: string): Promise<unknown> =>
  withClaim(parts.database, claim, (tx) =>
    tx.query('update service_state set running_state = $2 where service_id = $1', [service.id, state]),
  )

/** What a job does at the end of its service: with the image that is deployed, as it is configured now. */
export const runEnding = async (run: ServiceRun, event: 'STOP' | 'DELETE'): Promise<void> => {
  const { step, service } = run
  const task = taskOf(run)
  if (task?.on[event] === undefined || service.currentReleaseId === null) return
  const opened = await openOwn(run, service.currentReleaseId)
  if (opened === null) return
  await step('pull', { deadlineMs: pullDeadlineMs }, (signal) => hold(run, opened.release, signal))
  await enter(run, 'executing')
  await runTask(run, opened, task, event)
}

/** An execution that this deployment began and nobody waits for. */
export const endOwnTask = async (run: ServiceRun, signal: AbortSignal): Promise<void> => {
  const { parts, claim, service } = run
  if (taskOf(run) === null) return
  await parts.runtime.endTask(taskIdOf(claim.id, service.id), signal)
  await showRunning(run, isCancel(run) ? 'STOPPED' : 'ERROR')
}

/** Runs by the clock that the end of their service ends. */
export const endRuns = async (run: ServiceRun): Promise<void> => {
  const { parts, step, service, claim } = run
  if (taskOf(run) === null) return
  await step('end-runs', { deadlineMs: 2 * minute, remember: false }, async (signal) => {
    const ids = await withClaim(parts.database, claim, (tx) => cancelRuns(tx, service.id))
    await Promise.all(ids.map((id) => parts.runtime.endTask(id, signal)))
  })
}
