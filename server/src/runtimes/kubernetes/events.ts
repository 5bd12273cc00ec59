/** Events of instances, from the changes of their pods. */
import { createInbox } from '../../lib/concurrency/inbox.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { Instance, RuntimeEvent } from '../runtime.ts'
import { followObjects } from './follow.ts'
import { labels } from './manifests/describe.ts'
import { asDeploymentError, type Objects } from './objects.ts'
import { changesOf, isTask, type Pod, toInstances } from './pods.ts'

/** Ends when aborted; rejects when the cluster no longer lets us watch. */
export async function* watchEvents(
  objects: Objects,
  clock: Pick<Clock, 'sleep'>,
  outer: AbortSignal,
): AsyncGenerator<RuntimeEvent> {
  const left = new AbortController()
  const signal = AbortSignal.any([outer, left.signal])
  const known = new Map<string, Instance>()
  const inbox = createInbox<RuntimeEvent>()
  let isFirst = true

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
    if (!isFirst) for (const kind of changesOf(before, now)) inbox.put({ serviceId, revision, instanceId, kind })
  }
  /** Pods that disappeared during a gap are removed, and pods found at the beginning are not events. */
  const seeAll = (pods: readonly Pod[]): void => {
    const there = new Map(pods.map((pod) => [keyOf(pod), pod]))
    for (const [key, before] of known) {
      if (there.has(key)) continue
      known.delete(key)
      const { serviceId, revision, id: instanceId } = before
      for (const kind of changesOf(before, null)) inbox.put({ serviceId, revision, instanceId, kind })
    }
    for (const pod of pods) see(pod, false)
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
      },
    },
    signal,
  )
  follow.catch((error: unknown) => inbox.fail(asDeploymentError(error, 'the pods')))
  try {
    yield* inbox.read(signal)
  } finally {
    left.abort()
  }
}
