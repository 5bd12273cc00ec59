/**
 * Limits what unauthenticated clients do: signing in, and failing to. Each client is counted separately. When very many
 * come at once all are slowed down, but no client can use up what is left for the others.
 */
import { isIPv6 } from 'node:net'
import type { Clock } from '../lib/time/clock.ts'
import { type Allowance, createLimiter } from './rate-limit.ts'

export interface Throttle {
  /** Takes one from the budget of the client at an address. */
  take(address: string): Allowance
  /** Puts back one that `take` admitted. */
  give(address: string): void
}

const crowd = 20
const share = 10

const groupsOf = (text: string): string[] => (text === '' ? [] : text.split(':'))

/** Whoever has one IPv6 address has a whole network of them: clients are told apart by the first 64 bits. */
export const clientOf = (address: string): string => {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1]
  if (mapped !== undefined) return mapped
  if (!isIPv6(address)) return address
  const [head = '', tail] = address.toLowerCase().split('%')[0]!.split('::')
  const [first, last] = [groupsOf(head), tail === undefined ? [] : groupsOf(tail)]
  const zeros = new Array<string>(Math.max(0, 8 - first.length - last.length)).fill('0')
  return [...first, ...(tail === undefined ? [] : zeros), ...last]
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}

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
