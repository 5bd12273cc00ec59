/**
 * Fake executions. A fake program tells its arguments, one a line; an argument `write PATH TEXT` writes a file of the
 * execution, and `show PATH` tells what is in one.
 */
import type { Clock } from '../../lib/clock.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import { untilAborted } from '../../lib/waiting.ts'
import type { RunOptions, Runtime, Task, TaskKey } from '../runtime.ts'
import type { Behaviour } from './script.ts'

interface Ended {
  output: string[]
  exitCode: number
  oomKilled: boolean
}

interface Execution {
  attempt: number
  files: Map<string, string>
  stop: AbortController
  result: Promise<Ended>
}

const play = (files: Map<string, string>, argument: string): string[] => {
  const [, word, path, text] = /^(write|show) (\/\S+)(?: ([\s\S]*))?$/.exec(argument) ?? []
  if (word === 'show') return (files.get(path!) ?? 'nothing').split('\n')
  if (word === 'write') files.set(path!, text ?? '')
  return [argument]
}

const timeOut = (task: Task, lines: string[]): DeploymentError =>
  new DeploymentError('task_timeout', `The task did not finish within ${task.timeoutMs / 1000} s.`, { lines })

export const createFakeTasks = (clock: Clock, closed: AbortSignal, decide: (task: Task) => Behaviour) => {
  const executions = new Map<string, Execution>()
  /** The last try whose container was made: it is there before its program starts, as on an engine. */
  const made = new Map<string, number>()

  const live = async (task: Task, files: Map<string, string>, stop: AbortSignal): Promise<Ended> => {
    const behaviour = decide(task)
    const output = [`execution ${newId()}`, ...(task.arguments ?? []).flatMap((each) => play(files, each))]
    if (behaviour.kind === 'slow') {
      const wait = clock.sleep(Math.min(behaviour.ms, task.timeoutMs), AbortSignal.any([closed, stop]))
      await wait.catch(() => closed.throwIfAborted())
      if (stop.aborted) return { output, exitCode: 130, oomKilled: false }
      if (behaviour.ms > task.timeoutMs) throw timeOut(task, output)
    }
    const oomKilled = behaviour.kind === 'oom'
    return { output, exitCode: oomKilled ? 137 : behaviour.kind === 'crash' ? behaviour.exitCode : 0, oomKilled }
  }

  const find = (task: Task): Execution | undefined => {
    const known = executions.get(task.taskId)
    return known !== undefined && known.attempt >= (task.attempt ?? 1) ? known : undefined
  }

  const begin = async (task: Task, { beforeStart, joinOnly }: RunOptions): Promise<Execution> => {
    const known = find(task)
    if (known !== undefined) return known
    const attempt = task.attempt ?? 1
    if (joinOnly === true && (made.get(task.taskId) ?? 0) < attempt)
      throw new DeploymentError('task_gone', 'The container was removed before the run finished.')
    if (decide(task).kind === 'refuse')
      throw new DeploymentError('image_missing', `Image ${task.image} does not exist.`)
    made.set(task.taskId, attempt)
    await beforeStart?.()
    const other = find(task)
    if (other !== undefined) return other
    const files = new Map(task.files.reveal().map(({ path, content }) => [path, content]))
    const stop = new AbortController()
    const execution = { attempt, files, stop, result: live(task, files, stop.signal) }
    execution.result.catch(() => {})
    executions.set(task.taskId, execution)
    return execution
  }

  const run: Runtime['run'] = async (task, onLine, signal, options = {}) => {
    signal.throwIfAborted()
    const { result } = await untilAborted(begin(task, options), signal)
    const { output, ...ended } = await untilAborted(result, signal)
    for (const line of output) onLine(line)
    return ended
  }

  const readTask: Runtime['readTask'] = async ({ taskId }, maxBytes) => {
    const execution = executions.get(taskId)
    if (execution === undefined) return null
    const found = Object.entries(maxBytes).flatMap(([path, most]) => {
      const text = execution.files.get(path)
      if (text !== undefined && Buffer.byteLength(text) > most)
        throw new DeploymentError('file_too_large', `The file ${path} is larger than ${Math.floor(most / 1024)} KiB.`)
      return text === undefined ? [] : [[path, text]]
    })
    return Object.fromEntries(found) as Record<string, string>
  }

  return {
    run,
    readTask,
    stopTask: async ({ taskId }: TaskKey): Promise<void> => {
      const execution = executions.get(taskId)
      execution?.stop.abort()
      await execution?.result.catch(() => {})
    },
    endTask: async ({ taskId }: TaskKey): Promise<void> => {
      const execution = executions.get(taskId)
      execution?.stop.abort()
      executions.delete(taskId)
      made.delete(taskId)
    },
  }
}
