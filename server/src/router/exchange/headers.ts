/** Removes headers from forwarded messages, and adds others. All lists are flat: name, value, name, value. */
import type { IncomingHttpHeaders } from 'node:http'
import { words } from '../../lib/words.ts'
import type { IsTrusted } from '../sources.ts'

export const hopByHop: ReadonlySet<string> = new Set(
  words('connection keep-alive proxy-connection proxy-authenticate proxy-authorization te transfer-encoding upgrade'),
)

/** Only for requests: set by us, or not passed on (trailers of requests are not). */
const replaced = new Set(['expect', 'trailer', 'http2-settings', 'forwarded', 'x-real-ip'])

const ours = 'x-forwarded-'

/** All names that `isSaidByUs` knows, but for those that begin with `x-forwarded-`. */
export const saidByUs: readonly string[] = [...hopByHop, ...replaced]

const plainName = /^[a-z0-9-]+$/

/**
 * Whether a request's header is for us, or set by us. CGI and its successors map all names that differ only in
 * characters other than letters and digits (`X_Forwarded_For`) to one variable: a client could override ours that way.
 */
export const isSaidByUs = (name: string): boolean => {
  const plain = plainName.test(name) ? name : name.replaceAll(/[^a-z0-9]/g, '-')
  return plain.startsWith(ours) || hopByHop.has(plain) || replaced.has(plain)
}

export interface Origin {
  /** The address of the connection, plain. */
  readonly peer: string
  readonly isEncrypted: boolean
  readonly headers: IncomingHttpHeaders
}

/** Whether the client's connection is encrypted: ours, or that of a trusted proxy before us. */
export const isSecure = (origin: Origin, isTrusted: IsTrusted): boolean => {
  const said = isTrusted(origin.peer) ? origin.headers['x-forwarded-proto'] : undefined
  return said === undefined ? origin.isEncrypted : said === 'https'
}

/** The headers that describe the client. */
export const forwardedHeaders = (origin: Origin, host: string, isTrusted: IsTrusted): string[] => {
  const { peer, isEncrypted } = origin
  const said = isTrusted(peer) ? origin.headers : undefined
  const chain = said?.['x-forwarded-for']
  return [
    ...['x-forwarded-for', chain === undefined ? peer : `${chain}, ${peer}`],
    ...['x-forwarded-proto', String(said?.['x-forwarded-proto'] ?? (isEncrypted ? 'https' : 'http'))],
    ...['x-forwarded-host', String(said?.['x-forwarded-host'] ?? host)],
  ]
}

const plainConnection = /^(?:keep-alive|close|upgrade)$/i
const noNames: ReadonlySet<string> = new Set()

/**
 * Names that a Connection header declares to be for the next hop only. Host and length never are: the message needs
 * them.
 */
export const namesIn = (connection: string | undefined): ReadonlySet<string> => {
  if (connection === undefined || plainConnection.test(connection)) return noNames
  const names = new Set(connection.split(',').map((name) => name.trim().toLowerCase()))
  for (const own of ['host', 'content-length', 'keep-alive', 'close', 'upgrade', '']) names.delete(own)
  return names
}

/** The headers of a request for its target, without those that are for us, or set by us. */
export const passedToTarget = (flat: readonly string[], connection: string | undefined): string[] => {
  const listed = namesIn(connection)
  const passed: string[] = []
  for (let index = 0; index < flat.length; index += 2) {
    const name = flat[index]!.toLowerCase()
    if (!isSaidByUs(name) && !listed.has(name)) passed.push(flat[index]!, flat[index + 1]!)
  }
  return passed
}

/** The headers of a response for the client; `connection`: its Connection header. */
export const headersForClient = (flat: readonly string[], connection: string | undefined): string[] => {
  const listed = namesIn(connection)
  const headers: string[] = []
  for (let index = 0; index < flat.length; index += 2) {
    const plain = flat[index]!.toLowerCase()
    if (!hopByHop.has(plain) && !listed.has(plain)) headers.push(flat[index]!, flat[index + 1]!)
  }
  return headers
}
