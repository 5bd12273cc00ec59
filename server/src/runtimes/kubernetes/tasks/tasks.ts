/**
 * Programs that run to completion, each as a Job that begins once. The same task id joins the existing execution, also
 * after a crash of ours: its result is stored separately, because its pod may be gone by then.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { Once, Runtime, Task, TaskKey } from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import type { PodLogs } from '../logs/logs.ts'
import { namespaceOf } from '../manifests/describe.ts'
import { keepsFiles, outputRefusal } from '../manifests/outputs.ts'
import type { Found } from '../objects.ts'
import type { Pod } from '../pods.ts'
import { type Ending, endingIn, endOf, outputsOf } from './ending.ts'
import { createJobs, type JobsParts } from './jobs.ts'
import { createOutputReader } from './outputs.ts'
import { createWait, executionOf } from './wait.ts'

interface TasksParts extends JobsParts {
  logs: PodLogs
}

interface JobSpec {
  template?: { spec?: { volumes?: { persistentVolumeClaim?: { claimName?: string } }[] } }
}

/** For an execution whose pod disappeared before it had a result. */
const lost: Ending = { exitCode: 137, oomKilled: false, timedOut: false, left: null }

/** Whether an execution was begun with a claim for its files. */
const isKeeper = ({ metadata, spec }: Found): boolean => {
  const { volumes = [] } = (spec as JobSpec | undefined)?.template?.spec ?? {}
  return volumes.some(({ persistentVolumeClaim: claim }) => claim?.claimName === metadata.name)
}

/** A long run must not fail because of a connection that is lost at its end. */
const triesToRead = 3

const isStop = (error: unknown): error is DeploymentError => error instanceof DeploymentError && error.next === 'stop'

export const createTasks = ({ objects, images, logs, clock }: TasksParts) => {
  const { find, removeJob, patchJob, startOrJoin, writeDown } = createJobs({ objects, images, clock })
  const { waitForEnd, createReader } = createWait({ objects, logs, clock })
  const outputReader = createOutputReader({ objects, clock })

  const podOf = async (task: TaskKey, signal: AbortSignal): Promise<Pod | null> => {
    const found = await objects.list<Pod>('Pod', executionOf(task), namespaceOf(task.environmentId), signal)
    return found[0] ?? null
  }

  const untilEnded = async (
    task: Task,
    onLine: (line: string) => void,
    signal: AbortSignal,
    once: Once | undefined,
  ): Promise<Ending> => {
    const job = await startOrJoin(task, signal, once)
    const reader = createReader(onLine, signal)
    const known = endingIn(job)
    if (known !== null) {
      const pod = await podOf(task, signal)
      if (pod !== null) reader.see(pod)
      await reader.end()
      return known
    }
    const ending = await waitForEnd(task, reader.see, signal)
    await writeDown(task, ending)
    await reader.end()
    signal.throwIfAborted()
    return ending
  }

  const run: Runtime['run'] = async (task, onLine, signal, once) => {
    signal.throwIfAborted()
    const refusal = outputRefusal(task)
    if (refusal !== null) throw new DeploymentError('task_unsupported', refusal)
    if (!keepsFiles(task)) return endOf(await untilEnded(task, onLine, signal, once), task)
    const ending = await untilEnded(task, onLine, signal, once).catch(async (error: unknown) => {
      const isLost = isStop(error) && error.code === 'task_gone'
      if (!isLost || !(await outputReader.isThere(task, signal))) throw error
      onLine('The pod of the run was removed before it had ended. The files that it had written are read.')
      return lost
    })
    return { ...endOf(ending, task), outputs: await outputReader.collect(task, signal, triesToRead) }
  }

  /** Ends its pod; null: there is no stored result. */
  const end = async (task: TaskKey, job: Found, graceMs: number, signal: AbortSignal): Promise<Ending | null> => {
    const pod = await podOf(task, signal)
    if (pod === null) {
      if (job.spec?.suspend !== true) await patchJob(task, { spec: { suspend: true } }, signal)
      return null
    }
    const waiting = waitForEnd({ ...task, memoryMb: 0, timeoutMs: graceMs }, () => {}, signal)
    waiting.catch(() => {})
    // 0 would only forget a pod that keeps running.
    const graceSeconds = Math.max(1, Math.ceil(graceMs / 1000))
    const { name, namespace = '', uid } = pod.metadata
    await objects.remove('Pod', namespace, name, { uid, graceSeconds, signal })
    try {
      const ending = await waiting
      await writeDown(task, ending)
      return ending
    } catch (error) {
      signal.throwIfAborted()
      // It was never started, or ended without being observed.
      if (isStop(error)) return null
      throw error
    }
  }

  const stop: Runtime['stopTask'] = async (task, graceMs, signal) => {
    const job = await find(task, signal)
    const keeps = await outputReader.isThere(task, signal)
    if (job === null) return keeps ? outputReader.collect(task, signal) : null
    const ending = endingIn(job) ?? (await end(task, job, graceMs, signal))
    // Its files were given up: its effects are unknown.
    if (!keeps && isKeeper(job) && job.spec?.suspend !== true) return null
    if (!keeps) return ending === null ? {} : outputsOf(ending, task)
    const namespace = namespaceOf(task.environmentId)
    if (ending === null) await untilGone(objects, clock, 'Pod', executionOf(task), namespace, signal)
    return outputReader.collect(task, signal)
  }

  return {
    run,
    stop,
    /** Objects that are not ours are kept. */
    end: removeJob,
  }
}
