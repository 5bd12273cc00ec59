/**
 * Splits an untrusted stream into lines, however its bytes are cut, in linear time. Promises that no more than one
 * line of the longest allowed length is kept; and that a stream with `mostPerSecond` is read no faster than that: its
 * sender waits.
 */
import type { Readable } from 'node:stream'
import { setImmediate as nextTurn, setTimeout as pause } from 'node:timers/promises'

export interface LineOptions {
  longest: number
  /** The error for a longer line; without it, the line is cut into pieces of about that length. */
  tooLong?: () => Error
  /** Whether the rest after the last line feed is a line. */
  hasOpenEnd?: boolean
  /** Lines a second, where a line of 200 characters counts as two; in between, other work gets a turn. */
  mostPerSecond?: number
}

/** How much of a rate-limited stream is read between two turns of the event loop. */
const linesAtOnce = 200
const charsPerLine = 200

/** Passes on `perSecond` lines, those of one second at once. */
async function* paced(batches: AsyncIterable<string[]>, perSecond: number): AsyncGenerator<string[]> {
  let room = perSecond
  let sinceMs = performance.now()
  for await (const lines of batches)
    for (let at = 0; at < lines.length; at += linesAtOnce) {
      const part = lines.slice(at, at + linesAtOnce)
      yield part
      const nowMs = performance.now()
      room = Math.min(perSecond, room + ((nowMs - sinceMs) / 1000) * perSecond)
      sinceMs = nowMs
      for (const { length } of part) room -= 1 + length / charsPerLine
      if (room >= 0) await nextTurn()
      else await pause((-room / perSecond) * 1000, undefined, { ref: false })
    }
}

/** The lines that each piece of the stream completes, or a part of them; none is empty. */
export const readLines = (stream: Readable, options: LineOptions): AsyncGenerator<string[]> => {
  const all = readAll(stream, options)
  return options.mostPerSecond === undefined ? all : paced(all, options.mostPerSecond)
}

async function* readAll(stream: Readable, options: LineOptions): AsyncGenerator<string[]> {
  const { longest, tooLong, hasOpenEnd = false } = options
  let pieces: string[] = []
  let length = 0
  const add = (piece: string): void => {
    if (piece === '') return
    pieces.push(piece)
    length += piece.length
  }
  const take = (): string => {
    const line = pieces.join('')
    pieces = []
    length = 0
    return line
  }
  for await (const chunk of stream.setEncoding('utf8') as AsyncIterable<string>) {
    const lines: string[] = []
    let from = 0
    for (let end = chunk.indexOf('\n'); end !== -1; end = chunk.indexOf('\n', from)) {
      add(chunk.slice(from, end))
      if (length > 0) lines.push(take())
      from = end + 1
    }
    add(chunk.slice(from))
    if (length > longest) {
      if (tooLong !== undefined) throw tooLong()
      lines.push(take())
    }
    if (lines.length > 0) yield lines
  }
  if (hasOpenEnd && length > 0) yield [take()]
}
