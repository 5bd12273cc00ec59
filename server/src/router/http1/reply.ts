/** The head of a response as it is sent to a client. */
import { STATUS_CODES } from 'node:http'
import { usual } from '../policy.ts'
import { linesOf } from './header-lists.ts'

let second = 0
let dateLine = ''

const dateLineNow = (): string => {
  const now = Math.floor(Date.now() / 1000)
  if (now !== second) {
    second = now
    dateLine = `Date: ${new Date(now * 1000).toUTCString()}\r\n`
  }
  return dateLine
}

/** Headers about how the message is sent, which the router sets itself. */
const framing: ReadonlySet<string> = new Set(['connection', 'content-length', 'keep-alive', 'transfer-encoding'])

/** Lines of the given headers, with the length of the body; -1: none is sent. */
export const linesWithLength = (flat: readonly string[], length: number): string => {
  const kept: string[] = []
  for (let index = 0; index < flat.length; index += 2)
    if (!framing.has(flat[index]!.toLowerCase())) kept.push(flat[index]!, flat[index + 1]!)
  if (length >= 0) kept.push('Content-Length', String(length))
  return linesOf(kept)
}

const usualLines = 'Connection: keep-alive\r\nKeep-Alive: timeout='

/** How long the client may keep the connection open without a request; 0: it is closed. */
const connectionLines = (keepAliveMs: number): string =>
  keepAliveMs > 0 ? `${usualLines}${Math.floor(keepAliveMs / 1000)}\r\n` : 'Connection: close\r\n'

const usualConnection = connectionLines(usual.keepAliveMs)

/** `lines`: its headers; `more`: how its body is sent. */
export const replyHead = (
  status: number,
  reason: string,
  lines: string,
  hasDate: boolean,
  more: string,
  keepAliveMs: number,
): string =>
  `HTTP/1.1 ${status} ${reason}\r\n${lines}${hasDate ? '' : dateLineNow()}${more}${
    keepAliveMs === usual.keepAliveMs ? usualConnection : connectionLines(keepAliveMs)
  }\r\n`

export const reasonOf = (status: number): string => STATUS_CODES[status] ?? ''
