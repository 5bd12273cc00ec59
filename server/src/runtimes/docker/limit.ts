/** Two small ways to order asynchronous work. */

/** At most `count` works at a time, in the order of their asking. */
export const createLimit = (count: number) => {
  const waiting: (() => void)[] = []
  let running = 0
  return async <T>(work: () => Promise<T>): Promise<T> => {
    if (running >= count) await new Promise<void>((resolve) => waiting.push(resolve))
    else running += 1
    try {
      return await work()
    } finally {
      const next = waiting.shift()
      if (next === undefined) running -= 1
      else next()
    }
  }
}

/** Works of one key run one after another; `settled` waits for those that were asked for until now. */
export const createLanes = () => {
  const lanes = new Map<string, Promise<unknown>>()
  return {
    run: <T>(key: string, work: () => Promise<T>): Promise<T> => {
      const done = (lanes.get(key) ?? Promise.resolve()).then(work, work)
      const tail: Promise<void> = done.then(forget, forget)
      function forget(): void {
        if (lanes.get(key) === tail) lanes.delete(key)
      }
      lanes.set(key, tail)
      return done
    },
    settled: async (key: string): Promise<void> => void (await lanes.get(key)),
  }
}

/** Rejects with the signal's reason as soon as it aborts; the work goes on to its own end. */
export const untilAborted = <T>(work: Promise<T>, signal: AbortSignal): Promise<T> =>
  new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
