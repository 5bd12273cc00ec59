/**
 * Fake executions. A fake program prints its arguments, one a line; an argument `write PATH TEXT` writes a file of the
 * execution, and `show PATH` prints one.
 */

import { untilAborted } from '../../lib/concurrency/waiting.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { newId } from '../../lib/ids.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { collectOutputs } from '../collect-outputs.ts'
import type { Once, Runtime, Task, TaskEnd, TaskKey } from '../runtime.ts'
import type { Behaviour } from './script.ts'

type Ended = Omit<TaskEnd, 'outputs'>

interface Execution {
  attempt: number
  lines: string[]
  placeOf(path: string): string
  stop: AbortController
  result: Promise<Ended>
}

/** The place of an execution's file: below a volume it belongs to the volume, for all that mount it. */
const placeOf = ({ volumes }: Task, own: string, path: string): string => {
  const volume = volumes.find(({ mountPath }) => path.startsWith(`${mountPath}/`))
  return volume === undefined ? own + path : volume.id + path.slice(volume.mountPath.length)
}

async function* inOne(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

const gone = (): DeploymentError =>
  new DeploymentError('task_gone', 'The container was removed before the run finished.')

export const createFakeTasks = (clock: Clock, closed: AbortSignal, decide: (task: Task) => Behaviour) => {
  const executions = new Map<string, Execution>()
  const files = new Map<string, string>()
  /** The last attempt whose container was created: it exists before its program starts, as on an engine. */
  const made = new Map<string, number>()

  const live = async (task: Task, stop: AbortSignal): Promise<Ended> => {
    const behaviour = decide(task)
    if (behaviour.kind === 'slow') {
      const wait = clock.sleep(Math.min(behaviour.ms, task.timeoutMs), AbortSignal.any([closed, stop]))
      await wait.catch(() => closed.throwIfAborted())
      const timedOut = behaviour.ms > task.timeoutMs && !stop.aborted
      if (timedOut || stop.aborted) return { exitCode: 130, oomKilled: false, timedOut }
    }
    const oomKilled = behaviour.kind === 'oom'
    const exitCode = oomKilled ? 137 : behaviour.kind === 'crash' ? behaviour.exitCode : 0
    return { exitCode, oomKilled, timedOut: false }
  }

  const play = (argument: string, place: Execution['placeOf']): string[] => {
    const [, word, path, text] = /^(write|show) (\/\S+)(?: ([\s\S]*))?$/.exec(argument) ?? []
    if (word === 'show') return (files.get(place(path!)) ?? 'nothing').split('\n')
    if (word === 'write') files.set(place(path!), text ?? '')
    return [argument]
  }

  const collect = (its: Execution, { outputs }: Pick<Task, 'outputs'>, isGood: boolean, signal: AbortSignal) => {
    const open = async (path: string) => {
      const text = files.get(its.placeOf(path))
      if (text === undefined) return null
      const bytes = Buffer.from(text)
      return { size: bytes.length, bytes: inOne(bytes), close: () => {} }
    }
    return collectOutputs(outputs, isGood, open, signal)
  }

  const find = (task: Task): Execution | undefined => {
    const known = executions.get(task.taskId)
    return known !== undefined && known.attempt >= (task.attempt ?? 1) ? known : undefined
  }

  const begin = async (task: Task, once?: Once): Promise<Execution> => {
    const known = find(task)
    if (known !== undefined) return known
    const attempt = task.attempt ?? 1
    if (once?.marked === true && (made.get(task.taskId) ?? 0) < attempt) throw gone()
    if (decide(task).kind === 'refuse')
      throw new DeploymentError('image_missing', `Image ${task.image} does not exist.`)
    made.set(task.taskId, attempt)
    await once?.mark()
    const other = find(task)
    if (other !== undefined) return other
    const id = newId()
    const place = (path: string) => placeOf(task, id, path)
    for (const { path, content } of task.files.reveal()) files.set(place(path), content)
    const stop = new AbortController()
    const lines = [`execution ${id}`, ...(task.arguments ?? []).flatMap((each) => play(each, place))]
    const execution = { attempt, lines, placeOf: place, stop, result: live(task, stop.signal) }
    execution.result.catch(() => {})
    executions.set(task.taskId, execution)
    return execution
  }

  const run: Runtime['run'] = async (task, onLine, signal, once) => {
    signal.throwIfAborted()
    const its = await untilAborted(begin(task, once), signal)
    for (const line of its.lines) onLine(line)
    const ended = await untilAborted(its.result, signal)
    if (find(task) === undefined) throw gone()
    const isGood = ended.exitCode === 0 && !ended.timedOut
    return { ...ended, outputs: await collect(its, task, isGood, signal) }
  }

  const stopTask: Runtime['stopTask'] = async (task, _graceMs, signal) => {
    const execution = executions.get(task.taskId)
    if (execution === undefined) return null
    execution.stop.abort()
    await execution.result.catch(() => {})
    return collect(execution, task, false, signal)
  }

  return {
    run,
    stopTask,
    endTask: async ({ taskId }: TaskKey): Promise<void> => {
      const execution = executions.get(taskId)
      execution?.stop.abort()
      executions.delete(taskId)
      made.delete(taskId)
    },
  }
}
