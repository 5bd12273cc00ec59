/** Containers of tasks: made, started, or found again by their name, also after a crash of ours. */
import { dirname } from 'node:path/posix'
import { type Engine, isEngineError } from '../../../lib/docker/docker-engine.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { LeaseHandedOff } from '../../../lib/lease-handed-off.ts'
import type { Once, Task } from '../../runtime.ts'
import type { ContainerDetail, Containers } from '../containers.ts'
import { type Creator, isNameTaken } from '../create.ts'
import { describeTask, labels, taskName } from '../describe.ts'
import { removeContainer } from '../endings.ts'

const attemptOf = ({ Config }: ContainerDetail): number => Number.parseInt(Config.Labels[labels.attempt] ?? '', 10) || 1

/** Folders to write outputs to. Those inside a volume are the service's own: nothing of them is changed. */
const foldersOf = ({ outputs, volumes }: Task): string[] => {
  const isOwn = (path: string) => !volumes.some(({ mountPath }) => path.startsWith(mountPath.replace(/\/*$/, '/')))
  const folders = new Set(outputs.flatMap(({ path }) => (isOwn(path) ? [dirname(path)] : [])))
  // The top is there, and not for anyone to write to.
  folders.delete('/')
  return [...folders]
}

export const isGone = (error: unknown): boolean => isEngineError(error, 404)

export const gone = (cause?: unknown): DeploymentError =>
  new DeploymentError('task_gone', 'The container was removed before the run finished.', { cause })

interface StartsParts {
  engine: Engine
  containers: Containers
  creator: Creator
  ownerId: string
}

export const createStarts = ({ engine, containers, creator, ownerId }: StartsParts) => {
  const remove = (id: string) => removeContainer(engine, id)

  /** The container of this task's name; null when there is none. One of somebody else's is an error. */
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
      // Whoever ended the task meanwhile did not see it yet.
      await remove(id)
      throw signal.reason
    }
    await start(id, task, signal, once)
    return id
  }

  return { startOrJoin, remove }
}
