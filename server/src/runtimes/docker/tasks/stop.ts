/** Stops a program in a container, and keeps the container so that it can be read. */

import { untilAborted, waitAtMost } from '../../../lib/concurrency/waiting.ts'
import { type Engine, ignoreGone, isEngineError } from '../../../lib/docker/docker-engine.ts'
import type { Clock } from '../../../lib/time/clock.ts'

/** SIGTERM, and SIGKILL after the grace; what has ended is fine. */
export const stopContainer = async (
  engine: Engine,
  clock: Clock,
  id: string,
  graceMs: number,
  signal: AbortSignal,
): Promise<void> => {
  const kill = (name: string) =>
    engine.call('POST', `/containers/${id}/kill`, { query: { signal: name } }).catch((error: unknown) => {
      if (!isEngineError(error, 404, 409)) throw error
    })
  const ended = engine.call('POST', `/containers/${id}/wait`, { deadlineMs: graceMs + 60_000, signal })
  ended.catch(() => {})
  if (graceMs > 0) {
    await kill('SIGTERM')
    await waitAtMost(clock, graceMs, ended, signal).catch(() => {})
  }
  await kill('SIGKILL')
  await untilAborted(ignoreGone(ended), signal)
}
