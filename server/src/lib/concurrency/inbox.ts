/** Values that come at any time, for one reader that takes them one after the other. */

export interface Inbox<T> {
  put(value: T): void
  /** The reader gets this after the values that came before. */
  fail(error: unknown): void
  /** Ends at the abort. */
  read(signal: AbortSignal): AsyncGenerator<T>
}

export const createInbox = <T>(): Inbox<T> => {
  const values: T[] = []
  let failure: { error: unknown } | null = null
  let wake = Promise.withResolvers<void>()
  return {
    put(value) {
      values.push(value)
      wake.resolve()
    },
    fail(error) {
      failure ??= { error }
      wake.resolve()
    },
    async *read(signal) {
      const onAbort = (): void => wake.resolve()
      signal.addEventListener('abort', onAbort)
      try {
        while (!signal.aborted) {
          if (values.length > 0) yield values.shift()!
          else if (failure !== null) throw failure.error
          else {
            await wake.promise
            wake = Promise.withResolvers()
          }
        }
      } finally {
        signal.removeEventListener('abort', onAbort)
      }
    },
  }
}
