/**
 * The head of a message: read from bytes, line by line, without an object for each header. The forwarded headers are
 * cut out of the head as received; only heads with unusual lines are rebuilt.
 */

import type { IncomingHttpHeaders } from 'node:http'
import { namesIn } from '../exchange/headers.ts'
import { carriageReturn, colon, isToken, isValue, lineFeed, space, tab } from './characters.ts'
import { headersOf, linesOf } from './header-lists.ts'

/** Results of reading a head, instead of the position of its end. None of them is a length of a body. */
export const more = 0
export const malformed = -4
export const tooLarge = -5

/** Results of checking a header. */
export const kept = 0
export const dropped = 1

/** Programs ignore headers past a number of their own. */
const mostLines = 1000
const longestName = 63

/** By length and first letter: whether a name may be one of those that `onField` checks. */
export const namesToAsk = (names: Iterable<string>): Uint8Array => {
  const table = new Uint8Array((longestName + 1) * 32)
  for (const name of names) table[(Math.min(name.length, longestName) << 5) | (name.charCodeAt(0) & 31)] = 1
  return table
}

const decimal = /^(?:0|[1-9]\d{0,15})$/

/** A length that is read in one way only; `malformed` for any other. */
export const lengthOf = (text: string): number => {
  const length = decimal.test(text) ? Number(text) : malformed
  return Number.isSafeInteger(length) ? length : malformed
}

const badLine = 'a header line has a control character, or does not end in CR LF'

export abstract class Head {
  /** As received, once it is complete. */
  text = ''
  /** The reason if malformed, as the end of a sentence. */
  fault = ''
  /** -1: there was none. */
  contentLength = -1
  /** The values of these headers, joined where there are several. */
  connection: string | undefined
  coding: string | undefined
  protected fieldsFrom = 0
  private fieldsTo = 0
  /** Where reading continues, from the first byte of the head; 0: it has not begun. */
  private at = 0
  private lineCount = 0
  /** Ranges of `text` that are not passed on. */
  private readonly cuts: number[] = []
  private cutCount = 0
  private isUnusual = false
  private list: string[] | null = null
  private named: IncomingHttpHeaders | null = null

  protected abstract readonly asks: Uint8Array
  /** Whether lines may end in a line feed alone. */
  protected abstract readonly takesLineFeeds: boolean
  /** The position after the first line, `more` or `malformed`. */
  protected abstract readStart(bytes: Buffer, from: number, end: number): number
  /** `kept`, `dropped` or `malformed`. */
  protected abstract onField(bytes: Buffer, name: number, nameEnd: number, value: number, valueEnd: number): number

  reset(): void {
    this.text = ''
    this.fault = ''
    this.contentLength = -1
    this.connection = undefined
    this.coding = undefined
    this.at = 0
    this.lineCount = 0
    this.cutCount = 0
    this.isUnusual = false
    this.list = null
    this.named = null
  }

  protected refuse(fault: string): typeof malformed {
    this.fault = fault
    return malformed
  }

  /**
   * Reads a head that begins at `from`. Returns the position after it, `more`, `malformed` or `tooLarge`. After
   * `more`, call it with the same bytes and those that follow: the part already read is not read again.
   */
  read(bytes: Buffer, from: number, end: number, mostBytes: number): number {
    let at = from + this.at
    if (this.at === 0) {
      at = this.readStart(bytes, from, end)
      if (at === malformed) return malformed
      if (at === more) return end - from > mostBytes ? tooLarge : more
      this.at = this.fieldsFrom = at - from
    }
    const behind = this.readFields(bytes, from, at, end)
    if (behind === malformed) return malformed
    if ((behind === more ? end : behind) - from > mostBytes || this.lineCount > mostLines) return tooLarge
    if (behind !== more) this.text = bytes.toString('latin1', from, behind)
    return behind
  }

