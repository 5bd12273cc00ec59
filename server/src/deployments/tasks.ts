/**
 * Services that run to their end: one event's program, as often as its restarts allow. A killed process joins the
 * execution that is under way; one that has ended is not run again unless the process died before it was written down.
 */
import { createMasker } from '../builds/log-mask.ts'
import { DeploymentError } from '../lib/errors.ts'
import type { Task } from '../runtimes/runtime.ts'
import type { TaskEvent, TaskSpec } from './deployments.ts'
import { kindOf } from './engine-parts.ts'
import type { OpenedRelease } from './releases.ts'
import type { ServiceRun } from './service-run.ts'
import { taskIdOf } from './task-ids.ts'
import { runTry } from './task-try.ts'

const graceMs = 10 * 60_000
const keptLines = 50

/** What a service runs, as it is configured now; null for one that stays up. */
export const taskOf = ({ parts, service }: ServiceRun): TaskSpec | null =>
  kindOf(parts, service.kind).task?.(service.spec) ?? null

/** A release's image and environment with one command. */
export const toTask = (
  { workload }: OpenedRelease,
  { on, timeoutMs }: TaskSpec,
  event: TaskEvent,
  taskId: string,
): Task => {
  const { organizationId, environmentId, serviceId, image, env, files, cpuMillicores, memoryMb } = workload
  const command = on[event] ?? { entrypoint: null, arguments: null }
  const ids = { organizationId, environmentId, serviceId, taskId }
  return { ...ids, ...command, image, env, files, cpuMillicores, memoryMb, timeoutMs }
}

/** The last lines of a program's output, without the secrets in it; each goes to `tell` too. */
export const createTail = (secrets: readonly string[], tell: (line: string) => void) => {
  const lines: string[] = []
  return {
    lines,
    add(line: string): void {
      const masker = createMasker(secrets)
      const text = masker.write(line) + masker.end()
      lines.push(text)
      if (lines.length > keptLines) lines.shift()
      tell(text)
    },
  }
}

/** Null for an end as it should be. */
export const failureOf = (
  { exitCode, oomKilled }: { exitCode: number; oomKilled: boolean },
  memoryMb: number,
  lines: string[],
): DeploymentError | null => {
  if (oomKilled)
    return new DeploymentError(
      'out_of_memory',
      `The job exceeded its memory limit of ${memoryMb} MB: raise the limit.`,
      {
        lines,
      },
    )
  if (exitCode === 0) return null
  return new DeploymentError('task_failed', `The job exited with code ${exitCode}.`, { lines })
}

/** Fails as it failed, with the lines that the log has: those of the engine hold what the program printed as it is. */
const withLines =
  (lines: readonly string[]) =>
  (error: unknown): never => {
    if (!(error instanceof DeploymentError) || error.lines.length === 0) throw error
    throw new DeploymentError(error.code, error.message, { next: error.next, lines: [...lines], cause: error })
  }

/** Runs what a service does at an event, and fails as it does; nothing for an event without a command. */
export const runTask = async (
  run: ServiceRun,
  opened: OpenedRelease,
  task: TaskSpec,
  event: TaskEvent,
): Promise<void> => {
  const { cluster, step, claim, service } = run
  if (task.on[event] === undefined) return
  const wanted = toTask(opened, task, event, taskIdOf(claim.id, service.id))
  const releaseId = opened.release.id
  for (let attempt = 1; ; attempt += 1) {
    const tail = createTail(opened.environment.secretValues, (line) => run.log.line('task', line))
    const again = `Restarting the job: attempt ${attempt} of ${task.maxRestarts + 1}.`
    run.log.line('task', attempt === 1 ? 'Job started.' : again)
    const one = { task: wanted, spec: task, event, releaseId, attempt }
    const ended = step(`task-${attempt}`, { deadlineMs: task.timeoutMs + graceMs }, (signal) =>
      runTry(run, one, tail.add, signal),
    )
    const failure = failureOf(await ended.catch(withLines(tail.lines)), wanted.memoryMb, tail.lines)
    if (failure === null) break
    if (attempt > task.maxRestarts) throw failure
    run.log.line('task', failure.message, 'error')
  }
  run.log.line('task', 'Job finished.')
  // All that it left is saved; what stays here is swept later.
  await cluster.runtime.endTask(wanted, run.signal).catch(() => {})
}
