/** Waiting that can be aborted. The work itself continues, and its result is ignored. */
import type { Clock } from '../time/clock.ts'

/** Rejects with the signal's reason as soon as it fires. */
export const untilAborted = <T>(work: Promise<T>, signal: AbortSignal): Promise<T> =>
  new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })

/** The end of `work`, or undefined after `ms`. Rejects when the signal fires before both. */
export const waitAtMost = async <T>(
  clock: Pick<Clock, 'sleep'>,
  ms: number,
  work: Promise<T>,
  signal?: AbortSignal,
): Promise<T | undefined> => {
  const over = new AbortController()
  const either = signal === undefined ? over.signal : AbortSignal.any([signal, over.signal])
  const late = clock.sleep(ms, either).then(() => undefined)
  late.catch(() => {})
  try {
    return await Promise.race([work, late])
  } finally {
    over.abort()
    work.catch(() => {})
  }
}
