/** Programs that run to their end. The same task id joins the execution that is, also after a crash of ours. */
import type { Clock } from '../../lib/clock.ts'
import { type Engine, ignoreGone } from '../../lib/docker-engine.ts'
import { DeploymentError } from '../../lib/errors.ts'
import { Handover } from '../../lib/handover.ts'
import type { Task } from '../runtime.ts'
import type { Containers } from './containers.ts'
import { type Creator, isNameTaken } from './create.ts'
import { describeTask, labels, taskName } from './describe.ts'
import { untilAborted } from './limit.ts'
import type { Logs } from './logs.ts'

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

/** One container, shared by all who asked for its task. */
interface Execution {
  id: string
  result: Promise<TaskResult>
  /** The last who leaves removes the container, unless somebody else goes on with it. */
  leave(isHandedOver: boolean): Promise<void>
  users: number
}

const errorLines = 50

export const createTasks = ({ engine, containers, creator, logs, ownerId, clock }: TasksParts) => {
  const executions = new Map<string, Promise<Execution>>()

  const createOrJoin = async (task: Task, signal: AbortSignal): Promise<string> => {
    const name = taskName(task.taskId)
    const context = { environmentId: task.environmentId, progress: () => {}, signal }
    const make = () => creator.create(name, describeTask(task, ownerId), context)
    const id = await make().catch(async (error: unknown) => {
      if (!isNameTaken(error)) throw error
      const { Id, Config } = await containers.inspect(name)
      if (Config.Labels[labels.owner] === ownerId) return Id
      throw new DeploymentError('name_taken', `A container named ${name} belongs to someone else.`)
    })
    const { State } = await containers.inspect(id)
    // One that never started may lack its files.
    if (State.Status === 'created') {
      await creator.writeFiles(id, task.files)
      await creator.start(id, task.environmentId)
    }
    return id
  }

  const waitForEnd = async (id: string): Promise<TaskResult> => {
    await engine.call('POST', `/containers/${id}/wait`, { deadlineMs: 2 ** 31 - 1 })
    const { State } = await containers.inspect(id)
    return { exitCode: State.ExitCode, oomKilled: State.OOMKilled }
  }

  const remove = (id: string) =>
    ignoreGone(engine.call('DELETE', `/containers/${id}`, { query: { force: true, v: true }, deadlineMs: 60_000 }))

  const begin = async (task: Task, signal: AbortSignal): Promise<Execution> => {
    const id = await createOrJoin(task, signal)
    const result = waitForEnd(id)
    result.catch(() => {})
    const execution: Execution = {
      id,
      result,
      users: 0,
      leave: async (isHandedOver) => {
        execution.users -= 1
        if (execution.users > 0) return
        executions.delete(task.taskId)
        if (!isHandedOver) await remove(id)
      },
    }
    return execution
  }

  const join = async (task: Task, signal: AbortSignal): Promise<Execution> => {
    const begun = executions.get(task.taskId) ?? begin(task, signal)
    executions.set(task.taskId, begun)
    begun.catch(() => executions.delete(task.taskId))
    const execution = await begun
    execution.users += 1
    return execution
  }

  const tell = async (source: { id: string; name: string; revision: string }, onLine: (line: string) => void) => {
    for await (const lines of logs.read(source, { follow: true })) for (const line of lines) onLine(line.text)
  }

  const timeOut = async (task: Task, id: string, signal: AbortSignal): Promise<never> => {
    const { State } = await containers.inspect(id)
    const ageMs = clock.now().getTime() - new Date(State.StartedAt).getTime()
    await clock.sleep(Math.max(0, Math.min(task.timeoutMs, task.timeoutMs - ageMs)), signal)
    const lines = await logs.lastLines({ id, name: '', revision: '' }, errorLines).catch(() => [])
    const message = `The task did not end within ${Math.round(task.timeoutMs / 1000)} s.`
    throw new DeploymentError('task_timeout', message, { lines })
  }

  const run = async (task: Task, onLine: (line: string) => void, signal: AbortSignal): Promise<TaskResult> => {
    signal.throwIfAborted()
    const joined = join(task, signal)
    const done = new AbortController()
    try {
      const execution = await untilAborted(joined, signal)
      const source = { id: execution.id, name: taskName(task.taskId), revision: task.taskId }
      const work = Promise.all([execution.result, tell(source, onLine)])
      const deadline = timeOut(task, execution.id, AbortSignal.any([signal, done.signal]))
      deadline.catch(() => {})
      const [result] = await untilAborted(Promise.race([work, deadline]), signal)
      return result
    } finally {
      done.abort()
      await joined.then(
        (execution) => execution.leave(signal.reason instanceof Handover),
        () => {},
      )
    }
  }
  return {
    run,
    /** What is not ours stays. */
    end: async (taskId: string, signal: AbortSignal): Promise<void> => {
      const rows = await containers.list({ [labels.task]: taskId }, { tasks: true, signal })
      await untilAborted(Promise.all(rows.map((row) => remove(row.Id))), signal)
    },
  }
}
