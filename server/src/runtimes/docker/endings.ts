/** The end of containers: asked first, forced after their grace, and gone with what belongs to them alone. */
import type { Clock } from '../../lib/clock.ts'
import { type Engine, ignoreGone } from '../../lib/docker-engine.ts'
import { type ContainerRow, type Containers, toInstance } from './containers.ts'
import { labels } from './describe.ts'
import { untilAborted } from './limit.ts'
import type { Places } from './places.ts'

export interface EndingsParts {
  engine: Engine
  containers: Containers
  places: Pick<Places, 'release'>
  clock: Clock
}

export const createEndings = ({ engine, containers, places, clock }: EndingsParts) => {
  const remove = async (id: string, name: string): Promise<void> => {
    // `v` takes the nameless volumes that an image declares; ours have names and stay.
    const query = { force: true, v: true }
    await ignoreGone(engine.call('DELETE', `/containers/${id}`, { query, deadlineMs: 60_000 }))
    places.release(name)
  }

  const endOne = async (row: ContainerRow, graceMs: number, signal: AbortSignal): Promise<void> => {
    if (row.State === 'running') {
      // The engine counts in whole seconds; the removal by force ends the grace to the millisecond.
      const query = { t: Math.ceil(graceMs / 1000) + 1 }
      const stop = engine.call('POST', `/containers/${row.Id}/stop`, { query, deadlineMs: graceMs + 30_000 })
      const timer = new AbortController()
      const grace = clock.sleep(graceMs, AbortSignal.any([signal, timer.signal]))
      await Promise.race([ignoreGone(stop), grace]).finally(() => timer.abort())
      grace.catch(() => {})
      stop.catch(() => {})
    }
    await remove(row.Id, toInstance(row).name)
  }

  return {
    remove,
    /** The containers of a service, its tasks only when asked for. */
    rowsOf: (serviceId: string, more: Record<string, string> = {}, tasks = false): Promise<ContainerRow[]> =>
      containers.list({ [labels.service]: serviceId, ...more }, { tasks }),
    end: async (rows: ContainerRow[], graceMs: number, signal: AbortSignal): Promise<void> => {
      signal.throwIfAborted()
      await untilAborted(Promise.all(rows.map((row) => endOne(row, graceMs, signal))), signal)
    },
  }
}
