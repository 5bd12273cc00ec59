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

/** Lets `places` run at a time, in order of arrival. */
export const createSemaphore = (places: number) => {
  const waiting: (() => void)[] = []
  let free = places
  const leave = (): void => {
    const next = waiting.shift()
    if (next === undefined) free += 1
    else next()
  }
  const enter = async (signal: AbortSignal): Promise<void> => {
    if (free > 0) {
      free -= 1
      return
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.push(resolve)
    try {
      await orAborted(promise, signal)
    } catch (error) {
      const index = waiting.indexOf(resolve)
      if (index === -1) leave()
      else waiting.splice(index, 1)
      throw error
    }
  }
  return async <T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> => {
    signal.throwIfAborted()
    await enter(signal)
    try {
      return await work()
    } finally {
      leave()
    }
  }
}
