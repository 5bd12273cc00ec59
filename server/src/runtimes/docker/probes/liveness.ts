/** One instance's liveness: what is asked when, and when it has failed. */

import type { Log } from '../../../lib/log.ts'
import type { Clock } from '../../../lib/time/clock.ts'
import type { Instance, Probe } from '../../runtime.ts'
import type { Events } from '../events.ts'
import type { ProbeCall } from './probe.ts'
import type { Troubles } from './troubles.ts'

export interface Findings {
  failed(finding: string): Promise<void>
  alive(): void
}

interface FindingsParts {
  troubles: Troubles
  events: Pick<Events, 'tell'>
  log: Log
}

/** Restarts an instance that is not alive, or has it replaced where that did not help, and keeps its status true. */
export const findingsOf = (
  { troubles, events, log }: FindingsParts,
  { id, name, serviceId, revision }: Instance,
  restart: () => Promise<void>,
): Findings => {
  const tell = (kind: 'ready' | 'unready'): void => events.tell({ serviceId, revision, instanceId: id, kind })
  return {
    async failed(finding) {
      const { needsNew } = troubles.failed(id, finding)
      const action = needsNew ? 'replacing the instance' : 'restarting the instance'
      log.warn({ serviceId, instance: name, finding }, `liveness probe failed: ${action}`)
      tell('unready')
      // Its replacement removes it, which ends this watch.
      if (needsNew) return
      await restart()
      troubles.restarted(id)
    },
    alive() {
      if (troubles.alive(id)) tell('ready')
    },
  }
}

/** Until aborted; `failed` restarts it, and it is asked as a new one then. `alive`: it has answered as often as it has to. */
export const keepAliveOne = async (
  clock: Clock,
  probe: Probe,
  look: ProbeCall,
  ended: AbortSignal,
  { failed, alive }: Findings,
): Promise<void> => {
  for (;;) {
    // A program needs a moment to begin.
    await clock.sleep(Math.max(1, probe.initialDelaySeconds) * 1000, ended)
    for (let failures = 0, successes = 0; ; ) {
      const finding = await look(ended)
      ended.throwIfAborted()
      successes = finding === null ? successes + 1 : 0
      if (finding !== null) failures += 1
      else if (successes >= probe.successThreshold) {
        failures = 0
        alive()
      }
      if (finding !== null && failures >= Math.max(1, probe.failureThreshold)) {
        await failed(finding)
        break
      }
      await clock.sleep(Math.max(1, probe.periodSeconds) * 1000, ended)
    }
  }
}
