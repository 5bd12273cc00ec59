import type { IncomingMessage } from 'node:http'

/**
 * Throws away what nobody has read of a body. It is in the way of the next request of its connection, also when all of it
 * has arrived: Node stops reading a connection while a body waits to be read.
 */
export const discardBody = (raw: IncomingMessage): void => {
  if (raw.readableEnded || raw.destroyed) return
  // Also once whoever has read it in another way lets go of it.
  raw.on('data', () => {})
  setImmediate(() => raw.resume())
}
