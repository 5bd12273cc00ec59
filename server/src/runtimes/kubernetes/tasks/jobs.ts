/** The jobs of executions: made once, found again by their names, also after a crash of ours. */
import { DeploymentError } from '../../../lib/errors.ts'
import type { RemoveOptions } from '../../../lib/kubernetes/kubernetes-api.ts'
import { LeaseHandedOff } from '../../../lib/lease-handed-off.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Once, Task, TaskKey } from '../../runtime.ts'
import { untilGone } from '../follow.ts'
import type { KubernetesImages } from '../images.ts'
import { annotations, labels, namespaceOf, pullSecretNames, taskNameOf } from '../manifests/describe.ts'
import { describeOutputs } from '../manifests/outputs.ts'
import { describeTaskParts } from '../manifests/service.ts'
import { describeTask } from '../manifests/task.ts'
import { asDeploymentError, type Found, type Kind, type Objects, pathOf } from '../objects.ts'
import type { Ending } from './ending.ts'

export interface JobsParts {
  objects: Objects
  images: Pick<KubernetesImages, 'loginsFor'>
  clock: Clock
}

export const gone = (cause?: unknown): DeploymentError =>
  new DeploymentError('task_gone', 'The run was removed from the cluster before it finished.', { cause })

const attemptOf = ({ metadata }: Found): number => Number.parseInt(metadata.labels?.[labels.attempt] ?? '', 10) || 1

export const createJobs = ({ objects, images, clock }: JobsParts) => {
  const { api, place } = objects

  const find = ({ environmentId, taskId }: TaskKey, signal: AbortSignal): Promise<Found | null> =>
    objects.get('Job', namespaceOf(environmentId), taskNameOf(taskId), signal)

  /** All objects of an execution; its files last, because there is no other copy. */
  const removeJob = async (task: TaskKey, signal: AbortSignal): Promise<void> => {
    const namespace = namespaceOf(task.environmentId)
    const own = { [labels.task]: task.taskId }
    const removeAll = async (kind: Kind, options: RemoveOptions = {}): Promise<boolean> => {
      const found = await objects.list(kind, own, namespace, signal)
      for (const { metadata } of found)
        await objects.remove(kind, namespace, metadata.name, { ...options, uid: metadata.uid, signal })
      return found.length > 0
    }
    await removeAll('Job', { propagation: 'Background' })
    await removeAll('Secret')
    await removeAll('Pod', { graceSeconds: 1 })
    await untilGone(objects, clock, 'Job', own, namespace, signal)
    await untilGone(objects, clock, 'Pod', own, namespace, signal)
    if (await removeAll('PersistentVolumeClaim'))
      await untilGone(objects, clock, 'PersistentVolumeClaim', own, namespace, signal)
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
    const pullSecrets = pullSecretNames(task, place, logins)
    const parts = [...describeTaskParts(task, place, logins), ...describeOutputs(task, place, pullSecrets)]
    for (const manifest of parts) await objects.apply(manifest, signal)
    return objects.apply(describeTask(task, place, pullSecrets, once !== undefined), signal)
  }

  /** A job that was created to wait for its mark begins; a running one is left alone. */
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
      await removeJob(task, signal)
      job = null
    }
    if (job === null && once?.marked === true) throw gone()
    if (job !== null && attemptOf(job) < (task.attempt ?? 1)) {
      await removeJob(task, signal)
      job = null
    }
    job ??= await create(task, signal, once)
    await begin(task, job, signal, once)
    return job
  }

  const writeDown = (task: TaskKey, ending: Ending): Promise<void> =>
    patchJob(task, { metadata: { annotations: { [annotations.end]: JSON.stringify(ending) } } }).catch(
      (error: unknown) => {
        // It was ended meanwhile: nothing waits for it.
        if (!(error instanceof DeploymentError && error.code === 'cluster_rejected')) throw error
      },
    )

  return { find, removeJob, patchJob, startOrJoin, writeDown }
}
