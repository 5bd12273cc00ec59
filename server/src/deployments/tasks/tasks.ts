/** One run of a task: its form for a runtime, and the meaning of its result. Pure. */
import { createMasker } from '../../builds/engine/log-mask.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { explainExitCode } from '../../lib/exit-codes.ts'
import { withLastWords } from '../../lib/last-words.ts'
import { Secret } from '../../lib/secret.ts'
import type { Task, TaskEnd, Workload } from '../../runtimes/runtime.ts'
import { reservedPrefixes } from '../../variables/built-in.ts'
import type { TaskEvent } from '../deployments.ts'
import type { TaskToRun } from '../desired/tasks.ts'
import { outputsOf } from './files.ts'

const keptLines = 50

const jobEvents: ReadonlySet<TaskEvent> = new Set(['START', 'STOP', 'DELETE', 'CRON'])

/** A job's program can see from it why it runs; one with a state sees it from its command. */
const actionOf = ({ spec, event }: TaskToRun): Record<string, string> =>
  spec.state !== undefined || !jobEvents.has(event)
    ? {}
    : Object.fromEntries(reservedPrefixes.map((prefix) => [`${prefix}JOB_ACTION`, event]))

/** A release's image and environment with one command. */
export const toTask = (workload: Workload, task: TaskToRun, taskId: string): Task => {
  const { spec, event } = task
  const { organizationId, environmentId, serviceId, image, files, cpuMillicores, memoryMb } = workload
  const { readOnlyRoot, withoutRoot, machineLabels, labels, stopGraceMs } = workload
  const command = spec.on[event] ?? { entrypoint: null, arguments: null }
  return {
    ...{ organizationId, environmentId, serviceId, taskId },
    ...command,
    ...{ image, files, cpuMillicores, memoryMb, timeoutMs: spec.timeoutMs },
    env: new Secret({ ...workload.env.reveal(), ...actionOf(task) }),
    volumes: spec.withVolumes === true ? workload.volumes : [],
    outputs: outputsOf(spec),
    ...(stopGraceMs === 0 ? {} : { stopGraceMs }),
    ...(readOnlyRoot === undefined ? {} : { readOnlyRoot }),
    ...(withoutRoot === undefined ? {} : { withoutRoot }),
    ...(machineLabels === undefined ? {} : { machineLabels }),
    ...(labels === undefined ? {} : { labels }),
  }
}

/** Shorter ones may be ordinary words. */
const shortestLine = 16

/** A value and, as output comes in lines, its own lines; lines that only name the kind of a key are not secret. */
const shownLines = (value: string): string[] => {
  const lines = value.includes('\n') ? value.split('\n').map((line) => line.trim()) : []
  return [value, ...lines.filter((line) => line.length >= shortestLine && !line.startsWith('-----'))]
}

/** The last lines of a program's output, without the secrets in it; each goes to `logLine` too. */
export const createTail = (secrets: readonly string[], logLine: (line: string) => void) => {
  const lines: string[] = []
  const masker = createMasker(secrets.flatMap(shownLines))
  return {
    lines,
    add(line: string): void {
      const text = masker.write(line) + masker.end()
      lines.push(text)
      if (lines.length > keptLines) lines.shift()
      logLine(text)
    },
  }
}

/** Null for a success. */
export const failureOf = (
  { exitCode, oomKilled, notStarted }: Pick<TaskEnd, 'exitCode' | 'oomKilled' | 'notStarted'>,
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
  const how = `The job exited with code ${exitCode}: ${explainExitCode(exitCode)}.`
  return new DeploymentError('task_failed', withLastWords(how, lines, notStarted), { lines })
}
