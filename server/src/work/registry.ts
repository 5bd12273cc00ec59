/**
 * The background work of this process, by name: how often it ran, when last, and the last error. `/metrics` shows it.
 * Several works may share a name; they are counted together.
 */
import { beginWork } from '../lib/loop-turns.ts'
import type { Clock } from '../lib/time/clock.ts'

interface WorkFigures {
  name: string
  /** For work that is done per cluster. */
  cluster?: string | undefined
  runs: number
  failures: number
  /** In progress now. */
  active: number
  /** Requested but not started. */
  waiting: number
  /** When the last run ended. */
  lastRunAt: Date | null
  lastError: { at: Date; code: string } | null
}

/** How a work reports. */
interface WorkReport {
  /** A run begins; call the returned function when it ends, with the error if it failed. */
  begin(): (error?: unknown) => void
  /** The work has ended. Its figures are kept, but those of a cluster are removed with its last work. */
  leave(): void
}

export interface WorkRegistry {
  /** `waiting`: how much is requested but not started. */
  enter(name: string, options?: { cluster?: string | undefined; waiting?: () => number }): WorkReport
  read(): WorkFigures[]
}

interface Entry {
  figures: WorkFigures
  waiting: Set<() => number>
}

/** A short name for an error: its code, else its class. Its message may contain what `/metrics` must not show. */
const errorCode = (error: unknown): string => {
  const { code, name } = (error ?? {}) as { code?: unknown; name?: unknown }
  const word = [code, name].find((each) => typeof each === 'string' && /^\w{1,60}$/.test(each))
  return typeof word === 'string' ? word : 'unknown'
}

const fresh = (name: string, cluster: string | undefined): Entry => ({
  figures: { name, cluster, runs: 0, failures: 0, active: 0, waiting: 0, lastRunAt: null, lastError: null },
  waiting: new Set(),
})

export const createWorkRegistry = (clock: Pick<Clock, 'now'>): WorkRegistry => {
  const entries = new Map<string, Entry>()
  return {
    enter(name, { cluster, waiting = () => 0 } = {}) {
      const key = JSON.stringify([name, cluster])
      const entry = entries.get(key) ?? fresh(name, cluster)
      entries.set(key, entry)
      const count = () => waiting()
      entry.waiting.add(count)
      const { figures } = entry
      return {
        begin() {
          figures.active += 1
          const end = beginWork(name)
          return (error) => {
            end()
            figures.active -= 1
            figures.runs += 1
            figures.lastRunAt = clock.now()
            if (error === undefined) return
            figures.failures += 1
            figures.lastError = { at: figures.lastRunAt, code: errorCode(error) }
          }
        },
        leave() {
          entry.waiting.delete(count)
          if (entry.waiting.size === 0 && cluster !== undefined) entries.delete(key)
        },
      }
    },
    read: () =>
      [...entries.values()].map(({ figures, waiting }) => ({
        ...figures,
        waiting: [...waiting].reduce((sum, count) => sum + count(), 0),
      })),
  }
}
