/** Checks a request against a service's rules before any of it is forwarded: the client's address and login. */
import type { IncomingHttpHeaders } from 'node:http'
import { isPreflight, variesByOrigin } from '../access/cors.ts'
import type { Verdict } from '../access/logins.ts'
import { dressed, type Rules, stickyHeader, stickyOf, stickyValue } from '../access/rules.ts'
import type { PageName } from '../exchange/pages.ts'
import { clientAddress, type IsTrusted } from '../sources.ts'
import type { HostEntry } from '../traffic/live-table.ts'
import { isSuspect, pick, type Upstream } from '../traffic/upstreams.ts'

/** `preflight`: the browser is answered here, because it sends no login with it. */
export type Admission = 'pass' | 'preflight' | Extract<PageName, 'forbidden' | 'unauthorized' | 'busy' | 'tried'>

interface Asker {
  /** The address of the socket. */
  peer: string | undefined
  method: string | undefined
  headers: IncomingHttpHeaders
}

const words: Record<Verdict, Admission> = { right: 'pass', wrong: 'unauthorized', busy: 'busy', tried: 'tried' }

/** An error here must not let a client past a list or a password. */
export const admit = (rules: Rules, asker: Asker, isTrusted: IsTrusted): Admission | Promise<Admission> => {
  const { mayReach, logins, cors } = rules
  const { peer, method, headers } = asker
  const address = (): string | null => clientAddress(peer, headers['x-forwarded-for'], isTrusted)
  if (mayReach !== null && !mayReach(address())) return 'forbidden'
  if (cors !== null && isPreflight(method, headers) && cors(headers.origin) !== null) return 'preflight'
  if (logins === null) return 'pass'
  const verdict = logins.check(headers.authorization, address() ?? '')
  if (!(verdict instanceof Promise)) return words[verdict]
  return verdict.then(
    (settled) => words[settled],
    () => 'busy',
  )
}

/** The headers that the rules add to a response: which origins may read it, and the answer to a preflight. */
export const addedHeaders = (entry: HostEntry | undefined, origin: string | undefined): string[] => {
  if (entry === undefined || entry.rules.isPlain) return []
  const { cors, headers } = entry.rules
  return cors === null ? [...headers] : [...headers, ...(cors(origin) ?? variesByOrigin)]
}

/** A response's headers with the changes of the rules, for a client that stays with `upstream`. */
export const dressedFor = (
  entry: HostEntry,
  passed: string[],
  { headers }: Pick<Asker, 'headers'>,
  upstream: Upstream | undefined,
  isSecure: boolean,
): string[] => {
  const { rules, route } = entry
  const added = addedHeaders(entry, headers.origin)
  if (rules.sticky && upstream !== undefined) {
    const value = stickyValue(route.serviceId, upstream.key)
    if (stickyOf(headers.cookie) !== value) added.push('set-cookie', stickyHeader(value, isSecure))
  }
  return dressed(passed, added)
}

/** The target that a client stays with, as long as it answers; else the least busy one. */
export const pickFor = (
  entry: HostEntry,
  cookies: string | undefined,
  tried: ReadonlySet<Upstream> | null,
): Upstream | undefined => {
  if (entry.byCookie !== null) {
    const own = entry.byCookie.get(stickyOf(cookies) ?? '')
    if (own !== undefined && tried?.has(own) !== true && !isSuspect(own)) return own
  }
  return pick(entry, tried) ?? pick(entry, null)
}
