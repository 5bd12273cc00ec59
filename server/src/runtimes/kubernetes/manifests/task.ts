/** A task → the job that executes it. Pure. */
import type { Task } from '../../runtime.ts'
import { idLabels, labels, type Manifest, namespaceOf, ownersWords, type Place, taskNameOf } from './describe.ts'
import { containerOf, podSpecOf } from './pod.ts'

/** The kubelet reads one small file of a program that has ended. */
export const longestMessage = 4096

/** The files that an execution is to leave: others are places for the same. */
const wantedOf = ({ outputs }: Pick<Task, 'outputs'>) => outputs.filter(({ isAlternative }) => isAlternative !== true)

/** Why an execution cannot leave what is asked of it here; null if it can. */
export const outputRefusal = (task: Pick<Task, 'outputs'>): string | null => {
  const wanted = wantedOf(task)
  if (wanted.length <= 1 && wanted.every(({ stream }) => stream === undefined)) return null
  return 'A run on a Kubernetes cluster can leave one small file: what leaves more needs a cluster that is a Docker engine.'
}

/** An execution: it is begun once, and nobody begins it again. */
export const describeTask = (
  task: Task,
  place: Place,
  pullSecrets: readonly string[],
  suspended: boolean,
): Manifest => {
  const words = ownersWords(task.labels)
  const own = {
    ...idLabels(place, task),
    [labels.role]: 'task',
    [labels.revision]: task.taskId,
    [labels.task]: task.taskId,
    [labels.attempt]: String(task.attempt ?? 1),
  }
  const [output] = wantedOf(task)
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name: taskNameOf(task.taskId), namespace: namespaceOf(task.environmentId), labels: own },
    spec: {
      suspend: suspended,
      backoffLimit: 0,
      completions: 1,
      parallelism: 1,
      template: {
        metadata: { labels: { ...words.labels, ...own }, annotations: words.annotations },
        spec: {
          ...podSpecOf(task, place, pullSecrets),
          restartPolicy: 'Never',
          activeDeadlineSeconds: Math.max(1, Math.ceil(task.timeoutMs / 1000)),
          terminationGracePeriodSeconds: Math.ceil((task.stopGraceMs ?? 10_000) / 1000),
          containers: [
            {
              ...containerOf(task, place),
              ...(output === undefined ? {} : { terminationMessagePath: output.path }),
            },
          ],
        },
      },
    },
  }
}
