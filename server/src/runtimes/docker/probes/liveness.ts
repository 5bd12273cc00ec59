/** One instance's liveness: what is asked when, and when it has failed. */
import type { Clock } from '../../../lib/time/clock.ts'
import type { Probe } from '../../runtime.ts'
import type { ProbeCall } from './probe.ts'

/** Until aborted; `failed` restarts it, and it is asked as a new one then. */
export const keepAliveOne = async (
  clock: Clock,
  probe: Probe,
  look: ProbeCall,
  ended: AbortSignal,
  failed: (finding: string) => Promise<void>,
): Promise<void> => {
  for (;;) {
    // A program needs a moment to begin.
    await clock.sleep(Math.max(1, probe.initialDelaySeconds) * 1000, ended)
    for (let failures = 0, successes = 0; ; ) {
      const finding = await look(ended)
      ended.throwIfAborted()
      successes = finding === null ? successes + 1 : 0
      if (finding !== null) failures += 1
      else if (successes >= probe.successThreshold) failures = 0
      if (finding !== null && failures >= Math.max(1, probe.failureThreshold)) {
        await failed(finding)
        break
      }
      await clock.sleep(Math.max(1, probe.periodSeconds) * 1000, ended)
    }
  }
}
