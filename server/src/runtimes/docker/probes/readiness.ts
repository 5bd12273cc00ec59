/**
 * Instances that became unready after they were ready: they get no requests until they are ready again. Kept in
 * memory.
 */
import type { Clock } from '../../../lib/time/clock.ts'
import type { PlacedInstance as Instance } from '../../blue-green/instances.ts'
import type { Probe } from '../../runtime.ts'
import type { ProbeCall } from './probe.ts'

type Which = Pick<Instance, 'id' | 'name' | 'environmentId' | 'serviceId' | 'revision'>

export interface Readiness {
  isUnready(id: string): boolean
  /** It was found ready: by the watch, or by a rollout. */
  ready(instance: Which): void
  /** It failed its probe that often. One that was never ready is handled by its rollout. */
  unready(instance: Which): void
  /** Its program ended: the restarted one must become ready first. */
  ended(instance: Which): void
  removed(id: string): void
}

/** `changed` is called for each change. */
export const createReadiness = (changed: (instance: Which, isReady: boolean) => void): Readiness => {
  /** Of those that were ready before. */
  const states = new Map<string, boolean>()
  const unready = (instance: Which): void => {
    if (states.get(instance.id) !== true) return
    states.set(instance.id, false)
    changed(instance, false)
  }
  return {
    isUnready: (id) => states.get(id) === false,
    ready(instance) {
      const before = states.get(instance.id)
      states.set(instance.id, true)
      if (before === false) changed(instance, true)
    },
    unready,
    ended: unready,
    removed: (id) => void states.delete(id),
  }
}

interface ReadinessWatch {
  clock: Clock
  readiness: Readiness
  /** It was started just now; else it ran before the watch began, and counts as ready. */
  isFresh: boolean
}

/** At the configured pace, until aborted. */
export const watchReadiness = async (
  { clock, readiness, isFresh }: ReadinessWatch,
  instance: Instance,
  probe: Probe,
  look: ProbeCall,
  ended: AbortSignal,
): Promise<void> => {
  if (isFresh) await clock.sleep(probe.initialDelaySeconds * 1000, ended)
  else if (!readiness.isUnready(instance.id)) readiness.ready(instance)
  for (let failures = 0, successes = 0; ; ) {
    const finding = await look(ended)
    ended.throwIfAborted()
    failures = finding === null ? 0 : failures + 1
    successes = finding === null ? successes + 1 : 0
    if (successes >= Math.max(1, probe.successThreshold)) readiness.ready(instance)
    if (failures >= Math.max(1, probe.failureThreshold)) readiness.unready(instance)
    await clock.sleep(Math.max(1, probe.periodSeconds) * 1000, ended)
  }
}
