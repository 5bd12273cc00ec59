/** Refuses requests that two servers could read differently. Requests that the parser refuses never get here. */

import type { PageName } from '../exchange/pages.ts'
import type { RequestHead } from '../http1/request-head.ts'
import { normalizeHost } from '../table/table.ts'

/** `GET http://a.test/x`: its host must equal the Host header, and the rest becomes the path. */
const pathOfAbsolute = (url: string, hostHeader: string): string | null => {
  const match = /^https?:\/\/([^/?]*)(.*)$/i.exec(url)
  if (match === null || match[1]!.toLowerCase() !== hostHeader.toLowerCase()) return null
  const rest = match[2]!
  return rest.startsWith('/') ? rest : `/${rest}`
}

/** The rest after a name must be a port, or programs may read the whole as another host. */
const hasPlainEnd = (host: string): boolean => {
  const at = host.indexOf(':', host.startsWith('[') ? host.indexOf(']') + 1 : 0)
  return at < 0 || /^:\d{0,5}$/.test(host.slice(at))
}

const pathOrRefusal = (head: RequestHead): { path: string } | PageName => {
  const { host = '', coding, target } = head
  if (head.method === 'CONNECT') return 'method'
  if (!head.hasHost || !hasPlainEnd(host)) return 'hosts'
  if (coding !== undefined && (head.contentLength >= 0 || head.isOld)) return 'framing'
  if (coding !== undefined && coding.toLowerCase() !== 'chunked') return 'coding'
  const path = target.startsWith('/') ? target : pathOfAbsolute(target, host)
  return path === null ? 'otherHost' : { path }
}

/** Hosts repeat: the results for the last ones are cached. */
const normalized = new Map<string, string>()
const mostRemembered = 1000

const hostOf = (header: string): string => {
  const known = normalized.get(header)
  if (known !== undefined) return known
  const host = normalizeHost(header)
  if (normalized.size >= mostRemembered) normalized.clear()
  normalized.set(header, host)
  return host
}

export const readRequest = (head: RequestHead): { host: string; path: string } | PageName => {
  const found = pathOrRefusal(head)
  return typeof found === 'string' ? found : { host: hostOf(head.host!), path: found.path }
}
