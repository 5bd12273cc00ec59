import type { IncomingMessage } from 'node:http'

/**
 * Discards the unread rest of a body. It blocks the next request of its connection, even when all of it has arrived:
 * Node stops reading a connection while a body waits to be read.
 */
export const discardBody = (raw: IncomingMessage): void => {
  if (raw.readableEnded || raw.destroyed) return
  // Also when another reader of the body stops.
  raw.on('data', () => {})
  setImmediate(() => raw.resume())
}
