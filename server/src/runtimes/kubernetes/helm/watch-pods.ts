/** Why the pods of a chart are not ready, while helm waits for them without output. */
import { parseQuantity } from '../../../lib/kubernetes/quantity.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Rollout, ServiceKey } from '../../runtime.ts'
import { untilSeen } from '../follow.ts'
import type { Objects } from '../objects.ts'
import { isReady, type Pod } from '../pods.ts'
import { judgeController, judgePod } from '../verdict.ts'

const memoryOf = (pod: Pod): number => {
  const [first] = (Array.isArray(pod.spec?.containers) ? pod.spec.containers : []) as {
    resources?: { limits?: { memory?: unknown } }
  }[]
  return Math.round((parseQuantity(first?.resources?.limits?.memory) ?? 0) / 2 ** 20)
}

/** Reports why pods are not ready, as long as helm waits; resolves to the last report. */
export const watchPods = (
  objects: Objects,
  clock: Clock,
  service: ServiceKey,
  { report }: Rollout,
  signal: AbortSignal,
) => {
  let told = ''
  const since = clock.now().toISOString().slice(0, 19)
  const say = (message: string): void => {
    if (message !== told) report('ready', message, 'warning')
    told = message
  }
  untilSeen<never>(
    objects,
    clock,
    service,
    null,
    ({ pods, events }) => {
      const fresh = events.filter(({ lastTimestamp, eventTime }) => (lastTimestamp ?? eventTime ?? '') >= since)
      const waiting = [...(pods?.values() ?? [])].filter((pod) => !isReady(pod))
      const verdict = waiting.map((pod) => judgePod(pod, memoryOf(pod), fresh)).find((each) => each !== null)
      const unmade = fresh.findLast(
        ({ reason, involvedObject }) => reason === 'FailedCreate' && !/^[st]-/.test(involvedObject?.name ?? ''),
      )
      const none = unmade && judgeController([], [unmade], unmade.involvedObject?.name ?? '')
      const found = verdict ?? none ?? null
      if (found !== null) say(found.message)
      return null
    },
    signal,
  ).catch(() => {})
  return () => told
}
