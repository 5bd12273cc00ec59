/** Waits until a version is ready, as Kubernetes rolls it out, and says why it is not. */
import { DeploymentError } from '../../lib/errors.ts'
import { tellingLine } from '../../lib/last-words.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { type Progress, readyWithinMs, type Workload } from '../runtime.ts'
import { answeredFor } from './answered.ts'
import { untilSeen, type View } from './follow.ts'
import type { PodLogs } from './logs/logs.ts'
import { labels, nameOf } from './manifests/describe.ts'
import { usualPort } from './manifests/pod.ts'
import { asDeploymentError, type Found, type Objects } from './objects.ts'
import { type Condition, isOver, isReady, type Pod } from './pods.ts'
import { judgeController, judgePod, type Verdict } from './verdict.ts'

const errorLines = 50

const awaited = (workload: Workload): string => {
  const check = workload.readiness?.check
  if (check?.kind === 'exec') return 'the command of its readiness probe'
  if (check?.kind === 'http') return `${check.scheme} ${check.path} on port ${check.port}`
  const port = check?.port ?? usualPort(workload)?.internalPort
  return port === undefined ? 'it to stay running' : `TCP port ${port}`
}

const seconds = (ms: number): string => `${Math.round(ms / 100) / 10} s`

const isOf = (pod: Pod, revision: string): boolean => pod.metadata.labels?.[labels.revision] === revision

interface Look {
  wanted: number
  ready: Pod[]
  verdict: (Verdict & { pod: Pod | null }) | null
  isDone: boolean
}

const numberIn = (of: Record<string, unknown> | undefined, name: string): number => Number(of?.[name] ?? 0)

const lookAt = ({ pods, controllers, events }: View, workload: Workload): Look | null => {
  const controller: Found | undefined = controllers?.get(nameOf(workload.serviceId))
  if (pods === null || controller === undefined) return null
  const { spec, status, metadata } = controller
  const wanted = numberIn(spec, 'replicas')
  const own = [...pods.values()].filter((pod) => isOf(pod, workload.revision))
  const ready = own.filter(isReady)
  const isObserved = numberIn(status, 'observedGeneration') >= (metadata.generation ?? 0)
  const isDone = isObserved && ready.length >= wanted && numberIn(status, 'availableReplicas') >= wanted
  const judged = own
    .filter((pod) => !isReady(pod) && pod.metadata.deletionTimestamp === undefined)
    .map((pod) => ({ pod, verdict: judgePod(pod, workload.memoryMb, events) }))
    .filter((each): each is { pod: Pod; verdict: Verdict } => each.verdict !== null)
  const worst = judged.find(({ verdict }) => verdict.isFinal) ?? judged[0]
  if (worst !== undefined) return { wanted, ready, isDone, verdict: { ...worst.verdict, pod: worst.pod } }
  if (own.filter((pod) => !isOver(pod)).length >= wanted) return { wanted, ready, isDone, verdict: null }
  const conditions = (Array.isArray(status?.conditions) ? status.conditions : []) as Condition[]
  const none = judgeController(conditions, events, metadata.name)
  return { wanted, ready, isDone, verdict: none === null ? null : { ...none, pod: null } }
}

interface ReadyParts {
  objects: Objects
  logs: PodLogs
  clock: Clock
}

export const createReady = ({ objects, logs, clock }: ReadyParts) => {
  const explain = async (verdict: Verdict & { pod: Pod | null }): Promise<DeploymentError> => {
    const { code, message, pod } = verdict
    const lines = pod === null ? [] : await logs.lastLines(pod, errorLines).catch(() => [])
    const words = code === 'crash_loop' ? tellingLine(lines) : null
    return new DeploymentError(code, words === null ? message : `${message} It said: ${words}`, { lines })
  }

  const late = async (workload: Workload, last: Look | null, view: View | null): Promise<DeploymentError> => {
    const within = `within ${seconds(readyWithinMs(workload))}`
    if (last?.verdict) {
      const { message, ...verdict } = last.verdict
      return explain({ ...verdict, message: `The service did not become ready ${within}. ${message}` })
    }
    const message = `The service did not become ready ${within} while waiting for ${awaited(workload)}.`
    const pod = [...(view?.pods?.values() ?? [])].find((each) => isOf(each, workload.revision) && !isReady(each))
    return explain({ code: 'not_ready', message, isFinal: true, pod: pod ?? null })
  }

  /** Rejects with a `DeploymentError` that says why not. */
  return async (workload: Workload, progress: Progress, signal: AbortSignal): Promise<void> => {
    const controller = workload.volumes.length > 0 ? 'StatefulSet' : 'Deployment'
    const [over, passed] = [new AbortController(), new AbortController()]
    const either = AbortSignal.any([signal, over.signal])
    let [last, seen, told, count]: [Look | null, View | null, string, number] = [null, null, '', -1]
    const check = (view: View): Look | null => {
      seen = view
      last = lookAt(view, workload)
      if (last === null) return null
      if (last.verdict !== null && last.verdict.message !== told) {
        told = last.verdict.message
        if (!last.verdict.isFinal) progress(told, 'warning')
      }
      if (last.ready.length > Math.max(0, count)) progress(`${last.ready.length} of ${last.wanted} instances are ready`)
      count = Math.max(count, last.ready.length)
      return last.isDone || last.verdict?.isFinal === true ? last : null
    }
    progress(`Waiting for ${awaited(workload)} (up to ${seconds(readyWithinMs(workload))}).`)
    answeredFor(objects, clock, workload, readyWithinMs(workload), passed.signal).then(
      () => over.abort(),
      () => {},
    )
    try {
      const found = await untilSeen(objects, clock, workload, controller, check, either)
      if (!found.isDone && found.verdict !== null) throw await explain(found.verdict)
    } catch (error) {
      signal.throwIfAborted()
      if (over.signal.aborted && error === over.signal.reason) throw await late(workload, last, seen)
      throw asDeploymentError(error, 'the instances of the service')
    } finally {
      passed.abort()
    }
  }
}
