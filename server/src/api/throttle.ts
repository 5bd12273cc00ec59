/**
 * Limits what unauthenticated clients do: signing in, and failing to. Each client is counted separately. When very many
 * come at once all are slowed down, but no client can use up what is left for the others.
 */
import { type Allowance, createLimiter } from '../lib/concurrency/limiter.ts'
import { clientOf } from '../lib/net/client-network.ts'
import type { Clock } from '../lib/time/clock.ts'

export interface Throttle {
  /** Takes one from the budget of the client at an address. */
  take(address: string): Allowance
  /** Puts back one that `take` admitted. */
  give(address: string): void
}

const crowd = 20
const share = 10

/** `perMinute` per client, and `inAll` for all of them together; 0 disables a limit. */
export const createThrottle = (perMinute: number, clock: Clock, inAll = perMinute * crowd): Throttle => {
  const own = createLimiter(perMinute, clock)
  const all = createLimiter(perMinute === 0 ? 0 : inAll, clock)
  const little = createLimiter(perMinute === 0 ? 0 : Math.max(1, Math.floor(perMinute / share)), clock)
  return {
    take(address) {
      const client = clientOf(address)
      const allowance = own.take(client)
      if (!allowance.admitted || all.take('').admitted) return allowance
      return little.take(client)
    },
    give(address) {
      own.give(clientOf(address))
      all.give('')
    },
  }
}
