/**
 * The head of a response. Its lines may end in a line feed alone: every CGI script of busybox writes them so, and
 * browsers, curl and nginx accept it. Only for responses: a request must have one reading only, whereas a target's
 * answer is its own responsibility.
 */
import { headersForClient, hopByHop } from '../exchange/headers.ts'
import { carriageReturn, isValue, lineFeed, space } from './characters.ts'
import { dropped, Head, kept, more, namesToAsk, says } from './head.ts'

const version = Buffer.from('HTTP/1.')
const badStart = 'its first line is not of the form "HTTP/1.1 200 OK"'
const asked = namesToAsk(['content-length', 'date', ...hopByHop])
const printable = /^[\t\x20-\x7e]*$/

const digitAt = (bytes: Buffer, at: number): number => {
  const digit = bytes[at]! - 48
  return digit >= 0 && digit <= 9 ? digit : Number.NaN
}

/** How its body ends if neither a length nor chunks define it. */
export const untilClose = -2
export const inChunks = -1

export class ResponseHead extends Head {
  status = 0
  /** '' for one that cannot be sent. */
  reason = ''
  isOld = false
  hasDate = false
  keepAlive: string | undefined
  protected readonly asks = asked
  protected readonly takesLineFeeds = true

  override reset(): void {
    super.reset()
    this.hasDate = false
    this.keepAlive = undefined
  }

  get staysOpen(): boolean {
    return this.isOld ? says(this.connection, 'keep-alive') : !says(this.connection, 'close')
  }

  /** The length of its body, `inChunks` or `untilClose`; `malformed`, with a `fault`, if it can be read in two ways. */
  bodyLength(method: string): number {
    const { status, coding, contentLength } = this
    if (coding !== undefined && contentLength !== -1)
      return this.refuse('it has both a Content-Length and a Transfer-Encoding')
    if (method === 'HEAD' || status === 204 || status === 304) return 0
    if (coding === undefined) return contentLength === -1 ? untilClose : contentLength
    const plain = coding.toLowerCase()
    if (plain === 'chunked') return this.isOld ? this.refuse('it is of HTTP/1.0 and has a Transfer-Encoding') : inChunks
    return plain === 'identity' ? untilClose : this.refuse('its Transfer-Encoding is not "chunked"')
  }

  protected readStart(bytes: Buffer, from: number, end: number): number {
    let at = from
    for (let index = 0; index < version.length; index++, at++) {
      if (at === end) return more
      if (bytes[at] !== version[index]) return this.refuse(badStart)
    }
    if (at + 5 >= end) return more
    const minor = digitAt(bytes, at)
    const status = digitAt(bytes, at + 2) * 100 + digitAt(bytes, at + 3) * 10 + digitAt(bytes, at + 4)
    if (!(minor <= 1) || bytes[at + 1] !== space || !(status >= 100)) return this.refuse(badStart)
    at += 5
    if (bytes[at] === space) at++
    const reason = at
    while (at < end && isValue[bytes[at]!] === 1) at++
    const reasonEnd = at
    if (at === end) return more
    if (bytes[at] === carriageReturn && ++at === end) return more
    if (bytes[at] !== lineFeed || (reasonEnd > reason && bytes[reason - 1] !== space)) return this.refuse(badStart)
    const text = bytes.toString('latin1', reason, reasonEnd)
    this.isOld = minor === 0
    this.status = status
    this.reason = printable.test(text) ? text : ''
    return at + 1
  }

  protected onField(bytes: Buffer, name: number, nameEnd: number, value: number, valueEnd: number): number {
    const text = bytes.toString('latin1', name, nameEnd).toLowerCase()
    switch (text) {
      case 'content-length':
        return this.readLength(bytes, value, valueEnd)
      case 'connection':
        this.connection = this.joined(this.connection, bytes, value, valueEnd)
        return dropped
      case 'transfer-encoding':
        this.coding = this.joined(this.coding, bytes, value, valueEnd)
        return dropped
      case 'keep-alive':
        this.keepAlive = this.joined(this.keepAlive, bytes, value, valueEnd)
        return dropped
      case 'date':
        this.hasDate = true
        return kept
      default:
        return hopByHop.has(text) ? dropped : kept
    }
  }

  /** Its headers for the client, flat. */
  get passed(): string[] {
    return headersForClient(this.flat, this.connection)
  }

  get lines(): string {
    return this.passedLines(() => this.passed)
  }
}
