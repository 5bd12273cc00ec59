/** Work that is shared by several waiters and done once. It is aborted when nobody waits any longer. */
import { untilAborted } from '../lib/concurrency/waiting.ts'

interface Running<T> {
  result: Promise<T>
  control: AbortController
  waiting: number
}

export const createSharedWork = <T>() => {
  const running = new Map<string, Running<T>>()

  const begin = (key: string, work: (signal: AbortSignal) => Promise<T>): Running<T> => {
    const control = new AbortController()
    const started: Running<T> = { result: work(control.signal), control, waiting: 0 }
    const forget = () => {
      if (running.get(key) === started) running.delete(key)
    }
    started.result.then(forget, forget)
    running.set(key, started)
    return started
  }

  return {
    async join(key: string, signal: AbortSignal, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
      signal.throwIfAborted()
      const one = running.get(key) ?? begin(key, work)
      one.waiting += 1
      try {
        return await untilAborted(one.result, signal)
      } finally {
        one.waiting -= 1
        if (one.waiting === 0) {
          if (running.get(key) === one) running.delete(key)
          one.control.abort(new Error('nobody is waiting for it anymore'))
        }
      }
    },
    async close(): Promise<void> {
      const left = [...running.values()]
      for (const { control } of left) control.abort(new Error('the server is stopping'))
      await Promise.allSettled(left.map(({ result }) => result))
    },
  }
}
