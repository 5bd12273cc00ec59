/** The tasks of a service, as it is configured: which one an event runs, and whether they are all that it runs. Pure. */
import type { When } from '../../work/schedule.ts'
import type { DeployableKind, ServiceRequest, TaskEvent, TaskSpec, Tasks, WorkloadSpec } from '../deployments.ts'

export interface TaskToRun {
  name: string
  spec: TaskSpec
  event: TaskEvent
}

/** The task that an event runs, of several the one of this name; null if none does. */
export const taskFor = (tasks: Tasks | undefined, event: TaskEvent, name?: string): TaskToRun | null => {
  const found = Object.entries(tasks ?? {}).find(
    ([own, { on }]) => on[event] !== undefined && (name === undefined || own === name),
  )
  return found === undefined ? null : { name: found[0], spec: found[1], event }
}

/** Whether tasks are all that a service runs. */
export const isAlone = ({ instances, tasks }: Pick<WorkloadSpec, 'instances'> & { tasks?: Tasks }): boolean =>
  instances === 0 && tasks !== undefined

/** The tasks of a configuration, and whether they are all that it runs. Asks nothing else of a kind without any. */
export const tasksIn = (
  kind: Pick<DeployableKind, 'tasks' | 'workload'>,
  spec: Record<string, unknown>,
): { tasks: Tasks; isAlone: boolean } => {
  const tasks = kind.tasks?.(spec)
  return tasks === undefined
    ? { tasks: {}, isAlone: false }
    : { tasks, isAlone: isAlone({ ...kind.workload(spec), tasks }) }
}

/** The task that a deploy runs: one in addition to instances only if its event is forced. */
export const eventTask = (
  kind: Pick<DeployableKind, 'tasks' | 'workload'>,
  { spec, requested }: { spec: Record<string, unknown>; requested: Pick<ServiceRequest, 'forceEvent' | 'task'> },
): { event: TaskEvent; task: TaskToRun | null } => {
  const found = tasksIn(kind, spec)
  const event = requested.forceEvent ?? 'START'
  const isAsked = requested.forceEvent !== undefined || found.isAlone
  return { event, task: isAsked ? taskFor(found.tasks, event, requested.task) : null }
}

/** Whether tasks are all that a release's workload runs, in SQL. */
export const isAloneSql = (workload: string): string =>
  `(${workload} ? 'tasks' and coalesce((${workload} ->> 'instances')::int, 0) = 0)`

export const clocksOf = (tasks: Tasks | undefined): Record<string, When> =>
  Object.fromEntries(Object.entries(tasks ?? {}).flatMap(([name, { cron }]) => (cron === null ? [] : [[name, cron]])))
