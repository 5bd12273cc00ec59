/**
 * Programs that run to completion, each as a Job that begins once. The same task id joins the execution that is there,
 * also after a crash of ours: how it ended is written down beside it, since its pod may be gone by then.
 */
import { DeploymentError } from '../../../lib/errors.ts'
import { LeaseHandedOff } from '../../../lib/lease-handed-off.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Once, Runtime, Task, TaskKey } from '../../runtime.ts'
import { followObjects, untilGone } from '../follow.ts'
import type { KubernetesImages } from '../images.ts'
import type { PodLogs } from '../logs.ts'
import { annotations, labels, namespaceOf, pullSecretOf, taskNameOf } from '../manifests/describe.ts'
import { describeTaskParts } from '../manifests/service.ts'
import { describeTask, outputRefusal } from '../manifests/task.ts'
import { asDeploymentError, type Found, type Objects, pathOf } from '../objects.ts'
import { isOver, mainOf, type Pod } from '../pods.ts'
import { judgePod } from '../verdict.ts'
import { type Ending, endingIn, endingOf, endOf, outputsOf } from './ending.ts'

export interface TasksParts {
  objects: Objects
  images: Pick<KubernetesImages, 'loginsFor'>
  logs: PodLogs
  clock: Clock
}

/** For machines and images, beside the time of the program. */
const startMs = 10 * 60_000

const gone = (cause?: unknown): DeploymentError =>
  new DeploymentError('task_gone', 'The run was removed from the cluster before it finished.', { cause })

const attemptOf = ({ metadata }: Found): number => Number.parseInt(metadata.labels?.[labels.attempt] ?? '', 10) || 1

export const createTasks = ({ objects, images, logs, clock }: TasksParts) => {
  const { api, place } = objects

  const find = ({ environmentId, taskId }: TaskKey, signal: AbortSignal): Promise<Found | null> =>
    objects.get('Job', namespaceOf(environmentId), taskNameOf(taskId), signal)

  const removeJob = async (task: TaskKey, job: Found | null, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(task.environmentId)
    const own = { [labels.task]: task.taskId }
    if (job !== null)
      await objects.remove('Job', namespace, job.metadata.name, {
        uid: job.metadata.uid,
        propagation: 'Background',
        signal,
      })
    for (const { metadata } of await objects.list('Secret', own, namespace, signal))
      await objects.remove('Secret', namespace, metadata.name, { uid: metadata.uid, signal })
    for (const { metadata } of await objects.list('Pod', own, namespace, signal))
      await objects.remove('Pod', namespace, metadata.name, { uid: metadata.uid, graceSeconds: 1, signal })
    await untilGone(objects, clock, 'Job', own, namespace, signal)
    await untilGone(objects, clock, 'Pod', own, namespace, signal)
  }

  const patchJob = async ({ environmentId, taskId }: TaskKey, patch: object, signal?: AbortSignal): Promise<void> => {
    const path = pathOf('Job', namespaceOf(environmentId), taskNameOf(taskId))
    await api.merge(path, patch, { signal }).catch((error: unknown) => {
      signal?.throwIfAborted()
      throw asDeploymentError(error, 'the run')
    })
  }

  const create = async (task: Task, signal: AbortSignal, once?: Once): Promise<Found> => {
    const logins = await images.loginsFor(task.organizationId, task.image)
    await objects.prepare(task, signal)
    for (const manifest of describeTaskParts(task, place, logins)) await objects.apply(manifest, signal)
    const secrets = logins.map((_, index) => pullSecretOf(task.serviceId, index))
    return objects.apply(describeTask(task, place, secrets, once !== undefined), signal)
  }

  /** What was made to wait for its mark begins; what runs already is left alone. */
  const begin = async (task: Task, job: Found, signal: AbortSignal, once?: Once): Promise<void> => {
    if (job.spec?.suspend !== true) return
    if (signal.aborted && !(signal.reason instanceof LeaseHandedOff)) throw signal.reason
    await once?.mark()
    signal.throwIfAborted()
    await patchJob(task, { spec: { suspend: false } }, signal)
  }

  const startOrJoin = async (task: Task, signal: AbortSignal, once?: Once): Promise<Found> => {
    let job = await find(task, signal)
    if (job !== null && job.metadata.deletionTimestamp !== undefined) {
      await removeJob(task, job, signal)
      job = null
    }
    if (job === null && once?.marked === true) throw gone()
    if (job !== null && attemptOf(job) < (task.attempt ?? 1)) {
      await removeJob(task, job, signal)
      job = null
    }
    job ??= await create(task, signal, once)
    await begin(task, job, signal, once)
    return job
  }

  const writeDown = (task: TaskKey, ending: Ending): Promise<void> =>
    patchJob(task, { metadata: { annotations: { [annotations.end]: JSON.stringify(ending) } } }).catch(
      (error: unknown) => {
        // Somebody ended it meanwhile: there is nobody left to be told.
        if (!(error instanceof DeploymentError && error.code === 'cluster_rejected')) throw error
      },
    )

  /** Follows the pod of an execution to its end. `onPod` is told of it whenever it changes. */
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
    const own = { [labels.task]: task.taskId }
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
    const jobs = followObjects(
      objects,
      clock,
      { kind: 'Job', namespace, wanted: own, onChange: (change) => change.type === 'DELETED' && reject(gone()) },
      either,
    )
    for (const each of [follow, jobs]) each.catch((error) => reject(asDeploymentError(error, 'the run')))
    clock.sleep(task.timeoutMs + startMs, either).then(
      () => reject(problem ?? new DeploymentError('not_started', 'The cluster did not begin the run in time.')),
      () => {},
    )
    const onAbort = (): void => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    try {
      return await promise
    } finally {
      ended.abort()
      signal.removeEventListener('abort', onAbort)
    }
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
      /** What was written before anybody read, and after the stream was cut. */
      async end(): Promise<void> {
        await reading?.catch(() => {})
        if (pod !== null) await pass(pod, false).catch(() => {})
      },
    }
  }

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
