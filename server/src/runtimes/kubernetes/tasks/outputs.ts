/**
 * Reads the files that an execution left in its claim, any number of times and however its pod ended. No file is lost
 * here: until they are read, every failure is transient.
 */
import { untilAborted } from '../../../lib/concurrency/waiting.ts'
import { DeploymentError } from '../../../lib/errors.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import { collectOutputs, type OutputFile } from '../../collect-outputs.ts'
import type { TaskKey, TaskOutput, TaskOutputs } from '../../runtime.ts'
import { followObjects } from '../follow.ts'
import { collectorNameOf, containerName, labels, namespaceOf, taskNameOf } from '../manifests/describe.ts'
import { desiredOutputs } from '../manifests/outputs.ts'
import { asDeploymentError, type Objects, pathOf } from '../objects.ts'
import { isOver, mainOf, type Pod } from '../pods.ts'
import { judgePod } from '../verdict.ts'

type Outputs = TaskKey & { outputs: readonly TaskOutput[] }

/** For a machine and the volume. Starting continues after that, and the next caller finds it. */
const startMs = 60_000
const readMs = 60_000
const pauseMs = 500
/** Its size in a line, then the file itself unless it is too large. */
const script = '[ -f "$1" ] || exit 44; size=$(wc -c < "$1"); echo "$size"; [ "$size" -gt "$2" ] || cat "$1"'
const isMissing = 44
const longestLine = 32

const unread = ({ environmentId, taskId }: TaskKey, reason: string, cause?: unknown): DeploymentError =>
  new DeploymentError(
    'outputs_unread',
    `The files of the run cannot be read from its volume yet: ${reason} They are kept. To give them up, delete the PersistentVolumeClaim ${taskNameOf(taskId)} in the namespace ${namespaceOf(environmentId)}.`,
    { next: 'wait', cause },
  )

/** The output of an untrusted program about a file; null if there is none. */
const parse = (task: TaskKey, output: Buffer, exitCode: number, maxBytes: number): OutputFile | null => {
  if (exitCode === isMissing) return null
  const end = output.indexOf('\n')
  const size = Number(
    /^ *(\d{1,15}) *$/.exec(output.subarray(0, Math.max(0, end)).toString('latin1'))?.[1] ?? Number.NaN,
  )
  const content = output.subarray(end + 1)
  const isWhole = exitCode === 0 && content.length === size
  if (!isWhole && !(size > maxBytes)) throw unread(task, 'the file arrived incomplete.')
  return {
    size,
    bytes: (async function* () {
      yield content
    })(),
    close: () => {},
  }
}

export const createOutputReader = ({ objects, clock }: { objects: Objects; clock: Clock }) => {
  const { api } = objects

  /** The pod in which the files are. */
  const startCollector = async (task: TaskKey, signal: AbortSignal): Promise<Pod> => {
    const namespace = namespaceOf(task.environmentId)
    const path = pathOf('Job', namespace, collectorNameOf(task.taskId))
    await api.merge(path, { spec: { suspend: false } }, { signal })
    const ended = new AbortController()
    const either = AbortSignal.any([signal, ended.signal])
    const { promise, resolve, reject } = Promise.withResolvers<Pod>()
    let reason = 'the cluster starts nothing that reads them.'
    const see = (pod: Pod): void => {
      if (mainOf(pod)?.state?.running !== undefined && pod.metadata.deletionTimestamp === undefined) resolve(pod)
      else if (!isOver(pod)) reason = judgePod(pod, 0, [])?.message ?? reason
    }
    const wanted = { [labels.task]: task.taskId, [labels.role]: 'collector' }
    const onChange: Parameters<typeof followObjects<Pod>>[2]['onChange'] = (change) => {
      for (const pod of change.type === 'ALL' ? change.items : [change.object]) see(pod)
    }
    followObjects<Pod>(objects, clock, { kind: 'Pod', namespace, wanted, onChange }, either).catch(reject)
    clock.sleep(startMs, either).then(
      () => reject(unread(task, reason)),
      () => {},
    )
    return untilAborted(promise, signal).finally(() => ended.abort())
  }

  const read = async (task: Outputs, pod: Pod, path: string, signal: AbortSignal): Promise<OutputFile | null> => {
    const maxBytes = task.outputs.find((each) => each.path === path)?.maxBytes ?? 0
    const { namespace, name } = pod.metadata
    const words = ['/bin/sh', '-c', script, 'sh', path, String(maxBytes)]
    const command = { container: containerName, words, maxBytes: maxBytes + longestLine }
    const { output, exitCode } = await api.exec(`${pathOf('Pod', namespace, name)}/exec`, command, {
      signal,
      deadlineMs: readMs,
    })
    return parse(task, output, exitCode, maxBytes)
  }

  /** Whether the execution stores its files in a claim that exists and was not given up. */
  const isThere = async ({ environmentId, taskId }: TaskKey, signal: AbortSignal): Promise<boolean> => {
    const claim = await objects.get('PersistentVolumeClaim', namespaceOf(environmentId), taskNameOf(taskId), signal)
    return claim !== null && claim.metadata.deletionTimestamp === undefined
  }

  /** Once nothing writes to them any more. */
  const collectOnce = async (task: Outputs, signal: AbortSignal): Promise<TaskOutputs> => {
    const wanted = desiredOutputs(task)
    if (wanted.length === 0) return {}
    try {
      const pod = await startCollector(task, signal)
      return await collectOutputs(wanted, true, (path) => read(task, pod, path, signal), signal)
    } catch (error) {
      signal.throwIfAborted()
      const known = error instanceof KubernetesError ? asDeploymentError(error, 'the run') : error
      if (known instanceof DeploymentError && known.next === 'stop') throw unread(task, known.message, error)
      throw known
    }
  }

  /** `tries`: how often a failure is retried, after a little longer each time. Every rejection is transient. */
  const collect = async (task: Outputs, signal: AbortSignal, tries = 1): Promise<TaskOutputs> => {
    for (let made = 1; made < tries; made += 1)
      try {
        return await collectOnce(task, signal)
      } catch {
        await clock.sleep(made * pauseMs, signal)
      }
    return collectOnce(task, signal)
  }

  return { isThere, collect }
}
