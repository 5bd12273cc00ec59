/** Removes headers from a forwarded HTTP/2 stream, and adds others. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2'
import { words } from '../../lib/words.ts'
import { isSaidByUs } from '../exchange/headers.ts'
import { type IsTrusted, plainAddress } from '../sources.ts'
import { normalizeHost } from '../table/table.ts'

/** Belongs to one connection, or is set by us. */
const dropped = new Set<string>(
  words(
    'host connection keep-alive proxy-connection proxy-authenticate proxy-authorization transfer-encoding upgrade',
    'te expect http2-settings forwarded x-real-ip',
  ),
)

/** For HTTP/1.1 only: Node throws when one of these is sent. */
const ofConnections = new Set<string>(
  words('connection http2-settings keep-alive proxy-connection te transfer-encoding upgrade'),
)

const isPassed = (name: string): boolean => !name.startsWith(':') && !dropped.has(name)

export interface StreamRequest {
  authority: string
  /** Normalized. */
  host: string
  method: string
  path: string
}

/** The destination of a stream's request; null if two servers could read it differently. */
export const readStreamRequest = (headers: IncomingHttpHeaders): StreamRequest | null => {
  const authority = headers[':authority'] ?? headers.host
  const { ':method': method, ':path': path } = headers
  if (authority === undefined || (headers.host ?? authority).toLowerCase() !== authority.toLowerCase()) return null
  if (method === undefined || path === undefined || !(path.startsWith('/') || path === '*')) return null
  return { authority, host: normalizeHost(authority), method, path }
}

export const streamHeadersForTarget = (
  headers: IncomingHttpHeaders,
  { authority, method, path }: StreamRequest,
  address: string | undefined,
  isTrusted: IsTrusted,
  scheme: 'http' | 'https',
): OutgoingHttpHeaders => {
  const passed: OutgoingHttpHeaders = { ':method': method, ':scheme': 'http', ':authority': authority, ':path': path }
  for (const [name, value] of Object.entries(headers)) if (isPassed(name) && !isSaidByUs(name)) passed[name] = value
  // Without it gRPC servers assume a proxy that drops trailers.
  if (headers.te === 'trailers') passed.te = 'trailers'
  const peer = plainAddress(address)
  const said = isTrusted(peer) ? headers : undefined
  const chain = said?.['x-forwarded-for']
  passed['x-forwarded-for'] = chain === undefined ? peer : `${chain}, ${peer}`
  passed['x-forwarded-proto'] = said?.['x-forwarded-proto'] ?? scheme
  passed['x-forwarded-host'] = said?.['x-forwarded-host'] ?? authority
  return passed
}

/** The headers, or the trailers, of an answer for the client. */
export const streamHeadersForClient = (headers: IncomingHttpHeaders): OutgoingHttpHeaders => {
  const passed: OutgoingHttpHeaders = {}
  for (const [name, value] of Object.entries(headers)) if (isPassed(name)) passed[name] = value
  if (headers[':status'] !== undefined) passed[':status'] = headers[':status']
  return passed
}

/** Added to the service's own values. */
const repeatable = ['set-cookie', 'vary']

/** The headers of a response, replaced by those of a flat list. */
export const dressedStream = (passed: OutgoingHttpHeaders, flat: readonly string[]): OutgoingHttpHeaders => {
  const added: OutgoingHttpHeaders = {}
  for (let index = 0; index < flat.length; index += 2)
    if (!ofConnections.has(flat[index]!)) added[flat[index]!] = flat[index + 1]
  const dressed = { ...passed, ...added }
  for (const name of repeatable)
    if (added[name] !== undefined && passed[name] !== undefined)
      dressed[name] = [passed[name], added[name]].flat().map(String)
  return dressed
}
