/**
 * The outputs of an execution with more than one small file: a claim of its own, which outlives its pod however that
 * ends, and a job that passes the files on when it is asked to begin. Pure.
 */
import { dirname } from 'node:path/posix'
import { Secret } from '../../../lib/secret.ts'
import type { Task } from '../../runtime.ts'
import {
  claimSpec,
  collectorNameOf,
  idLabels,
  labels,
  type Manifest,
  namespaceOf,
  type Place,
  taskNameOf,
} from './describe.ts'
import { containerOf, podSpecOf, volumeGroup } from './pod.ts'

/** The files that an execution should leave; alternatives are left out. */
export const desiredOutputs = ({ outputs }: Pick<Task, 'outputs'>) =>
  outputs.filter(({ isAlternative }) => isAlternative !== true)

/** Whether they are stored in a claim; else they are the one file that the kubelet reads. */
export const keepsFiles = (task: Pick<Task, 'outputs'>): boolean => desiredOutputs(task).length > 1

/** Why an execution cannot leave the requested files here; null if it can. */
export const outputRefusal = (task: Pick<Task, 'outputs'>): string | null => {
  const wanted = desiredOutputs(task)
  if (wanted.some(({ stream }) => stream !== undefined))
    return 'A run on a Kubernetes cluster can leave no large files: what does needs a cluster that is a Docker engine.'
  if (new Set(wanted.map(({ path }) => dirname(path))).size <= 1) return null
  return 'A run on a Kubernetes cluster leaves its files in one folder.'
}

const volumeName = 'left'
const workName = 'work'
/** Many providers of volumes create no smaller ones. */
const size = '1Gi'
const workSize = '10Gi'

export interface PodParts {
  securityContext: object
  volumes: readonly object[]
  containers: readonly { volumeMounts: readonly object[] }[]
}

/** Its claim is the folder of its outputs. `/tmp` is a separate folder, because it may write nowhere else. */
export const withOutputs = <T extends PodParts>(
  { taskId, outputs }: Pick<Task, 'taskId' | 'outputs'>,
  pod: T,
): object => {
  const mounts = [
    { name: volumeName, mountPath: dirname(outputs[0]?.path ?? '/') },
    { name: workName, mountPath: '/tmp' },
  ]
  return {
    ...pod,
    securityContext: { ...pod.securityContext, fsGroup: volumeGroup, fsGroupChangePolicy: 'OnRootMismatch' },
    volumes: [
      ...pod.volumes,
      { name: volumeName, persistentVolumeClaim: { claimName: taskNameOf(taskId) } },
      { name: workName, emptyDir: { sizeLimit: workSize } },
    ],
    containers: pod.containers.map((each) => ({ ...each, volumeMounts: [...each.volumeMounts, ...mounts] })),
  }
}

/** The resources of the job that passes the files on: it waits, and copies. */
const collectorAmounts = { cpuMillicores: 50, memoryMb: 32 }
/** It is ended with its execution; lost machines count. */
const mostCollectors = 100

/**
 * The claim, and the job that waits in it until the files are read. It runs the same image, which its machine probably
 * has, as the same user, who owns the files; it gets no variables and no files.
 */
export const describeOutputs = (task: Task, place: Place, pullSecrets: readonly string[]): Manifest[] => {
  if (!keepsFiles(task)) return []
  const own = { ...idLabels(place, task), [labels.task]: task.taskId }
  const namespace = namespaceOf(task.environmentId)
  const collecting = { ...own, [labels.role]: 'collector' }
  const bare = {
    ...task,
    ...collectorAmounts,
    env: new Secret({}),
    files: new Secret([]),
    volumes: [],
    entrypoint: ['sleep', '2147483647'],
    arguments: null,
  }
  const pod = {
    ...podSpecOf(bare, place, pullSecrets),
    restartPolicy: 'Never',
    terminationGracePeriodSeconds: 1,
    containers: [containerOf(bare, place)],
  }
  return [
    {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: taskNameOf(task.taskId), namespace, labels: own },
      spec: claimSpec(size, place),
    },
    {
      apiVersion: 'batch/v1',
      kind: 'Job',
      metadata: { name: collectorNameOf(task.taskId), namespace, labels: collecting },
      spec: {
        suspend: true,
        backoffLimit: mostCollectors,
        completions: 1,
        parallelism: 1,
        template: { metadata: { labels: collecting }, spec: withOutputs(task, pod) },
      },
    },
  ]
}
