/** A process that holds requests while something is started for them. */
import { fork } from 'node:child_process'
import { once } from 'node:events'

export interface Holder {
  port: number
  /** Resolves when the first request waits. */
  wanted(): Promise<unknown>
  /** Answers all that wait. */
  serve(): void
  close(): void
}

export const startHolder = async (): Promise<Holder> => {
  const child = fork(new URL('holder-program.ts', import.meta.url))
  const [port] = (await once(child, 'message')) as [number]
  return {
    port,
    wanted: () => once(child, 'message'),
    serve: () => void child.send('serve'),
    close: () => void child.kill(),
  }
}
