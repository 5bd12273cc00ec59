import type { Writable } from 'node:stream'

/** Resolves once the written data has been taken, or never will be. Only for a stream that needs it. */
export const drained = (stream: Pick<Writable, 'on' | 'off'>): Promise<void> =>
  new Promise((resolve) => {
    const done = (): void => {
      stream.off('drain', done).off('close', done)
      resolve()
    }
    stream.on('drain', done).on('close', done)
  })
