/**
 * Stops and removes containers: first the owner's command, then SIGTERM, killed after their grace period, and removed
 * with everything that belongs only to them.
 */

import { untilAborted, waitAtMost } from '../../lib/concurrency/waiting.ts'
import { type Engine, ignoreGone, isEngineError } from '../../lib/docker/docker-engine.ts'
import type { Clock } from '../../lib/time/clock.ts'
import { type ContainerRow, type Containers, toInstance } from './containers.ts'
import { labels } from './describe.ts'
import type { Hooks } from './hooks.ts'
import type { Places } from './network/places.ts'

export interface EndingsParts {
  engine: Engine
  containers: Containers
  places: Pick<Places, 'release'>
  hooks: Pick<Hooks, 'ending' | 'removed'>
  clock: Clock
}

/** The engine saw it run, but could no longer kill it: it gives up then. */
const endedMeanwhile = (error: unknown): boolean => isEngineError(error, 500) && /is not running/.test(error.message)

/** Also removes unnamed volumes that an image declares; ours have names and are kept. */
export const removeContainer = async (engine: Pick<Engine, 'call'>, id: string, withVolumes = true): Promise<void> => {
  const query = { force: true, v: withVolumes }
  const remove = (): Promise<void> =>
    ignoreGone(engine.call('DELETE', `/containers/${id}`, { query, deadlineMs: 60_000 }))
  await remove().catch((error: unknown) => {
    if (!endedMeanwhile(error)) throw error
    return remove()
  })
}

export const createEndings = ({ engine, containers, places, hooks, clock }: EndingsParts) => {
  const remove = async (id: string, name: string): Promise<void> => {
    await removeContainer(engine, id)
    places.release(name)
    hooks.removed(id)
  }

  const endOne = async (row: ContainerRow, graceMs: number, signal: AbortSignal): Promise<void> => {
    if (row.State === 'running') {
      const leftMs = await hooks.ending(row, graceMs, signal)
      // The engine counts in whole seconds; the forced removal ends the grace period to the millisecond.
      const query = { t: Math.ceil(leftMs / 1000) + 1 }
      const stop = engine.call('POST', `/containers/${row.Id}/stop`, { query, deadlineMs: leftMs + 30_000 })
      await waitAtMost(clock, leftMs, ignoreGone(stop), signal)
    }
    await remove(row.Id, toInstance(row).name)
  }

  return {
    remove,
    /** The containers of a service, its tasks only if requested. */
    rowsOf: (serviceId: string, more: Record<string, string> = {}, tasks = false): Promise<ContainerRow[]> =>
      containers.list({ [labels.service]: serviceId, ...more }, { tasks }),
    end: async (rows: ContainerRow[], graceMs: number, signal: AbortSignal): Promise<void> => {
      signal.throwIfAborted()
      await untilAborted(Promise.all(rows.map((row) => endOne(row, graceMs, signal))), signal)
    },
  }
}
