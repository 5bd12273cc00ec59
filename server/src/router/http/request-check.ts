/** Refuses requests that two servers could read differently. What the parser already refuses never gets here. */
import type { IncomingMessage } from 'node:http'
import { normalizeHost } from '../table/table.ts'
import type { PageName } from './pages.ts'

const countHosts = (rawHeaders: readonly string[]): number => {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2)
    if (rawHeaders[index]!.length === 4 && rawHeaders[index]!.toLowerCase() === 'host') count++
  return count
}

/** `GET http://a.test/x`: its host must equal the Host header, and the rest becomes the path. */
const pathOfAbsolute = (url: string, hostHeader: string): string | null => {
  const match = /^https?:\/\/([^/?#]*)(.*)$/i.exec(url)
  if (match === null || match[1]!.toLowerCase() !== hostHeader.toLowerCase()) return null
  const rest = match[2]!
  return rest.startsWith('/') ? rest : `/${rest}`
}

/** The destination of the request, or the page that refuses it. */
export const readRequest = (req: IncomingMessage): { host: string; path: string } | PageName => {
  const { headers } = req
  if (headers.host === undefined || countHosts(req.rawHeaders) !== 1) return 'malformed'
  const coding = headers['transfer-encoding']
  if (coding !== undefined && headers['content-length'] !== undefined) return 'malformed'
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') return 'coding'
  const url = req.url ?? ''
  const path = url.startsWith('/') ? url : pathOfAbsolute(url, headers.host)
  return path === null ? 'malformed' : { host: normalizeHost(headers.host), path }
}

export const hasBody = ({ headers }: IncomingMessage): boolean =>
  headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
