/** Cross-origin requests: preflights are answered here, and responses say which origins may read them. */
import type { IncomingHttpHeaders } from 'node:http'
import type { CorsPolicy } from '../policy.ts'

/** How long browsers may remember the answer to a preflight: 20 days, as ingress-nginx says. */
const rememberSeconds = 1_728_000

/** `*`, an origin such as https://app.example.com:8443, or one whose host begins with `*.`. */
export const isOriginPattern = (entry: string): boolean =>
  entry === '*' || /^[a-z][a-z0-9+.-]*:\/\/(\*\.)?[A-Za-z0-9_.-]+(:\d{1,5})?$/i.test(entry)

const matchesOrigin = (pattern: string, origin: string): boolean => {
  const at = pattern.indexOf('*.')
  if (at < 0) return pattern.toLowerCase() === origin
  const [before, after] = [pattern.slice(0, at).toLowerCase(), pattern.slice(at + 1).toLowerCase()]
  const label = origin.slice(before.length, -after.length)
  return origin.startsWith(before) && origin.endsWith(after) && /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(label)
}

/** Other origins may be answered differently: a cache must not give them this response. */
export const variesByOrigin: readonly string[] = ['vary', 'Origin']

/** Null: this origin is not allowed, and a response says only `variesByOrigin`. */
export type Cors = (origin: string | undefined) => string[] | null

/**
 * The headers for a request of this origin; null if it is not allowed. Cookies and logins of other pages are used only
 * for origins that are listed, never for `*`.
 */
export const createCors = ({ origins, methods, headers }: CorsPolicy): Cors => {
  const common = [
    ...['access-control-allow-methods', methods, 'access-control-allow-headers', headers],
    ...['access-control-max-age', String(rememberSeconds)],
  ]
  const forAll = ['access-control-allow-origin', '*', ...common]
  if (origins.includes('*')) return () => forAll
  return (origin) => {
    const plain = origin?.toLowerCase()
    if (plain === undefined || !origins.some((pattern) => matchesOrigin(pattern, plain))) return null
    const own = ['access-control-allow-origin', origin!, 'access-control-allow-credentials', 'true']
    return [...own, ...variesByOrigin, ...common]
  }
}

export const isPreflight = (method: string | undefined, headers: IncomingHttpHeaders): boolean =>
  method === 'OPTIONS' && headers.origin !== undefined && headers['access-control-request-method'] !== undefined
