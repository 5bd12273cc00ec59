/**
 * Shared by the streams of one process. First, subscriptions to changes of an environment's status: one LISTEN,
 * forwarded to all subscribers. A database trigger (`tell_status`) notifies at commit, so code that changes a status
 * does not have to.
 */
import type { Changes, OnChange, Streams } from '../api/streams.ts'
import type { Database } from '../store/database.ts'

const everything = '*'

const createChanges = (database: Pick<Database, 'listen'>): Changes => {
  const waiting = new Map<string, Set<OnChange>>()
  let listening: Promise<unknown> | undefined
  const notify = (key: string, environmentId: string): void => {
    for (const onChange of waiting.get(key) ?? []) onChange(environmentId)
  }
  const hear = (environmentId: string): void => {
    if (environmentId === '') {
      for (const key of waiting.keys()) notify(key, '')
      return
    }
    notify(environmentId, environmentId)
    notify(everything, environmentId)
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

export const createStreams = (database: Pick<Database, 'listen'>): Streams => {
  const shared = new Map<string, object>()
  return {
    changes: createChanges(database),
    share: <T extends object>(key: string, make: (over: () => void) => T): T => {
      const found = shared.get(key)
      if (found !== undefined) return found as T
      const made = make(() => {
        if (shared.get(key) === made) shared.delete(key)
      })
      shared.set(key, made)
      return made
    },
  }
}
