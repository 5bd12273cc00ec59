/** What happens to instances, from the changes of their pods. */
import type { Clock } from '../../lib/time/clock.ts'
import type { Instance, RuntimeEvent } from '../runtime.ts'
import { followObjects } from './follow.ts'
import { labels } from './manifests/describe.ts'
import { asDeploymentError, type Objects } from './objects.ts'
import { changesOf, isTask, type Pod, toInstances } from './pods.ts'

/** Ends when aborted; rejects when the cluster does not let us watch any more. */
export async function* watchEvents(
  objects: Objects,
  clock: Pick<Clock, 'sleep'>,
  outer: AbortSignal,
): AsyncGenerator<RuntimeEvent> {
  const left = new AbortController()
  const signal = AbortSignal.any([outer, left.signal])
  const known = new Map<string, Instance>()
  const queue: RuntimeEvent[] = []
  let isFirst = true
  let failure: unknown = null
  let wake = Promise.withResolvers<void>()

  const keyOf = ({ metadata }: Pod): string => `${metadata.namespace} ${metadata.name}`
  const see = (pod: Pod, isGone: boolean): void => {
    const key = keyOf(pod)
    const before = known.get(key) ?? null
    const now = isGone ? null : (toInstances([pod])[0] ?? null)
    if (now === null) known.delete(key)
    else known.set(key, now)
    const told = now ?? before
    if (told === null) return
    const { serviceId, revision, id: instanceId } = told
    for (const kind of changesOf(before, now)) queue.push({ serviceId, revision, instanceId, kind })
  }
  /** What went away while nobody looked is gone, and what is there at the beginning has not happened now. */
  const seeAll = (pods: readonly Pod[]): void => {
    const there = new Map(pods.map((pod) => [keyOf(pod), pod]))
    for (const [key, before] of known) {
      if (there.has(key)) continue
      known.delete(key)
      const { serviceId, revision, id: instanceId } = before
      for (const kind of changesOf(before, null)) queue.push({ serviceId, revision, instanceId, kind })
    }
    for (const pod of pods) see(pod, false)
    if (isFirst) queue.length = 0
    isFirst = false
  }
  const follow = followObjects<Pod>(
    objects,
    clock,
    {
      kind: 'Pod',
      wanted: { [labels.role]: 'instance' },
      onChange: (change) => {
        if (change.type === 'ALL') seeAll(change.items.filter((pod) => !isTask(pod)))
        else if (known.has(keyOf(change.object)) || change.type !== 'DELETED')
          see(change.object, change.type === 'DELETED')
        wake.resolve()
      },
    },
    signal,
  )
  follow.catch((error: unknown) => {
    failure = asDeploymentError(error, 'the pods')
    wake.resolve()
  })
  const onAbort = (): void => wake.resolve()
  signal.addEventListener('abort', onAbort)
  try {
    while (!signal.aborted) {
      const next = queue.shift()
      if (next !== undefined) yield next
      else if (failure !== null) throw failure
      else {
        await wake.promise
        wake = Promise.withResolvers()
      }
    }
  } finally {
    left.abort()
    signal.removeEventListener('abort', onAbort)
  }
}