  private readFields(bytes: Buffer, base: number, from: number, end: number): number {
    let at = from
    while (at < end) {
      const first = bytes[at]!
      if (first === carriageReturn || first === lineFeed) return this.readEnd(bytes, base, at, end)
      const name = at
      while (at < end && isToken[bytes[at]!] === 1) at++
      if (at === end) return more
      if (at === name && (first === space || first === tab)) return this.refuse('a header is folded into several lines')
      if (at === name || bytes[at] !== colon) return this.refuse('a header line is not of the form "Name: value"')
      const nameEnd = at++
      while (at < end && (bytes[at] === space || bytes[at] === tab)) at++
      const value = at
      while (at < end && isValue[bytes[at]!] === 1) at++
      if (at === end) return more
      let valueEnd = at
      if (bytes[at] === carriageReturn && ++at === end) return more
      if (bytes[at] !== lineFeed || (at === valueEnd && !this.takesLineFeeds)) return this.refuse(badLine)
      if (value !== nameEnd + 2 || bytes[nameEnd + 1] !== space || at === valueEnd) this.isUnusual = true
      while (valueEnd > value && (bytes[valueEnd - 1] === space || bytes[valueEnd - 1] === tab)) {
        valueEnd--
        this.isUnusual = true
      }
      at++
      const length = nameEnd - name
      if (this.asks[(Math.min(length, longestName) << 5) | (first & 31)] === 1) {
        const said = this.onField(bytes, name, nameEnd, value, valueEnd)
        if (said === malformed) return malformed
        if (said === dropped) this.cut(name - base, at - base)
      }
      if (++this.lineCount > mostLines) return more
      this.at = at - base
    }
    return more
  }

  private readEnd(bytes: Buffer, base: number, from: number, end: number): number {
    let at = from
    if (bytes[at] === carriageReturn && ++at === end) return more
    if (bytes[at] !== lineFeed || (at === from && !this.takesLineFeeds)) return this.refuse(badLine)
    this.fieldsTo = from - base
    return at + 1
  }

  /** The value of a Content-Length: `kept`, unless it can be read in two ways. */
  protected readLength(bytes: Buffer, from: number, to: number): number {
    if (this.contentLength !== -1) return this.refuse('it has more than one Content-Length')
    this.contentLength = lengthOf(bytes.toString('latin1', from, to))
    return this.contentLength === malformed ? this.refuse('its Content-Length is not a number') : kept
  }

  private cut(from: number, to: number): void {
    const { cuts, cutCount } = this
    if (cutCount > 0 && cuts[cutCount - 1] === from) cuts[cutCount - 1] = to
    else {
      cuts[cutCount] = from
      cuts[cutCount + 1] = to
      this.cutCount += 2
    }
  }

  protected joined(before: string | undefined, bytes: Buffer, from: number, to: number): string {
    const value = bytes.toString('latin1', from, to)
    return before === undefined ? value : `${before}, ${value}`
  }

  /** All headers, in their order: name, value, name, value. */
  get flat(): readonly string[] {
    this.list ??= this.text
      .slice(this.fieldsFrom, this.fieldsTo)
      .split('\n')
      .slice(0, -1)
      .flatMap((line) => {
        const at = line.indexOf(':')
        return [line.slice(0, at), line.slice(at + 1).replaceAll(/^[ \t]+|[ \t\r]+$/g, '')]
      })
    return this.list
  }

  /** By lower-case name, joined as in Node. */
  get headers(): IncomingHttpHeaders {
    this.named ??= headersOf(this.flat)
    return this.named
  }

  /** The forwarded headers, as lines. `pass`: the same as a list. */
  protected passedLines(pass: () => string[]): string {
    if (this.isUnusual || namesIn(this.connection).size > 0) return linesOf(pass())
    const { text, cuts, cutCount } = this
    let lines = ''
    let from = this.fieldsFrom
    for (let index = 0; index < cutCount; index += 2) {
      if (cuts[index]! > from) lines += text.slice(from, cuts[index])
      from = cuts[index + 1]!
    }
    return from < this.fieldsTo ? lines + text.slice(from, this.fieldsTo) : lines
  }
}

export const says = (connection: string | undefined, word: string): boolean => {
  if (connection === undefined) return false
  if (connection.length === word.length) return connection.toLowerCase() === word
  return connection.includes(',') && connection.split(',').some((each) => each.trim().toLowerCase() === word)
}
