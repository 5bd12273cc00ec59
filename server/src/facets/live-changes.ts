/**
 * Subscriptions to changes of an environment's status: one LISTEN per process, forwarded to all subscribers. A database
 * trigger (`tell_status`) notifies at commit, so code that changes a status does not have to.
 */
import type { Database } from '../store/database.ts'

/** The environment's id; '' if notifications may have been missed. */
type OnChange = (environmentId: string) => void

export interface Changes {
  /** Subscribes to one environment, or to all (null). Rejects while the database is unavailable. */
  subscribe(environmentId: string | null, onChange: OnChange): Promise<() => void>
}

const everything = '*'

const createChanges = (database: Database): Changes => {
  const waiting = new Map<string, Set<OnChange>>()
  let listening: Promise<unknown> | undefined
  const tell = (key: string, environmentId: string): void => {
    for (const onChange of waiting.get(key) ?? []) onChange(environmentId)
  }
  const hear = (environmentId: string): void => {
    if (environmentId === '') {
      for (const key of waiting.keys()) tell(key, '')
      return
    }
    tell(environmentId, environmentId)
    tell(everything, environmentId)
  }
  const listen = async (): Promise<void> => {
    listening ??= database.listen('slipway_status', hear).catch((error: unknown) => {
      listening = undefined
      throw error
    })
    await listening
  }
  return {
    async subscribe(environmentId, onChange) {
      await listen()
      const key = environmentId ?? everything
      const mine = waiting.get(key) ?? new Set()
      waiting.set(key, mine.add(onChange))
      return () => {
        mine.delete(onChange)
        if (mine.size === 0 && waiting.get(key) === mine) waiting.delete(key)
      }
    },
  }
}

const known = new WeakMap<Database, Changes>()

/** Those of this database. */
export const changesOf = (database: Database): Changes => {
  const found = known.get(database) ?? createChanges(database)
  known.set(database, found)
  return found
}
