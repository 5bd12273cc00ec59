/**
 * Finds the end of a message's body. Its bytes are passed on as received; of chunks only the parts that programs could
 * read differently are checked strictly, and their extensions and trailers are left out.
 */
import { carriageReturn, hexDigits, isValue, lineFeed, semicolon } from './characters.ts'
import { malformed } from './head.ts'
import { inChunks, untilClose } from './response-head.ts'

export interface BodySink {
  /** These bytes are valid during the call only. */
  onBody(bytes: Buffer, from: number, to: number): void
}

/** Why a body is malformed, as the end of a sentence. */
export const badChunks = 'the chunks of its body cannot be read'

const mostDigits = 12
const mostExtensionBytes = 4096
const mostTrailerBytes = 16_384
const trailerLine = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*$/

/** Trailers that are never passed on, because programs may trust them; '' is one that cannot be read. */
const framing: ReadonlySet<string> = new Set(['', 'content-length', 'host', 'transfer-encoding'])

const sizes = 0
const extension = 1
const sizeEnd = 2
const data = 3
const dataReturn = 4
const dataEnd = 5
const trailerStart = 6
const trailer = 7
const trailerEnd = 8
const lastEnd = 9

export class BodyReader {
  isDone = true
  /** Bytes of the body itself so far. */
  received = 0
  private left = 0
  private length = 0
  private state = sizes
  private digits = 0
  private unpassed = 0
  private tail = ''
  /** Chunks are passed on with their sizes, up to the last one, whose end is left to the caller. */
  private isFramed = false

  begin(length: number, isFramed: boolean): void {
    this.length = length
    this.isFramed = isFramed
    this.isDone = length === 0
    this.left = Math.max(0, length)
    this.received = 0
    this.state = sizes
    this.digits = 0
    this.unpassed = 0
    this.tail = ''
  }

  get endsWithConnection(): boolean {
    return this.length === untilClose && !this.isDone
  }

  finish(): void {
    this.isDone = true
  }

  /** Passes on the bytes of the body; returns the position after it, or `malformed`. */
  read(bytes: Buffer, from: number, end: number, sink: BodySink): number {
    if (this.length === inChunks) return this.readChunks(bytes, from, end, sink)
    const to = this.length === untilClose ? end : Math.min(end, from + this.left)
    this.received += to - from
    this.left -= to - from
    if (this.length >= 0) this.isDone = this.left === 0
    if (to > from) sink.onBody(bytes, from, to)
    return to
  }

  private readChunks(bytes: Buffer, from: number, end: number, sink: BodySink): number {
    let at = from
    /** Start of the bytes that are passed on with their framing; -1: none. */
    let run = this.isFramed && this.state !== extension && this.state < trailerStart ? from : -1
    while (at < end && !this.isDone) {
      if (this.state === data) {
        const to = Math.min(end, at + this.left)
        this.left -= to - at
        this.received += to - at
        if (!this.isFramed) sink.onBody(bytes, at, to)
        if (this.left === 0) this.state = dataReturn
        at = to
        continue
      }
      const before = this.state
      const byte = bytes[at]!
      if (!(before < trailerStart ? this.step(byte) : this.stepTrailer(byte))) return malformed
      const { state } = this
      if (run >= 0 && before === sizes && state === extension) {
        if (at > run) sink.onBody(bytes, run, at)
        run = -1
      } else if (this.isFramed && before === extension && state === sizeEnd) run = at
      at++
      if (run >= 0 && state === trailerStart) {
        sink.onBody(bytes, run, at)
        run = -1
      }
    }
    if (run >= 0 && at > run) sink.onBody(bytes, run, at)
    return at
  }

  /** False: malformed. */
  private step(byte: number): boolean {
    switch (this.state) {
      case sizes: {
        const digit = hexDigits[byte]!
        if (digit !== 255) {
          this.left = this.left * 16 + digit
          return ++this.digits <= mostDigits
        }
        this.state = byte === semicolon ? extension : sizeEnd
        return this.digits > 0 && (byte === semicolon || byte === carriageReturn)
      }
      case extension:
        if (byte === carriageReturn) this.state = sizeEnd
        else if (isValue[byte] !== 1) return false
        return ++this.unpassed <= mostExtensionBytes
      case sizeEnd:
        this.digits = 0
        this.state = this.left === 0 ? trailerStart : data
        return byte === lineFeed
      case dataReturn:
        this.state = dataEnd
        return byte === carriageReturn
      default:
        this.state = sizes
        return byte === lineFeed
    }
  }

  private stepTrailer(byte: number): boolean {
    switch (this.state) {
      case trailerStart:
      case trailer:
        if (byte === carriageReturn) {
          this.state = this.state === trailer ? trailerEnd : lastEnd
          return true
        }
        this.state = trailer
        this.tail += String.fromCharCode(byte)
        return isValue[byte] === 1 && this.tail.length <= mostTrailerBytes
      case trailerEnd:
        this.state = trailerStart
        this.tail += '\n'
        return byte === lineFeed
      default:
        this.isDone = true
        return byte === lineFeed && this.areTrailersGood()
    }
  }

  private areTrailersGood(): boolean {
    return this.tailLines.every((line) => !framing.has(trailerLine.exec(line)?.[1]?.toLowerCase() ?? ''))
  }

  private get tailLines(): string[] {
    return this.tail === '' ? [] : this.tail.slice(0, -1).split('\n')
  }

  /** Flat. */
  get trailers(): string[] {
    return this.tailLines.flatMap((line) => trailerLine.exec(line)!.slice(1))
  }
}
