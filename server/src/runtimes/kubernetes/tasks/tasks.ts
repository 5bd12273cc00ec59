/**
 * Programs that run to completion, each as a Job that begins once. The same task id joins the execution that is there,
 * also after a crash of ours: how it ended is written down beside it, since its pod may be gone by then.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import type { Runtime, TaskKey } from '../../runtime.ts'
import type { PodLogs } from '../logs/logs.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { outputRefusal } from '../manifests/task.ts'
import type { Pod } from '../pods.ts'
import { endingIn, endOf, outputsOf } from './ending.ts'

import { createJobs, type JobsParts } from './jobs.ts'
import { createWait } from './wait.ts'

export interface TasksParts extends JobsParts {
  logs: PodLogs
}

export const createTasks = ({ objects, images, logs, clock }: TasksParts) => {
  const { find, removeJob, patchJob, startOrJoin, writeDown } = createJobs({ objects, images, clock })
  const { waitForEnd, createReader } = createWait({ objects, logs, clock })

  const podOf = async ({ environmentId, taskId }: TaskKey, signal: AbortSignal): Promise<Pod | null> => {
    const found = await objects.list<Pod>('Pod', { [labels.task]: taskId }, namespaceOf(environmentId), signal)
    return found[0] ?? null
  }

  const run: Runtime['run'] = async (task, onLine, signal, once) => {
    signal.throwIfAborted()
    const refusal = outputRefusal(task)
    if (refusal !== null) throw new DeploymentError('task_unsupported', refusal)
    const job = await startOrJoin(task, signal, once)
    const reader = createReader(onLine, signal)
    const known = endingIn(job)
    if (known !== null) {
      const pod = await podOf(task, signal)
      if (pod !== null) reader.see(pod)
      await reader.end()
      return endOf(known, task)
    }
    const ending = await waitForEnd(task, reader.see, signal)
    await writeDown(task, ending)
    await reader.end()
    signal.throwIfAborted()
    return endOf(ending, task)
  }

  const stop: Runtime['stopTask'] = async (task, graceMs, signal) => {
    const job = await find(task, signal)
    if (job === null) return null
    const known = endingIn(job)
    if (known !== null) return outputsOf(known, task)
    const pod = await podOf(task, signal)
    if (pod === null) {
      await patchJob(task, { spec: { suspend: true } }, signal)
      return {}
    }
    const waiting = waitForEnd({ ...task, memoryMb: 0, timeoutMs: graceMs }, () => {}, signal)
    waiting.catch(() => {})
    // 0 would only forget a pod that goes on running.
    const graceSeconds = Math.max(1, Math.ceil(graceMs / 1000))
    const { name, namespace = '', uid } = pod.metadata
    await objects.remove('Pod', namespace, name, { uid, graceSeconds, signal })
    try {
      const ending = await waiting
      await writeDown(task, ending)
      return outputsOf(ending, task)
    } catch (error) {
      signal.throwIfAborted()
      // It was never started, or ended unseen: then it left nothing that anybody could read.
      if (error instanceof DeploymentError && error.next === 'stop') return {}
      throw error
    }
  }

  return {
    run,
    stop,
    /** What is not ours stays. */
    end: async (task: TaskKey, signal: AbortSignal): Promise<void> => removeJob(task, await find(task, signal), signal),
  }
}
