/**
 * Whether the engine answers. While it does not, how services run cannot be read, and they say so (UNAVAILABLE) instead
 * of what was true before; nothing else about them changes. When it answers again, whoever asked is told.
 */
import { createLoop, type Loop } from '../work/loop.ts'
import type { EngineParts } from './engine-parts.ts'

const everyMs = 5000
/** Answers missed in a row: one alone is a busy machine. */
const missedMost = 2

const markUnknown = (parts: Pick<EngineParts, 'database'>): Promise<unknown> =>
  parts.database.query(
    `update service_state s set running_state = 'UNAVAILABLE' from release r
     where r.id = s.current_release_id and s.desired = 'RUNNING' and s.running_state <> 'UNAVAILABLE'
       and not r.workload ? 'task'`,
  )

type PulseParts = Pick<EngineParts, 'database' | 'clock' | 'log' | 'work'> & { runtime: { ping(): Promise<unknown> } }

export const keepPulse = (parts: PulseParts, onReturn: () => void): Loop => {
  let missed = 0
  const look = async (): Promise<void> => {
    const answers = await parts.runtime.ping().then(
      () => true,
      () => false,
    )
    if (answers && missed >= missedMost) onReturn()
    missed = answers ? 0 : missed + 1
    if (missed === missedMost) parts.log.warn('the engine does not answer: how services run is unknown')
    if (missed >= missedMost) await markUnknown(parts)
  }
  const failed = 'services could not be shown as UNAVAILABLE'
  return createLoop(parts, { name: 'engine pulse', periodMs: everyMs, waits: true, failed, run: look })
}
