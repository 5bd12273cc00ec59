import type { IncomingMessage } from 'node:http'

/** Throws away what nobody has read of a body: it is in the way of the next request of its connection. */
export const discardBody = (raw: IncomingMessage): void => {
  if (raw.readableEnded || raw.destroyed) return
  // Also once whoever has read it in another way lets go of it.
  raw.on('data', () => {})
  setImmediate(() => raw.resume())
}
