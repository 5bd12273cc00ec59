/** Mutual exclusion by key inside this process. */
import { untilAborted } from './waiting.ts'

export interface KeyedLock {
  /** Waits its turn; call the returned function to release. */
  acquire(key: string): Promise<() => void>
  /** Shares the key with others; null if it is held, or waited for, exclusively. */
  tryShare(key: string): (() => void) | null
  /** Resolves when all present requests have been released. */
  settled(key: string): Promise<void>
}

interface Share {
  tail: Promise<void>
  holders: number
  release(): void
}

export const createKeyedLock = (): KeyedLock => {
  const tails = new Map<string, Promise<void>>()
  const shares = new Map<string, Share>()
  const take = (key: string): { before: Promise<void> | undefined; tail: Promise<void>; release: () => void } => {
    const before = tails.get(key)
    const { promise, resolve } = Promise.withResolvers<void>()
    const tail = before === undefined ? promise : before.then(() => promise)
    tails.set(key, tail)
    const release = (): void => {
      if (tails.get(key) === tail) tails.delete(key)
      resolve()
    }
    return { before, tail, release }
  }
  const shareOf = (key: string): Share | null => {
    const share = shares.get(key)
    // Later requests do not delay those already waiting.
    if (share !== undefined) return tails.get(key) === share.tail ? share : null
    if (tails.has(key)) return null
    const made = { ...take(key), holders: 0 }
    shares.set(key, made)
    return made
  }
  return {
    async acquire(key) {
      const { before, release } = take(key)
      await before
      return release
    },
    tryShare(key) {
      const share = shareOf(key)
      if (share === null) return null
      share.holders += 1
      return () => {
        share.holders -= 1
        if (share.holders > 0) return
        shares.delete(key)
        share.release()
      }
    },
    settled: async (key) => tails.get(key),
  }
}

/** Holds `key` while `work` runs; an abort while waiting leaves the queue. */
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
