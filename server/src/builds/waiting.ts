/** Waiting that can be given up. */
import type { KeyedLock } from '../lib/keyed-lock.ts'

/** Rejects with the signal's reason as soon as it fires; the promise goes on, unheard. */
export const orAborted = <T>(promise: Promise<T>, signal: AbortSignal): Promise<T> => {
  signal.throwIfAborted()
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
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
    release = await orAborted(turn, signal)
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

interface Waiter {
  who: string
  go(): void
}

/**
 * Lets `places` run at a time. Who waits is served round robin by `who`, and nobody holds the last place beside others
 * of their own: one that comes while another floods the queue finds a place at once, or waits for one end at most.
 */
export const createPlaces = (places: number) => {
  const each = Math.max(1, places - 1)
  const held = new Map<string, number>()
  const waiting = new Map<string, Waiter[]>()
  /** When each was last let in, counted in turns. */
  const served = new Map<string, number>()
  let taken = 0
  let turns = 0

  const mayEnter = (who: string): boolean => taken < places && (held.get(who) ?? 0) < each
  const take = (who: string): void => {
    taken += 1
    held.set(who, (held.get(who) ?? 0) + 1)
    turns += 1
    served.set(who, turns)
  }
  const serve = (): void => {
    const lines = [...waiting].sort(([a], [b]) => (served.get(a) ?? 0) - (served.get(b) ?? 0))
    for (const [who, line] of lines) {
      if (!mayEnter(who)) continue
      const { go } = line.shift()!
      if (line.length === 0) waiting.delete(who)
      take(who)
      go()
    }
  }
  const leave = (who: string): void => {
    taken -= 1
    const left = held.get(who)! - 1
    if (left === 0) held.delete(who)
    else held.set(who, left)
    serve()
  }
  const leaveLine = (waiter: Waiter): boolean => {
    const line = waiting.get(waiter.who)
    const index = line?.indexOf(waiter) ?? -1
    if (index === -1) return false
    line!.splice(index, 1)
    if (line!.length === 0) waiting.delete(waiter.who)
    return true
  }
  const enter = async (who: string, onWait: (running: number) => void, signal: AbortSignal): Promise<void> => {
    if (!waiting.has(who) && mayEnter(who)) return take(who)
    onWait(taken)
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiter = { who, go: resolve }
    waiting.set(who, [...(waiting.get(who) ?? []), waiter])
    try {
      await orAborted(promise, signal)
    } catch (error) {
      // It may have been let in at the very moment.
      if (!leaveLine(waiter)) leave(who)
      throw error
    }
  }
  /** `onWait` is told how many run when there is no place at once. */
  return async <T>(
    who: string,
    onWait: (running: number) => void,
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T> => {
    signal.throwIfAborted()
    await enter(who, onWait, signal)
    try {
      return await work()
    } finally {
      leave(who)
    }
  }
}
