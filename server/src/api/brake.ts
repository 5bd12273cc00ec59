/**
 * How often a client may do what only a stranger does: sign in, or fail to. Each is counted for itself. When very many come
 * at once all are slowed down, but nobody can use up what is left for the others.
 */
import { isIPv6 } from 'node:net'
import type { Clock } from '../lib/clock.ts'
import { type Allowance, createLimiter } from './rate-limit.ts'

export interface Brake {
  /** Takes one for the client at an address. */
  take(address: string): Allowance
}

const crowd = 20
const share = 10

const groupsOf = (text: string): string[] => (text === '' ? [] : text.split(':'))

/** Who has one IPv6 address has a whole network of them: its first 64 bits tell it from others. */
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

/** `perMinute` for each client; 0 admits everything. */
export const createBrake = (perMinute: number, clock: Clock): Brake => {
  const own = createLimiter(perMinute, clock)
  const all = createLimiter(perMinute * crowd, clock)
  const little = createLimiter(perMinute === 0 ? 0 : Math.max(1, Math.floor(perMinute / share)), clock)
  return {
    take(address) {
      const client = clientOf(address)
      const allowance = own.take(client)
      if (!allowance.admitted || all.take('').admitted) return allowance
      return little.take(client)
    },
  }
}
