/** What is removed from and added to forwarded headers. All lists are flat: name, value, name, value. */
import type { IncomingMessage } from 'node:http'
import { type IsTrusted, plainAddress } from '../access/sources.ts'
import { isEncrypted } from '../tls/guard.ts'

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'te',
  'transfer-encoding',
  'upgrade',
])

/** Only for requests: set by us, or not passed on (trailers of requests are not). */
const replaced = new Set(['expect', 'trailer', 'http2-settings', 'forwarded', 'x-real-ip'])

const plainName = /^[a-z0-9-]+$/

/**
 * Whether a request's header is for us, or set by us. CGI and its successors map all names that differ only in
 * characters other than letters and digits (`X_Forwarded_For`) to one variable: a client could override ours that way.
 */
export const isSaidByUs = (name: string): boolean => {
  const plain = plainName.test(name) ? name : name.replaceAll(/[^a-z0-9]/g, '-')
  return plain.startsWith('x-forwarded-') || hopByHop.has(plain) || replaced.has(plain)
}

const noNames: ReadonlySet<string> = new Set()
const keepAlive = /^(keep-alive|close|upgrade)$/i

/**
 * Names that a Connection header declares to be for the next hop only. Host and length are never: the message needs
 * them.
 */
const namesIn = (connection: string | undefined): ReadonlySet<string> => {
  if (connection === undefined || keepAlive.test(connection)) return noNames
  const names = new Set(connection.split(',').map((name) => name.trim().toLowerCase()))
  names.delete('host')
  names.delete('content-length')
  return names
}

const peerOf = (req: IncomingMessage): string => plainAddress(req.socket.remoteAddress)

/** Whether the client's connection is encrypted: ours, or that of a trusted proxy before us. */
export const isSecure = (req: IncomingMessage, isTrusted: IsTrusted): boolean =>
  isTrusted(peerOf(req)) && req.headers['x-forwarded-proto'] !== undefined
    ? req.headers['x-forwarded-proto'] === 'https'
    : isEncrypted(req.socket)

/** Bytes of raw headers. */
export const sizeOf = (raw: readonly (Buffer | string)[]): number => {
  let size = 0
  for (let index = 0; index < raw.length; index++) size += raw[index]!.length
  return size
}

const addForwarded = (headers: string[], req: IncomingMessage, isTrusted: IsTrusted): void => {
  const peer = peerOf(req)
  const said = isTrusted(peer) ? req.headers : undefined
  const chain = said?.['x-forwarded-for']
  headers.push('x-forwarded-for', chain === undefined ? peer : `${chain}, ${peer}`)
  headers.push('x-forwarded-proto', String(said?.['x-forwarded-proto'] ?? (isEncrypted(req.socket) ? 'https' : 'http')))
  headers.push('x-forwarded-host', String(said?.['x-forwarded-host'] ?? req.headers.host ?? ''))
}

/** The headers of a request for its target. */
export const headersForTarget = (req: IncomingMessage, isTrusted: IsTrusted): string[] => {
  const { rawHeaders } = req
  const listed = namesIn(req.headers.connection)
  const headers: string[] = []
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] as string).toLowerCase()
    if (isSaidByUs(name) || listed.has(name)) continue
    headers.push(name, rawHeaders[index + 1] as string)
  }
  addForwarded(headers, req, isTrusted)
  return headers
}

const textOf = (value: Buffer | string): string => (typeof value === 'string' ? value : value.toString('latin1'))

/** The headers of a response for the client; `raw` as they were received, `connection` that header of them. */
export const headersForClient = (raw: readonly (Buffer | string)[], connection: string | undefined): string[] => {
  const listed = namesIn(connection)
  const headers: string[] = []
  for (let index = 0; index < raw.length; index += 2) {
    const name = textOf(raw[index]!)
    const plain = name.toLowerCase()
    if (hopByHop.has(plain) || listed.has(plain)) continue
    headers.push(name, textOf(raw[index + 1]!))
  }
  return headers
}
