/**
 * What this process does in the background, by name: how often it ran, when last, and what went wrong last. `/metrics`
 * shows it. Several works may have one name; they are counted together.
 */
import type { Clock } from '../lib/clock.ts'

export interface WorkFigures {
  name: string
  /** Where the same work is done for every cluster. */
  cluster?: string | undefined
  runs: number
  failures: number
  /** Under way now. */
  active: number
  /** Asked for, and not begun. */
  waiting: number
  /** When the last run ended. */
  lastRunAt: Date | null
  lastError: { at: Date; code: string } | null
}

/** What one work tells of itself. */
export interface WorkReport {
  /** A run begins; the answer is to be called at its end, with the error of one that failed. */
  begin(): (error?: unknown) => void
  /** The work is no more. Its figures stay, but those of a cluster go with the last work that is done for it. */
  leave(): void
}

export interface WorkRegistry {
  /** `waiting`: how much is asked for and not begun. */
  enter(name: string, options?: { cluster?: string | undefined; waiting?: () => number }): WorkReport
  read(): WorkFigures[]
}

interface Entry {
  figures: WorkFigures
  waiting: Set<() => number>
}

/** A short word for an error: its code, else its class. Its message may name what `/metrics` must not show. */
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
          return (error) => {
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
