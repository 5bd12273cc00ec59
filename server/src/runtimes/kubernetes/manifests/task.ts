/** The job that executes a task. Pure. */
import type { Task } from '../../runtime.ts'
import { idLabels, labels, type Manifest, namespaceOf, ownersWords, type Place, taskNameOf } from './describe.ts'
import { withoutLarge, withParts } from './large-files.ts'
import { desiredOutputs, keepsFiles, withOutputs } from './outputs.ts'
import { containerOf, podSpecOf } from './pod.ts'

/** The kubelet reads one small file of a program that has ended. */
export const longestMessage = 4096

/** An execution: it is begun once, and never again. */
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
  const [output] = desiredOutputs(task)
  const message = output === undefined || keepsFiles(task) ? {} : { terminationMessagePath: output.path }
  const usual = withoutLarge(task)
  const pod = withParts(task, place, {
    ...podSpecOf(usual, place, pullSecrets),
    restartPolicy: 'Never',
    activeDeadlineSeconds: Math.max(1, Math.ceil(task.timeoutMs / 1000)),
    terminationGracePeriodSeconds: Math.ceil((task.stopGraceMs ?? 10_000) / 1000),
    containers: [{ ...containerOf(usual, place), ...message }],
  })
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
        spec: keepsFiles(task) ? withOutputs(task, pod) : pod,
      },
    },
  }
}
