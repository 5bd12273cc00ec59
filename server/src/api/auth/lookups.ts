/**
 * Database reads for callers that are not authenticated yet: tokens, sessions, webhooks that are not in a cache.
 * Addresses take turns, and one address has a few at a time, so that a flood of wrong ones neither takes all
 * connections of the database nor keeps a right one of another address waiting.
 */
import { createSemaphore } from '../../lib/concurrency/semaphore.ts'
import { unavailable } from '../../lib/errors.ts'
import { clientOf } from '../../lib/net/client-network.ts'

/** Runs `read` in the turn of an address. Rejects with a 503 if very many wait. */
export type Lookups = <Value>(address: string, read: () => Promise<Value>) => Promise<Value>

/** Concurrent reads: in all, of one address, and with the first one of each further address. */
const reading = { places: 6, each: 3, most: 9 }
const mostWaiting = 2000

export const createLookups = (): Lookups => {
  const inTurn = createSemaphore(reading.places, reading.each, reading.most)
  let asked = 0
  return async (address, read) => {
    if (asked >= mostWaiting) throw unavailable('busy', 'Too many requests at once: try again in a moment.', 1)
    asked += 1
    try {
      return await inTurn(clientOf(address), read)
    } finally {
      asked -= 1
    }
  }
}
