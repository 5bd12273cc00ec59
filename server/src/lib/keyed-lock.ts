/** Mutual exclusion by key inside this process. */
import { untilAborted } from './waiting.ts'

export interface KeyedLock {
  /** Waits its turn; the answer releases. */
  acquire(key: string): Promise<() => void>
  /** Null when somebody holds or awaits the key. */
  tryAcquire(key: string): (() => void) | null
  /** Resolves when those that asked until now have released. */
  settled(key: string): Promise<void>
}

export const createKeyedLock = (): KeyedLock => {
  const tails = new Map<string, Promise<void>>()
  const take = (key: string): { before: Promise<void> | undefined; release: () => void } => {
    const before = tails.get(key)
    const { promise, resolve } = Promise.withResolvers<void>()
    const tail = before === undefined ? promise : before.then(() => promise)
    tails.set(key, tail)
    const release = (): void => {
      if (tails.get(key) === tail) tails.delete(key)
      resolve()
    }
    return { before, release }
  }
  return {
    async acquire(key) {
      const { before, release } = take(key)
      await before
      return release
    },
    tryAcquire: (key) => (tails.has(key) ? null : take(key).release),
    settled: async (key) => tails.get(key),
  }
}

/** Holds `key` while `work` runs; who gives up waiting leaves the queue to the others. */
export const withLock = async <T>(
  lock: KeyedLock,
  key: string,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> => {
  signal.throwIfAborted()
  const turn = lock.acquire(key)
  let release: () => void
  try {
    release = await untilAborted(turn, signal)
  } catch (error) {
    turn.then((late) => late())
    throw error
  }
  try {
    return await work()
  } finally {
    release()
  }
}
