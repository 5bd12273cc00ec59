/** Time in which a cluster can work: while its API server is down, it can neither start nor report anything. */
import { isPassing } from '../../lib/kubernetes/watch.ts'
import type { Clock } from '../../lib/time/clock.ts'
import type { ServiceKey } from '../runtime.ts'
import { namespaceOf } from './manifests/describe.ts'
import { type Objects, pathOf } from './objects.ts'

const lookMs = 5000
const answerMs = 3000

/** Resolves when the cluster has answered for `ms` altogether; rejects with the signal's reason when aborted. */
export const answeredFor = async (
  { api }: Pick<Objects, 'api'>,
  clock: Pick<Clock, 'sleep'>,
  { environmentId }: ServiceKey,
  ms: number,
  signal: AbortSignal,
): Promise<void> => {
  const path = pathOf('Namespace', undefined, namespaceOf(environmentId))
  /** Whether it answers from its store, even with a refusal. */
  const answers = (): Promise<boolean> =>
    api.get(path, { signal, deadlineMs: answerMs }).then(
      () => true,
      (error: unknown) => !isPassing(error),
    )
  let wasHeard = true
  for (let leftMs = ms; leftMs > 0; ) {
    const sleptMs = Math.min(leftMs, lookMs)
    await clock.sleep(sleptMs, signal)
    const isHeard = await answers()
    signal.throwIfAborted()
    if (isHeard && wasHeard) leftMs -= sleptMs
    wasHeard = isHeard
  }
}
