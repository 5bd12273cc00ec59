/** Events of apps and of instances, as one stream. */
import { createInbox } from '../../../lib/concurrency/inbox.ts'
import { KubernetesError } from '../../../lib/kubernetes/kubernetes-errors.ts'
import type { Change } from '../../../lib/kubernetes/watch.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Runtime, RuntimeEvent } from '../../runtime.ts'
import { followObjects } from '../follow.ts'
import type { Objects } from '../objects.ts'
import { type Application, toInstance } from './verdict.ts'

interface Parts {
  objects: Objects
  clock: Clock
  argoNamespace: string
}

/** Argo CD may be installed later. */
const missingMs = 5 * 60_000

/** Reports each app whose state has changed. */
const followApps = async (
  { objects, clock, argoNamespace }: Parts,
  tell: (event: RuntimeEvent) => void,
  signal: AbortSignal,
): Promise<void> => {
  const known = new Map<string, string>()
  const see = (app: Application, isGone = false): void => {
    const { serviceId, revision, id: instanceId, told } = toInstance(app)
    const now = JSON.stringify([revision, told])
    if (isGone) known.delete(instanceId)
    else if (known.get(instanceId) === now) return
    else known.set(instanceId, now)
    const kind = told?.state === 'RUNNING' ? 'ready' : 'unready'
    tell({ serviceId, revision, instanceId, kind: isGone ? 'removed' : kind })
  }
  const onChange = (change: Change<Application>): void => {
    if (change.type === 'ALL') for (const app of change.items) see(app)
    else see(change.object, change.type === 'DELETED')
  }
  const followed = { kind: 'Application' as const, namespace: argoNamespace, wanted: {}, onChange }
  while (!signal.aborted) {
    await followObjects<Application>(objects, clock, followed, signal).catch((error: unknown) => {
      if (error instanceof KubernetesError) return
      throw error
    })
    await clock.sleep(missingMs, signal, { ref: false }).catch(() => {})
  }
}

export async function* watchApps(
  watchInstances: Runtime['watch'],
  parts: Parts,
  outer: AbortSignal,
): AsyncGenerator<RuntimeEvent> {
  const left = new AbortController()
  const signal = AbortSignal.any([outer, left.signal])
  const inbox = createInbox<RuntimeEvent>()
  const follow = async (): Promise<void> => {
    for await (const event of watchInstances(signal)) inbox.put(event)
  }
  follow().catch(inbox.fail)
  followApps(parts, inbox.put, signal).catch(inbox.fail)
  try {
    yield* inbox.read(signal)
  } finally {
    left.abort()
  }
}
