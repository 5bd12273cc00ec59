/** Limits concurrency, with fair turns between waiters. */
import { untilAborted } from './waiting.ts'

interface Waiter {
  who: string
  go(): void
}

interface Asked {
  /** An abort while waiting leaves the queue. */
  signal?: AbortSignal | undefined
  /** Called with the number of running works if there is no free place. */
  onWait?: ((running: number) => void) | undefined
}

/**
 * Lets `places` run at a time, at most `each` of them per `who`. Waiters are served round robin by `who`. If `each` is
 * less than `places`, the last place goes only to a `who` that has none: while another floods the queue, a newcomer
 * gets a place at once or after at most one work ends. For work of unlimited length, set `most` above `places`: until
 * `most` run in all, each `who` without a place gets a first one at once, whatever the others have.
 */
export const createSemaphore = (places: number, each = places, most = places) => {
  const held = new Map<string, number>()
  const waiting = new Map<string, Waiter[]>()
  /** The turn in which each owner of a place, or waiter, was last let in. */
  const served = new Map<string, number>()
  let taken = 0
  let turns = 0

  const mayEnter = (who: string): boolean => {
    const own = held.get(who) ?? 0
    return own === 0 ? taken < most : taken < places && own < each
  }
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
    if (left > 0) held.set(who, left)
    else {
      held.delete(who)
      if (!waiting.has(who)) served.delete(who)
    }
    serve()
  }
  const leaveLine = (waiter: Waiter): boolean => {
    const line = waiting.get(waiter.who)
    const index = line?.indexOf(waiter) ?? -1
    if (index === -1) return false
    line!.splice(index, 1)
    if (line!.length > 0) return true
    waiting.delete(waiter.who)
    if (!held.has(waiter.who)) served.delete(waiter.who)
    return true
  }
  const enter = async (who: string, { signal, onWait }: Asked): Promise<void> => {
    signal?.throwIfAborted()
    if (!waiting.has(who) && mayEnter(who)) return take(who)
    onWait?.(taken)
    const { promise, resolve } = Promise.withResolvers<void>()
    const waiter = { who, go: resolve }
    waiting.set(who, [...(waiting.get(who) ?? []), waiter])
    try {
      await (signal === undefined ? promise : untilAborted(promise, signal))
    } catch (error) {
      // It may have been let in at that very moment.
      if (!leaveLine(waiter)) leave(who)
      throw error
    }
  }
  return async <T>(who: string, work: () => Promise<T>, asked: Asked = {}): Promise<T> => {
    await enter(who, asked)
    try {
      return await work()
    } finally {
      leave(who)
    }
  }
}
