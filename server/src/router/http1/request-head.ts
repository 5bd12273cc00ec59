/** The head of a request, read strictly: anything that two programs could read differently is malformed. */
import { METHODS } from 'node:http'
import { isSaidByUs, passedToTarget, saidByUs } from '../exchange/headers.ts'
import { carriageReturn, isTarget, isToken, lineFeed, space } from './characters.ts'
import { dropped, Head, kept, more, namesToAsk, says } from './head.ts'
import { linesOf } from './header-lists.ts'

const methods: ReadonlyMap<string, string> = new Map(METHODS.map((method) => [method, method]))
const longestMethod = Math.max(...METHODS.map(({ length }) => length))
/** Methods whose programs expect a length even without a body. */
const withBodies: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH'])

const version = Buffer.from('HTTP/1.')
const badMethod = 'its first line does not begin with a method of HTTP and a space'
const badTarget = 'its path has a control character, a space or a "#"'
const badVersion = 'its first line does not end with HTTP/1.1 or HTTP/1.0 and CR LF'
const forwardedPrefix = 12

const asked = namesToAsk([
  ...['host', 'content-length'],
  ...saidByUs,
  ...Array.from({ length: 64 - forwardedPrefix }, (_, more) => 'x'.repeat(forwardedPrefix + more)),
])

export class RequestHead extends Head {
  method = ''
  target = ''
  /** HTTP/1.0. */
  isOld = false
  host: string | undefined
  upgrade: string | undefined
  expect: string | undefined
  private hosts = 0
  protected readonly asks = asked
  protected readonly takesLineFeeds = false

  override reset(): void {
    super.reset()
    this.host = undefined
    this.upgrade = undefined
    this.expect = undefined
    this.hosts = 0
  }

  get hasHost(): boolean {
    return this.hosts === 1
  }

  /** 0: there is none; -1: of unknown length, in chunks. */
  get bodyLength(): number {
    return this.coding !== undefined ? -1 : Math.max(0, this.contentLength)
  }

  get wantsToStay(): boolean {
    return this.isOld ? says(this.connection, 'keep-alive') : !says(this.connection, 'close')
  }

  /** Whether it offers another protocol that may be taken. */
  get isUpgrade(): boolean {
    return (
      this.upgrade !== undefined && !this.isOld && says(this.connection, 'upgrade') && !/^h2c?$/i.test(this.upgrade)
    )
  }

  get bytes(): number {
    return this.text.length
  }

  protected readStart(bytes: Buffer, from: number, end: number): number {
    let at = from
    const method = at
    while (at < end && isToken[bytes[at]!] === 1) at++
    if (at === end) return at - method > longestMethod ? this.refuse(badMethod) : more
    // Perhaps an empty line before a request.
    if (bytes[at] === carriageReturn && at === method && at + 1 === end) return more
    const known = bytes[at] === space ? methods.get(bytes.toString('latin1', method, at)) : undefined
    if (known === undefined) return this.refuse(badMethod)
    const target = ++at
    while (at < end && isTarget[bytes[at]!] === 1) at++
    const targetEnd = at
    if (at === end) return more
    if (bytes[at++] !== space || targetEnd === target) return this.refuse(badTarget)
    for (let index = 0; index < version.length; index++, at++) {
      if (at === end) return more
      if (bytes[at] !== version[index]) return this.refuse(badVersion)
    }
    if (at + 2 >= end) return more
    const digit = bytes[at]! - 48
    const isLineEnd = bytes[at + 1] === carriageReturn && bytes[at + 2] === lineFeed
    if ((digit !== 0 && digit !== 1) || !isLineEnd) return this.refuse(badVersion)
    this.method = known
    this.target = bytes.toString('latin1', target, targetEnd)
    this.isOld = digit === 0
    return at + 3
  }

  protected onField(bytes: Buffer, name: number, nameEnd: number, value: number, valueEnd: number): number {
    const text = bytes.toString('latin1', name, nameEnd).toLowerCase()
    switch (text) {
      case 'host':
        this.hosts++
        this.host = bytes.toString('latin1', value, valueEnd)
        return kept
      case 'content-length':
        return this.readLength(bytes, value, valueEnd)
      case 'connection':
        this.connection = this.joined(this.connection, bytes, value, valueEnd)
        return dropped
      case 'transfer-encoding':
        this.coding = this.joined(this.coding, bytes, value, valueEnd)
        return dropped
      case 'upgrade':
        this.upgrade = this.joined(this.upgrade, bytes, value, valueEnd)
        return dropped
      case 'expect':
        this.expect = this.joined(this.expect, bytes, value, valueEnd)
        return dropped
      default:
        return isSaidByUs(text) ? dropped : kept
    }
  }

  /** Its headers for a target as lines, without those about the client. */
  linesForTarget(): string {
    const lines = this.passedLines(() => passedToTarget(this.flat, this.connection))
    return this.contentLength < 0 ? lines + framingOf(this.method, this.bodyLength) : lines
  }
}

/** How the end of the body is marked for a target, if the client did not send its length. */
export const framingOf = (method: string, bodyLength: number): string => {
  if (bodyLength !== 0) return linesOf(['transfer-encoding', 'chunked'])
  return withBodies.has(method) ? linesOf(['content-length', '0']) : ''
}
