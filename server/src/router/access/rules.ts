/** A policy, ready to be applied: made once for each, and shared by all requests. */
import { createHmac } from 'node:crypto'
import { mostHeaderBytes, type Policy, type RetryPolicy, usual } from '../policy.ts'
import { type MayReach, mayReach } from '../sources.ts'
import type { Comparisons, LoginPlace } from './comparisons.ts'
import { type Cors, createCors } from './cors.ts'
import { parseUsers } from './htpasswd.ts'
import { createLogins, type Logins } from './logins.ts'

type Limits = { readonly [Name in keyof typeof usual]: number }

export interface Rules extends Limits {
  /** Nothing about a request must be checked before it is forwarded, and nothing added to its response. */
  readonly isPlain: boolean
  /** The longest silence of a client's connection in the middle of a request. 0: the default; `Infinity`: no limit. */
  readonly silenceMs: number
  readonly grpcSilenceMs: number
  readonly mayReach: MayReach | null
  readonly logins: Logins | null
  readonly cors: Cors | null
  /** Flat, lower-case names. */
  readonly headers: readonly string[]
  readonly sticky: boolean
  readonly retry: RetryPolicy | null
}

const nothing = {
  isPlain: true,
  mayReach: null,
  logins: null,
  cors: null,
  headers: [],
  sticky: false,
  retry: null,
}

/**
 * The longest of limits that each end a silence: the connection must not end it before them; a 0 among them means no
 * limit.
 */
const silenceWith = (...limitsMs: number[]): number => {
  if (limitsMs.includes(0)) return Number.POSITIVE_INFINITY
  const longestMs = Math.max(...limitsMs)
  return longestMs > usual.readMs ? longestMs : 0
}

const silencesOf = ({ readMs, sendMs, clientMs, grpcReadMs, grpcSendMs }: Limits) => ({
  silenceMs: silenceWith(readMs, sendMs, clientMs),
  grpcSilenceMs: silenceWith(grpcReadMs, grpcSendMs),
})

const usualRules: Rules = { ...usual, ...nothing, ...silencesOf(usual) }

/** Lets no user in: lines that cannot be parsed must not open the service that they protect. */
const noUsers: Logins = { check: () => 'wrong' }

const limitsOf = (policy: Policy): Limits => {
  const set = Object.keys(usual).map((name) => [name, policy[name as keyof Limits] ?? usual[name as keyof Limits]])
  const limits = Object.fromEntries(set) as Limits
  // The pool needs a limit; elsewhere 0 means none.
  const idleMs = limits.idleMs || usual.idleMs
  return { ...limits, idleMs, headerBytes: Math.min(mostHeaderBytes, Math.max(usual.headerBytes, limits.headerBytes)) }
}

type LoginsFor = (place: LoginPlace, lines: readonly string[]) => Logins

const compile = (policy: Policy, place: LoginPlace, loginsFor: LoginsFor): Rules => {
  const limits = limitsOf(policy)
  const rules = {
    ...nothing,
    ...limits,
    ...silencesOf(limits),
    mayReach: mayReach(policy.allow, policy.deny),
    logins: policy.users === undefined ? null : loginsFor(place, policy.users),
    cors: policy.cors === undefined ? null : createCors(policy.cors),
    headers: Object.entries(policy.headers ?? {}).flatMap(([name, value]) => [name.toLowerCase(), value]),
    sticky: policy.sticky === true,
    retry: policy.retry ?? null,
  }
  const { mayReach: list, logins, cors, headers, sticky } = rules
  return { ...rules, isPlain: list === null && logins === null && cors === null && headers.length === 0 && !sticky }
}

interface Rulebook {
  rulesOf(policy: Policy | undefined, place: LoginPlace): Rules
  /** Forgets the logins that were not used since the previous call: no route has them any more. */
  tidy(): void
}

/** Rules of a table. All hosts of a service have one set of logins, and keep it while its users stay the same. */
export const createRulebook = (comparisons: Comparisons): Rulebook => {
  const compiled = new WeakMap<Policy, Rules>()
  let logins = new Map<string, Logins>()
  let inUse = new Map<string, Logins>()
  const keyOf = ({ serviceId, party }: LoginPlace, lines: readonly string[]): string =>
    [serviceId, party, ...lines].join('\n')
  const loginsFor: LoginsFor = (place, lines) => {
    const found = logins.get(keyOf(place, lines))
    if (found !== undefined) return found
    const users = parseUsers(lines.join('\n'))
    return typeof users === 'string' ? noUsers : createLogins(place, users, comparisons)
  }
  return {
    rulesOf(policy, place) {
      if (policy === undefined) return usualRules
      const rules = compiled.get(policy) ?? compile(policy, place, loginsFor)
      compiled.set(policy, rules)
      if (rules.logins !== null) {
        const key = keyOf(place, policy.users!)
        logins.set(key, rules.logins)
        inUse.set(key, rules.logins)
      }
      return rules
    },
    tidy() {
      logins = inUse
      inUse = new Map()
    },
  }
}

const stickyCookie = 'SLIPWAY_INSTANCE'
const stickySeconds = 86_400

/**
 * The value of the cookie that identifies a client's target: it does not reveal the address to readers who do not know
 * the service.
 */
export const stickyValue = (serviceId: string, targetKey: string): string =>
  createHmac('sha256', serviceId).update(targetKey).digest('base64url').slice(0, 22)

export const stickyHeader = (value: string, isSecure: boolean): string =>
  `${stickyCookie}=${value}; Path=/; Max-Age=${stickySeconds}; HttpOnly; SameSite=Lax${isSecure ? '; Secure' : ''}`

const stickyPattern = new RegExp(`(?:^|; ?)${stickyCookie}=([\\w-]+)`)

/** Undefined if the client has no such cookie. */
export const stickyOf = (cookies: string | undefined): string | undefined =>
  cookies === undefined ? undefined : stickyPattern.exec(cookies)?.[1]

/** The headers of a response, in which those of a service's settings replace its own. */
export const dressed = (passed: string[], added: readonly string[]): string[] => {
  if (added.length === 0) return passed
  const names = new Set<string>()
  for (let index = 0; index < added.length; index += 2) names.add(added[index]!)
  names.delete('set-cookie')
  names.delete('vary')
  const kept: string[] = []
  for (let index = 0; index < passed.length; index += 2)
    if (!names.has(passed[index]!.toLowerCase())) kept.push(passed[index]!, passed[index + 1]!)
  return kept.concat(added)
}
