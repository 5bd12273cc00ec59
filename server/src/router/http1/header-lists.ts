/** Headers as flat lists (name, value, name, value), as lines and as records. */
import type { IncomingHttpHeaders } from 'node:http'

/** For these the first value counts; the values of all others are joined. */
const single: ReadonlySet<string> = new Set([
  ...['age', 'authorization', 'content-length', 'content-type', 'etag', 'expires', 'from', 'host', 'if-modified-since'],
  ...['if-unmodified-since', 'last-modified', 'location', 'max-forwards', 'proxy-authorization', 'referer'],
  ...['retry-after', 'server', 'user-agent'],
])

export const headersOf = (flat: readonly string[]): IncomingHttpHeaders => {
  const headers = Object.create(null) as Record<string, string | undefined>
  for (let index = 0; index < flat.length; index += 2) {
    const name = flat[index]!.toLowerCase()
    const value = flat[index + 1]!
    const before = headers[name]
    if (before === undefined) headers[name] = value
    else if (!single.has(name)) headers[name] = `${before}${name === 'cookie' ? ';' : ','} ${value}`
  }
  return headers as IncomingHttpHeaders
}

export const linesOf = (flat: readonly string[]): string => {
  let lines = ''
  for (let index = 0; index < flat.length; index += 2) lines += `${flat[index]}: ${flat[index + 1]}\r\n`
  return lines
}
