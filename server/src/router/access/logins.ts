/**
 * Checks names and passwords. One set for a service, whatever hosts it has. Promises that a login which was right
 * before passes at once, however many wrong ones are tried, and that one client can try only a limited number.
 */
import { createHash } from 'node:crypto'
import { createLimiter } from '../../lib/concurrency/limiter.ts'
import { clientOf } from '../../lib/net/client-network.ts'
import { type Clock, systemClock } from '../../lib/time/clock.ts'
import type { Comparisons, LoginPlace } from './comparisons.ts'
import type { User } from './htpasswd.ts'
import { isSlow, matches } from './passwords.ts'

/** `busy`: too many comparisons are waiting; `tried`: this client was wrong too often. */
export type Verdict = 'right' | 'wrong' | 'busy' | 'tried'

export interface Logins {
  /** `address`: of the client, as far as it is known. */
  check(authorization: string | undefined, address: string): Verdict | Promise<Verdict>
}

const mostRemembered = 1000
const mostPasswordBytes = 1024
/** Wrong logins of one client at one service, per minute. */
const mostWrong = 30
const mostClients = 2000

const readBasic = (header: string): { name: string; password: string } | null => {
  const match = /^basic +([A-Za-z0-9+/=]+) *$/i.exec(header)
  if (match === null) return null
  const text = Buffer.from(match[1]!, 'base64').toString()
  const at = text.indexOf(':')
  return at < 0 ? null : { name: text.slice(0, at), password: text.slice(at + 1) }
}

/** The most recent ones. */
const createMemory = () => {
  const keys = new Set<string>()
  return {
    has: (key: string): boolean => keys.has(key),
    add(key: string): void {
      const [oldest] = keys.size < mostRemembered ? [] : keys
      if (oldest !== undefined) keys.delete(oldest)
      keys.add(key)
    },
  }
}

export const createLogins = (
  place: LoginPlace,
  users: readonly User[],
  comparisons: Comparisons,
  clock: Pick<Clock, 'monotonicMs'> = systemClock,
): Logins => {
  const byName = new Map(users.map(({ name, hash }) => [name, hash]))
  const someHash = users[0]?.hash ?? ''
  // Separate, so that made-up wrong logins push out no right one.
  const [right, wrong] = [createMemory(), createMemory()]
  const underWay = new Map<string, Promise<Verdict>>()
  const failures = createLimiter(mostWrong, clock, mostClients)

  const compare = async (key: string, hash: string, password: string, isKnown: boolean): Promise<Verdict> => {
    const isRight = await comparisons.compare(place, hash, password).catch(() => null)
    underWay.delete(key)
    if (isRight === null) return 'busy'
    const verdict = isRight && isKnown ? 'right' : 'wrong'
    const memory = verdict === 'right' ? right : wrong
    memory.add(key)
    return verdict
  }

  return {
    check(authorization, address) {
      const sent = authorization === undefined ? null : readBasic(authorization)
      if (sent === null || sent.password.length > mostPasswordBytes) return 'wrong'
      const known = byName.get(sent.name)
      const hash = known ?? someHash
      if (!isSlow(hash)) return matches(hash, sent.password) && known !== undefined ? 'right' : 'wrong'
      const key = createHash('sha256').update(authorization!).digest('base64')
      if (right.has(key)) return 'right'
      if (wrong.has(key)) return 'wrong'
      const asked = underWay.get(key)
      if (asked !== undefined) return asked
      const client = clientOf(address)
      if (!failures.take(client).admitted) return 'tried'
      const verdict = compare(key, hash, sent.password, known !== undefined)
      underWay.set(key, verdict)
      return verdict.then((settled) => {
        if (settled !== 'wrong') failures.give(client)
        return settled
      })
    },
  }
}
