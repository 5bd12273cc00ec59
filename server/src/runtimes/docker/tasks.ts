/** Programs that run to completion. The same task id joins the existing execution, also after we crashed. */
import type { Clock } from '../../lib/clock.ts'
import type { Engine } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { untilAborted } from '../../lib/waiting.ts'
import type { RunOptions, Task, TaskKey } from '../runtime.ts'
import { type ContainerRow, type Containers, toInstance } from './containers.ts'
import type { Creator } from './create.ts'
import { labels, taskName } from './describe.ts'
import type { Logs } from './logs.ts'
import { readFileOf } from './task-files.ts'
import { createStarts, gone, isGone } from './task-start.ts'
import { stopContainer } from './task-stop.ts'

export interface TasksParts {
  engine: Engine
  containers: Containers
  creator: Creator
  logs: Logs
  ownerId: string
  clock: Clock
}

export interface TaskResult {
  exitCode: number
  oomKilled: boolean
}

/** One container, shared by all who asked for its task at once. */
interface Execution {
  id: string
  result: Promise<TaskResult>
}

const errorLines = 50
/** For what is stopped because its time is over. */
const timeoutGraceMs = 10_000

export const createTasks = ({ engine, containers, creator, logs, ownerId, clock }: TasksParts) => {
  const { startOrJoin, remove } = createStarts({ engine, containers, creator, ownerId })
  const executions = new Map<string, Promise<Execution>>()

  const waitForEnd = async (id: string): Promise<TaskResult> => {
    try {
      await engine.call('POST', `/containers/${id}/wait`, { deadlineMs: 2 ** 31 - 1 })
      const { State } = await containers.inspect(id)
      return { exitCode: State.ExitCode, oomKilled: State.OOMKilled }
    } catch (error) {
      throw isGone(error) ? gone(error) : error
    }
  }

  const begin = async (task: Task, signal: AbortSignal, options: RunOptions): Promise<Execution> => {
    const id = await startOrJoin(task, signal, options)
    const result = waitForEnd(id)
    const forget = () => void executions.delete(keyOf(task))
    result.then(forget, forget)
    return { id, result }
  }

  const keyOf = ({ taskId, attempt = 1 }: Task): string => `${taskId} ${attempt}`

  const join = (task: Task, signal: AbortSignal, options: RunOptions): Promise<Execution> => {
    const key = keyOf(task)
    const begun = executions.get(key) ?? begin(task, signal, options)
    executions.set(key, begun)
    begun.catch(() => executions.delete(key))
    return begun
  }

  /** All lines; what the engine had not written down when it ended the stream is read after it. */
  const tell = async (
    source: { id: string; name: string; revision: string },
    ended: Promise<unknown>,
    onLine: (line: string) => void,
  ) => {
    let since: string | undefined
    const pass = async (follow: boolean) => {
      for await (const lines of logs.read(source, { follow, ...(since === undefined ? {} : { since }) })) {
        for (const line of lines) onLine(line.text)
        since = lines.at(-1)?.at ?? since
      }
    }
    await pass(true)
    await ended
    await pass(false)
  }

  const sleepUntilLate = async (task: Task, id: string, signal: AbortSignal): Promise<void> => {
    const { State } = await containers.inspect(id)
    // One that has ended did so in time, however long nobody looked.
    if (!State.Running) return new Promise<void>(() => {})
    const ageMs = clock.now().getTime() - new Date(State.StartedAt).getTime()
    await clock.sleep(Math.max(0, Math.min(task.timeoutMs, task.timeoutMs - ageMs)), signal)
  }

  const timeOut = async (task: Task, id: string, signal: AbortSignal): Promise<never> => {
    await stopContainer(engine, clock, id, timeoutGraceMs, signal)
    const lines = await logs.lastLines({ id, name: '', revision: '' }, errorLines).catch(() => [])
    const message = `The task did not finish within ${Math.round(task.timeoutMs / 1000)} s.`
    throw new DeploymentError('task_timeout', message, { lines })
  }

  const run = async (
    task: Task,
    onLine: (line: string) => void,
    signal: AbortSignal,
    options: RunOptions = {},
  ): Promise<TaskResult> => {
    signal.throwIfAborted()
    const done = new AbortController()
    try {
      const { id, result } = await untilAborted(join(task, signal, options), signal)
      const source = { id, name: taskName(task.taskId), revision: task.taskId }
      const work = Promise.all([result, tell(source, result, onLine)])
      const both = AbortSignal.any([signal, done.signal])
      let isLate = false
      const late = sleepUntilLate(task, id, both).then(() => {
        isLate = true
      })
      const deadline = late.then(() => timeOut(task, id, both))
      deadline.catch(() => {})
      const inTime = work.then(([ended]) => (isLate ? deadline : ended))
      return await untilAborted(Promise.race([inTime, deadline]), signal)
    } finally {
      done.abort()
    }
  }

  const rowsOf = async (taskId: string, signal: AbortSignal): Promise<ContainerRow[]> =>
    (await containers.list({ [labels.task]: taskId }, { tasks: true, signal })).filter(
      (row) => toInstance(row).taskId === taskId,
    )

  return {
    run,
    stop: async ({ taskId }: TaskKey, graceMs: number, signal: AbortSignal): Promise<void> => {
      for (const { Id, State } of await rowsOf(taskId, signal))
        if (State === 'running') await stopContainer(engine, clock, Id, graceMs, signal)
    },
    read: async ({ taskId }: TaskKey, maxBytes: Readonly<Record<string, number>>, signal: AbortSignal) => {
      const [row] = await rowsOf(taskId, signal)
      if (row === undefined) return null
      const read = async ([path, most]: [string, number]) =>
        [path, await readFileOf(engine, row.Id, path, most, signal)] as const
      const found = await Promise.all(Object.entries(maxBytes).map(read))
      return Object.fromEntries(found.filter((pair): pair is [string, string] => pair[1] !== null))
    },
    /** What is not ours stays. */
    end: async ({ taskId }: TaskKey, signal: AbortSignal): Promise<void> => {
      const rows = await rowsOf(taskId, signal)
      await untilAborted(Promise.all(rows.map((row) => remove(row.Id))), signal)
    },
  }
}
