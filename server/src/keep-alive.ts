/** Monitors a companion process: if it does not answer it is restarted, as long as we run. */
import { createLoop, type Loop, type WorkParts } from './work/loop.ts'

export interface Companion {
  name: string
  /** Rejects if it does not answer. */
  ping(): Promise<unknown>
  /** Starts it unless it runs; adopts it otherwise. */
  start(): Promise<unknown>
}

const everyMs = 2000

export const keepAlive = (parts: WorkParts, { name, ping, start }: Companion): Loop =>
  createLoop(parts, {
    name: `keep ${name}`,
    periodMs: everyMs,
    waits: true,
    failed: `${name} could not be started`,
    async run(signal) {
      try {
        await ping()
      } catch (error) {
        if (signal.aborted) return
        parts.log.warn({ err: error }, `${name} does not answer: restarting it`)
        await start()
      }
    },
  })
