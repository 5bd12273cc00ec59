/** Looks after the processes beside us: whichever does not answer is started again, as long as we run. */
import type { Clock } from './lib/clock.ts'
import type { Log } from './lib/log.ts'

export interface Companion {
  name: string
  /** Rejects when it does not answer. */
  ping(): Promise<unknown>
  /** Starts it unless it runs; adopts it otherwise. */
  start(): Promise<unknown>
}

const everyMs = 2000

/** Answers a function that ends the watch. */
export const keepAlive = (companions: readonly Companion[], clock: Clock, log: Log): (() => void) => {
  const controller = new AbortController()
  const look = async ({ name, ping, start }: Companion): Promise<void> => {
    try {
      await ping()
    } catch (error) {
      if (controller.signal.aborted) return
      log.warn({ err: error }, `${name} does not answer: starting it again`)
      await start().catch((cause: unknown) => log.error({ err: cause }, `${name} could not be started`))
    }
  }
  const watch = async (): Promise<void> => {
    while (!controller.signal.aborted) {
      await clock.sleep(everyMs, controller.signal).catch(() => {})
      if (!controller.signal.aborted) await Promise.all(companions.map(look))
    }
  }
  void watch()
  return () => controller.abort(new Error('stopping'))
}
