/** Following an execution to its end, and its lines. */
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Task, TaskKey } from '../../runtime.ts'
import { followObjects } from '../follow.ts'
import type { PodLogs } from '../logs/logs.ts'
import { labels, namespaceOf } from '../manifests/describe.ts'
import { asDeploymentError, type Found, type Objects } from '../objects.ts'
import { isOver, mainOf, type Pod } from '../pods.ts'
import { judgePod } from '../verdict.ts'
import { type Ending, endingOf } from './ending.ts'
import { gone } from './jobs.ts'

/** Selects its job and its pod, and nothing else of it. */
export const executionOf = ({ taskId }: Pick<TaskKey, 'taskId'>): Record<string, string> => ({
  [labels.task]: taskId,
  [labels.role]: 'task',
})

const isFinished = ({ status }: Found): boolean =>
  Array.isArray(status?.conditions) &&
  status.conditions.some(({ type, status: is }) => is === 'True' && (type === 'Failed' || type === 'Complete'))

/** For machines and images, in addition to the time of the program. */
const startMs = 10 * 60_000

export const createWait = ({ objects, logs, clock }: { objects: Objects; logs: PodLogs; clock: Clock }) => {
  /** Follows the pod of an execution to its end. `onPod` is called whenever it changes. */
  const waitForEnd = async (
    task: TaskKey & Pick<Task, 'memoryMb' | 'timeoutMs'>,
    onPod: (pod: Pod) => void,
    signal: AbortSignal,
  ): Promise<Ending> => {
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    const { promise, resolve, reject } = Promise.withResolvers<Ending>()
    let problem: DeploymentError | null = null
    const see = (pod: Pod): void => {
      onPod(pod)
      const ending = endingOf(pod)
      if (ending !== null) {
        resolve(ending)
        return
      }
      const verdict = judgePod(pod, task.memoryMb, [])
      if (verdict !== null) problem = new DeploymentError(verdict.code, verdict.message)
      if (problem !== null && (verdict?.isFinal === true || isOver(pod))) reject(problem)
    }
    const own = executionOf(task)
    const namespace = namespaceOf(task.environmentId)
    const follow = followObjects<Pod>(
      objects,
      clock,
      {
        kind: 'Pod',
        namespace,
        wanted: own,
        onChange: (change) => {
          for (const pod of change.type === 'ALL' ? change.items : [change.object]) see(pod)
          if (change.type === 'DELETED') reject(gone())
        },
      },
      either,
    )
    /** A finished Job still has its pod, unless it was deleted between two polls. */
    const seeJob = async (job: Found): Promise<void> => {
      if (!isFinished(job)) return
      const pods = await objects.list<Pod>('Pod', own, namespace, either)
      for (const pod of pods) see(pod)
      if (pods.length === 0) reject(gone())
    }
    const failed = (error: unknown): void => reject(asDeploymentError(error, 'the run'))
    const jobs = followObjects(
      objects,
      clock,
      {
        kind: 'Job',
        namespace,
        wanted: own,
        onChange: (change) => {
          if (change.type === 'DELETED') reject(gone())
          else for (const job of change.type === 'ALL' ? change.items : [change.object]) seeJob(job).catch(failed)
        },
      },
      either,
    )
    for (const each of [follow, jobs]) each.catch(failed)
    clock.sleep(task.timeoutMs + startMs, either).then(
      () => reject(problem ?? new DeploymentError('not_started', 'The cluster did not begin the run in time.')),
      () => {},
    )
    return untilAborted(promise, signal).finally(() => ended.abort())
  }

  /** Every line, however often the stream is cut. */
  const createReader = (onLine: (line: string) => void, signal: AbortSignal) => {
    let reading: Promise<void> | null = null
    let since: string | undefined
    let pod: Pod | null = null
    const pass = async (of: Pod, follow: boolean): Promise<void> => {
      for await (const { at, text } of logs.read(of, { follow, signal, since })) {
        since = at
        onLine(text)
      }
    }
    return {
      see(seen: Pod): void {
        pod = seen
        if (reading !== null || mainOf(seen)?.state?.running === undefined) return
        reading = pass(seen, true)
        reading.catch(() => {})
      },
      /** Lines written before the first read, and after the stream was cut. */
      async end(): Promise<void> {
        await reading?.catch(() => {})
        if (pod !== null) await pass(pod, false).catch(() => {})
      },
    }
  }

  return { waitForEnd, createReader }
}
