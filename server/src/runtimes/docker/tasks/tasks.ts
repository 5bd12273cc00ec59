/** Programs that run to completion. The same task id joins the existing execution, also after we crashed. */
import { dirname } from 'node:path/posix'
import { untilAborted, waitAtMost } from '../../../lib/concurrency/waiting.ts'
import { type Engine, ignoreGone, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { LeaseHandedOff } from '../../../lib/lease-handed-off.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import { collectOutputs } from '../../collect-outputs.ts'
import type { Once, Runtime, Task, TaskEnd, TaskKey, TaskOutputs } from '../../runtime.ts'
import { type ContainerDetail, type ContainerRow, type Containers, toInstance } from '../containers.ts'
import { type Creator, isNameTaken } from '../create.ts'
import { describeTask, labels, taskName } from '../describe.ts'
import { removeContainer } from '../endings.ts'
import type { Logs } from '../logs/logs.ts'
import { whyNotStarted } from '../program/not-started.ts'
import { openFileOf } from './files.ts'

const attemptOf = ({ Config }: ContainerDetail): number => Number.parseInt(Config.Labels[labels.attempt] ?? '', 10) || 1

/** Folders for outputs. Those inside a volume belong to the service: they are not changed. */
const foldersOf = ({ outputs, volumes }: Task): string[] => {
  const isOwn = (path: string) => !volumes.some(({ mountPath }) => path.startsWith(mountPath.replace(/\/*$/, '/')))
  const folders = new Set(outputs.flatMap(({ path }) => (isOwn(path) ? [dirname(path)] : [])))
  // The top is there, and not for anyone to write to.
  folders.delete('/')
  return [...folders]
}

const isGone = (error: unknown): boolean => isEngineError(error, 404)

const gone = (cause?: unknown): DeploymentError =>
  new DeploymentError('task_gone', 'The container was removed before the run finished.', { cause })

/** Containers of tasks: made, started, or found again by their name, also after a crash of ours. */
const createStarts = ({ engine, containers, creator, ownerId }: Omit<TasksParts, 'logs' | 'clock'>) => {
  const remove = (id: string) => removeContainer(engine, id)

  /** The container of this task's name; null if there is none. One with another owner is an error. */
  const find = async (name: string): Promise<ContainerDetail | null> => {
    try {
      const detail = await containers.inspect(name)
      if (detail.Config.Labels[labels.owner] === ownerId) return detail
    } catch (error) {
      if (isGone(error)) return null
      throw error
    }
    throw new DeploymentError(
      'name_taken',
      `A container named ${name} exists and does not belong to this server: remove it.`,
    )
  }

  const createOrJoin = async (task: Task, signal: AbortSignal, once?: Once): Promise<string> => {
    const name = taskName(task.taskId)
    const context = { environmentId: task.environmentId, progress: () => {}, signal }
    const given = { files: task.files, folders: foldersOf(task) }
    const make = () => creator.create(name, describeTask(task, ownerId), context, given)
    if (once?.marked === true) {
      const found = await find(name)
      if (found === null) throw gone()
      return found.Id
    }
    return make().catch(async (error: unknown) => {
      if (!isNameTaken(error)) throw error
      const found = await find(name)
      if (found !== null && attemptOf(found) >= (task.attempt ?? 1)) return found.Id
      if (found !== null) await remove(found.Id)
      return make()
    })
  }

  const start = async (id: string, task: Task, signal: AbortSignal, once?: Once): Promise<void> => {
    await creator.writeFiles(id, task.files, foldersOf(task))
    signal.throwIfAborted()
    await once?.mark()
    signal.throwIfAborted()
    await creator.start(id, task.environmentId)
  }

  const startOrJoin = async (task: Task, signal: AbortSignal, once?: Once): Promise<string> => {
    const id = await createOrJoin(task, signal, once)
    const { State } = await containers.inspect(id)
    // One that never started may lack its files.
    if (State.Status !== 'created') return id
    if (signal.aborted && !(signal.reason instanceof LeaseHandedOff)) {
      // A concurrent end of the task has not seen it yet.
      await remove(id)
      throw signal.reason
    }
    await start(id, task, signal, once)
    return id
  }

  return { startOrJoin, remove }
}

/** SIGTERM, and SIGKILL after the grace; what has ended is fine. */
const stopContainer = async (
  engine: Engine,
  clock: Clock,
  id: string,
  graceMs: number,
  signal: AbortSignal,
): Promise<void> => {
  const kill = (name: string) =>
    engine.call('POST', `/containers/${id}/kill`, { query: { signal: name } }).catch((error: unknown) => {
      if (!isEngineError(error, 404, 409)) throw error
    })
  const ended = engine.call('POST', `/containers/${id}/wait`, { deadlineMs: graceMs + 60_000, signal })
  ended.catch(() => {})
  if (graceMs > 0) {
    await kill('SIGTERM')
    await waitAtMost(clock, graceMs, ended, signal).catch(() => {})
  }
  await kill('SIGKILL')
  await untilAborted(ignoreGone(ended), signal)
}

interface TasksParts {
  engine: Engine
  containers: Containers
  creator: Creator
  logs: Logs
  ownerId: string
  clock: Clock
}

type TaskResult = Pick<TaskEnd, 'exitCode' | 'oomKilled'>

/** One container, shared by all callers that asked for its task at once. */
interface Execution {
  id: string
  result: Promise<TaskResult>
}

/** The message about a program that could not be started is last. */
const lastLines = 20

/** For a program that is stopped at its deadline, if its owner set nothing. */
const usualGraceMs = 10_000

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

  const begin = async (task: Task, signal: AbortSignal, once?: Once): Promise<Execution> => {
    const id = await startOrJoin(task, signal, once)
    const result = waitForEnd(id)
    const forget = () => void executions.delete(keyOf(task))
    result.then(forget, forget)
    return { id, result }
  }

  const keyOf = ({ taskId, attempt = 1 }: Task): string => `${taskId} ${attempt}`

  const join = (task: Task, signal: AbortSignal, once?: Once): Promise<Execution> => {
    const key = keyOf(task)
    const begun = executions.get(key) ?? begin(task, signal, once)
    executions.set(key, begun)
    begun.catch(() => executions.delete(key))
    return begun
  }

  /** All lines; those that the engine had not written when it ended the stream are read afterwards. */
  const readOutput = async (
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
    // One that has ended did so in time, even if that was not observed.
    if (!State.Running) return new Promise<void>(() => {})
    const ageMs = clock.now().getTime() - new Date(State.StartedAt).getTime()
    await clock.sleep(Math.max(0, Math.min(task.timeoutMs, task.timeoutMs - ageMs)), signal)
  }

  /** Files of a lost container are not missing: they are unknown. */
  const collect = async (id: string, { outputs }: Pick<Task, 'outputs'>, isGood: boolean, signal: AbortSignal) => {
    const found = await collectOutputs(outputs, isGood, (path) => openFileOf(engine, id, path, signal), signal)
    if (Object.keys(found).length < outputs.length)
      await containers.inspect(id, signal).catch((error: unknown) => {
        throw isGone(error) ? gone(error) : error
      })
    return found
  }

  const run: Runtime['run'] = async (task, onLine, signal, once) => {
    signal.throwIfAborted()
    const done = new AbortController()
    try {
      const { id, result } = await untilAborted(join(task, signal, once), signal)
      const source = { id, name: taskName(task.taskId), revision: task.taskId }
      const last: string[] = []
      const keep = (line: string): void => {
        last.push(line)
        if (last.length > lastLines) last.shift()
        onLine(line)
      }
      const work = Promise.all([result, readOutput(source, result, keep)])
      const either = AbortSignal.any([signal, done.signal])
      let timedOut = false
      const stopped = sleepUntilLate(task, id, either).then(() => {
        timedOut = true
        return stopContainer(engine, clock, id, task.stopGraceMs ?? usualGraceMs, either)
      })
      const [ended] = await untilAborted(Promise.race([work, stopped.then(() => work)]), signal)
      const isGood = ended.exitCode === 0 && !timedOut
      const why = ended.exitCode === 0 ? null : await whyNotStarted(engine, id, last, signal)
      const outputs = await collect(id, task, isGood, signal)
      return { ...ended, timedOut, outputs, ...(why === null ? {} : { notStarted: why }) }
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
    stop: async (task: TaskKey & Pick<Task, 'outputs'>, graceMs: number, signal: AbortSignal) => {
      const [row] = await rowsOf(task.taskId, signal)
      if (row === undefined) return null
      if (row.State === 'running') await stopContainer(engine, clock, row.Id, graceMs, signal)
      return collect(row.Id, task, false, signal).catch((error: unknown): TaskOutputs | null => {
        if (error instanceof DeploymentError && error.code === 'task_gone') return null
        throw error
      })
    },
    /** Containers that are not ours are kept. */
    end: async ({ taskId }: TaskKey, signal: AbortSignal): Promise<void> => {
      const rows = await rowsOf(taskId, signal)
      await untilAborted(Promise.all(rows.map((row) => remove(row.Id))), signal)
    },
  }
}
